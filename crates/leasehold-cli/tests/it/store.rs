//! `leasehold run` when its store is not there, goes away, or is replaced.

use std::fs;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::process::wait_for;
use crate::supervisor::{PATIENCE, POLITE, Place};

#[test]
fn a_store_that_is_busy_at_the_start_is_waited_for() {
    let place = Place::new();
    let lock = rusqlite::Connection::open(place.path().join("x.db")).unwrap();
    lock.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let mut node = place.run("a", &["--ttl", "2s", "--shards", "2"], POLITE);
    node.wait_for_log("the store is not there yet: waiting for it, and owning nothing");
    assert!(place.pids("a").is_empty());
    drop(lock);
    place.wait_for_beats("a", 2);
    node.wait_for_log("the store is there");
    node.signal(Signal::SIGTERM);
    assert!(node.end().success(), "{}", node.log());
}

#[test]
fn a_folder_that_is_not_there_at_the_start_is_waited_for() {
    let place = Place::new();
    let mut node = place.run("a", &["--ttl", "2s", "--shards", "2", "--store", "local:mount/x.db"], POLITE);
    node.wait_for_log("the store is not there yet: waiting for it, and owning nothing");
    assert!(place.pids("a").is_empty());
    fs::create_dir(place.path().join("mount")).unwrap();
    place.wait_for_beats("a", 2);
    assert!(
        !node.log().contains("Some(") && !node.log().contains("None"),
        "logs are for people: {}",
        node.log()
    );
    node.signal(Signal::SIGTERM);
    assert!(node.end().success(), "{}", node.log());
    assert!(
        !node.log().contains("Some(") && !node.log().contains("None"),
        "logs are for people: {}",
        node.log()
    );
}

#[test]
fn a_store_that_can_never_be_there_is_refused() {
    let place = Place::new();
    let told = place
        .command(&["run", "--store", "local:/dev/null/x.db", "--group", "g", "--shards", "1", "--", "true"])
        .output()
        .unwrap();
    assert_eq!(told.status.code(), Some(3), "{}", String::from_utf8_lossy(&told.stderr));
}

#[test]
fn a_store_that_goes_away_for_long_stops_the_work_and_it_starts_again_by_itself() {
    let place = Place::new();
    let node = place.run("a", &["--ttl", "2s", "--shards", "2"], POLITE);
    place.wait_for_beats("a", 2);
    let lock = rusqlite::Connection::open(place.path().join("x.db")).unwrap();
    lock.busy_timeout(Duration::from_secs(10)).unwrap();
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    node.wait_for_log("to=detached");
    let before = place.pids("a");
    crate::supervisor::gone_at(&before);
    drop(lock);
    wait_for("the work starts again", PATIENCE, || (place.pids("a").len() >= before.len() + 2).then_some(()));
    place.assert_no_overlap();
}

#[test]
fn a_store_that_is_replaced_by_an_empty_one_ends_in_a_clean_new_start() {
    let place = Place::new();
    let flags =
        ["--ttl", "2s", "--ttl-max", "2s", "--shards", "2", "--cooldown", "100ms", "--min-run", "100ms"];
    let (a, _b) = (place.run("a", &flags, POLITE), place.run("b", &flags, POLITE));
    wait_for("both nodes run a shard", PATIENCE, || {
        let nodes: Vec<String> =
            place.beats().values().map(|beats| beats.last().unwrap().node.clone()).collect();
        (nodes.contains(&"a".to_owned()) && nodes.contains(&"b".to_owned())).then_some(())
    });
    let epochs = |place: &Place| -> Vec<u64> {
        place.beats().values().map(|beats| beats.last().unwrap().epoch).collect()
    };
    let before = epochs(&place);
    for file in ["x.db", "x.db-wal", "x.db-shm"] {
        let _ = fs::remove_file(place.path().join(file));
    }
    a.wait_for_log("to=detached");
    wait_for("both shards run again, under higher epochs", PATIENCE, || {
        epochs(&place).iter().zip(&before).all(|(after, before)| after > before).then_some(())
    });
    place.assert_no_overlap();
}
