//! Commands that go on: watching, registering; and those for shells.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::mpsc;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::process::{send, wait_for};
use crate::supervisor::{PATIENCE, POLITE, Place};

#[test]
fn a_watch_prints_every_change_as_a_line_of_json() {
    let place = Place::new();
    let _a = place.run("a", &["--ttl", "2s", "--shards", "2"], POLITE);
    place.wait_for_beats("a", 2);
    let mut watch = place.command(&["nodes", "--watch", "--json"]).stdout(Stdio::piped()).spawn().unwrap();
    let (sender, lines) = mpsc::channel();
    let out = BufReader::new(watch.stdout.take().unwrap());
    let reader = std::thread::Builder::new().spawn(move || {
        out.lines().map_while(Result::ok).for_each(|line| drop(sender.send(line)));
    });
    let nodes =
        |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap().as_array().unwrap().len();
    assert_eq!(nodes(&lines.recv_timeout(PATIENCE).unwrap()), 1);
    let _b = place.run("b", &["--ttl", "2s", "--shards", "2"], POLITE);
    wait_for("the second node is told of", PATIENCE, || {
        lines.recv_timeout(Duration::from_millis(50)).ok().filter(|line| nodes(line) == 2)
    });
    send(watch.id(), Signal::SIGKILL);
    watch.wait().unwrap();
    reader.unwrap().join().unwrap();
}

#[test]
fn a_lone_node_that_was_killed_is_shown_as_gone() {
    let place = Place::new();
    let mut node = place.run("a", &["--ttl", "60s", "--shards", "2"], POLITE);
    place.wait_for_beats("a", 2);
    let status = place.stdout(&["status"]);
    assert!(status.starts_with("1 live node, 2 shards, 2 held\n"), "{status}");
    assert!(status.contains("active  not seen yet"), "one look shows no renewal: {status}");
    node.signal(Signal::SIGKILL);
    node.end();
    // Its children hold the lock too, until their guards have killed them.
    let status = wait_for("it is shown as gone", PATIENCE, || {
        Some(place.stdout(&["status"])).filter(|status| status.contains("0 live nodes, 2 shards, 0 held"))
    });
    assert!(status.contains("gone_node a: its process is gone"), "{status}");
    let json: serde_json::Value = serde_json::from_str(&place.stdout(&["status", "--json"])).unwrap();
    assert_eq!(json["nodes"][0]["state"], "gone");
    assert_eq!(json["shards"][0]["state"], "unowned");
    assert_eq!(json["shards"][0]["holder"], serde_json::Value::Null);
}

#[test]
fn what_operators_asked_for_shows_everywhere() {
    let place = Place::new();
    let flags = ["--ttl", "2s", "--shards", "2"];
    let _a = place.run("a", &[&flags[..], &["--labels", "rack=7,owner=ops"]].concat(), POLITE);
    place.wait_for_beats("a", 2);
    assert!(place.leasehold(&["pin", "g/1", "a"]).status.success());
    assert!(place.stdout(&["status"]).contains("pinned: g/1 to a\n"));
    let shards = place.stdout(&["shards"]);
    assert!(shards.lines().any(|line| line.starts_with("g/1 ") && line.ends_with("a       a")), "{shards}");
    let json =
        |arguments: &[&str]| serde_json::from_str::<serde_json::Value>(&place.stdout(arguments)).unwrap();
    assert_eq!(json(&["status", "--json"])["shards"][1]["pinned_to"], "a");
    assert_eq!(json(&["nodes", "--json"])[0]["labels"], serde_json::json!({"rack": "7", "owner": "ops"}));
    assert_eq!(json(&["nodes", "--json"])[0]["state"], "active");
    assert!(place.leasehold(&["drain", "a"]).status.success());
    // Nobody else is there, so it keeps what it has.
    assert_eq!(json(&["nodes", "--json"])[0]["state"], "draining");
    let _b = place.run("b", &flags, POLITE);
    wait_for("it is drained", PATIENCE, || {
        (json(&["nodes", "--json"])[0]["state"] == "drained").then_some(())
    });
}

#[test]
fn a_key_is_registered_for_as_long_as_its_process_lives() {
    let place = Place::new();
    let mut keeper =
        place.command(&["register", "services/a", "10.0.0.1:80"]).stderr(Stdio::null()).spawn().unwrap();
    wait_for("the key is there", PATIENCE, || {
        place.stdout(&["keys"]).contains("services/a  10.0.0.1:80").then_some(())
    });
    let second = place.leasehold(&["register", "services/a", "10.0.0.2:80"]);
    assert_eq!(second.status.code(), Some(5));
    let told = String::from_utf8(second.stderr).unwrap();
    assert!(told.contains("services/a is registered already, with the value \"10.0.0.1:80\""), "{told}");
    let mut heir = place
        .command(&["register", "services/a", "10.0.0.2:80", "--overwrite"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_for("the key is taken over", PATIENCE, || {
        place.stdout(&["keys"]).contains("services/a  10.0.0.2:80").then_some(())
    });
    send(keeper.id(), Signal::SIGTERM);
    assert!(keeper.wait().unwrap().success());
    assert!(
        place.stdout(&["keys"]).contains("services/a  10.0.0.2:80"),
        "the former keeper removes only its own"
    );
    send(heir.id(), Signal::SIGTERM);
    assert!(heir.wait().unwrap().success());
    assert_eq!(place.stdout(&["keys"]), "there are no registered keys\n");
}

#[test]
fn shells_get_their_completions() {
    for shell in ["bash", "zsh", "fish"] {
        let script = Place::new().stdout(&["completions", shell]);
        assert!(script.contains("unquarantine") && script.contains("what-if"), "{shell}");
    }
}

#[test]
fn a_memory_store_is_good_for_a_try() {
    let place = Place::new();
    let script = "touch started; exec sleep 1000";
    let mut node = place.run("a", &["--store", "memory:", "--ttl", "2s", "--shards", "1"], script);
    wait_for("the child starts", PATIENCE, || place.path().join("started").exists().then_some(()));
    node.signal(Signal::SIGTERM);
    assert!(node.end().success(), "{}", node.log());
}
