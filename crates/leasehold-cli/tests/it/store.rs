//! `leasehold run` when its store is not there, goes away, or is replaced.

use std::fs;
use std::process::Command;
use std::time::Duration;

use leasehold_servers::{Program, RedisServer, S3Server};
use nix::sys::signal::Signal;

use crate::process::{LEASEHOLD, send, to_its_end, wait_for};
use crate::supervisor::{PATIENCE, POLITE, Sandbox};

#[test]
fn a_store_that_is_busy_at_the_start_is_waited_for() {
    let place = Sandbox::new();
    let lock = rusqlite::Connection::open(place.path().join("x.db")).unwrap();
    lock.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let mut node = place.run("a", &["--ttl", "2s", "--shards", "2"], POLITE);
    node.wait_for_log("the store is not reachable; retrying until it is");
    assert!(place.pids("a").is_empty());
    drop(lock);
    place.wait_for_beats("a", 2);
    node.wait_for_log("the store is reachable");
    node.signal(Signal::SIGTERM);
    assert!(node.end().success(), "{}", node.log());
}

#[test]
fn a_folder_that_is_not_there_at_the_start_is_waited_for() {
    let place = Sandbox::new();
    let mut node = place.run("a", &["--ttl", "2s", "--shards", "2", "--store", "local:mount/x.db"], POLITE);
    node.wait_for_log("the store is not reachable; retrying until it is");
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
    let place = Sandbox::new();
    let flags = ["run", "--store", "local:/dev/null/x.db", "--group", "g", "--shards", "1", "--", "true"];
    let told = place.leasehold(&flags);
    assert_eq!(told.status.code(), Some(3), "{}", String::from_utf8_lossy(&told.stderr));
}

#[test]
fn a_key_that_was_never_registered_is_no_success() {
    let place = Sandbox::new();
    // Nobody listens there.
    let flags = ["register", "--store", "etcd://127.0.0.1:1", "--overwrite", "svc/a", "1"];
    let log = place.path().join("register.log");
    let mut registrant = place.command(&flags).stderr(fs::File::create(&log).unwrap()).spawn().unwrap();
    let words = || fs::read_to_string(&log).unwrap();
    wait_for("a try fails", PATIENCE, || words().contains("not registered; retrying").then_some(()));
    send(registrant.id(), Signal::SIGINT);
    assert_eq!(registrant.wait().unwrap().code(), Some(3), "{}", words());
    assert!(words().contains("leasehold: svc/a was not registered: "), "{}", words());
}

#[test]
fn addresses_that_no_store_understands_are_a_mistake_everywhere() {
    let place = Sandbox::new();
    let commands: [&[&str]; 6] = [
        &["status"],
        &["keys"],
        &["register", "a", "1"],
        &["group", "set", "g", "shards=4"],
        &["repair"],
        &["check", "--for", "1s"],
    ];
    let addresses = [
        "etcd://",
        "etcd://127.0.0.1:99999",
        "etcd://127.0.0.1?nosuch=1",
        "redis://127.0.0.1/abc",
        "s3://Not_A_Bucket",
    ];
    for url in addresses {
        for command in commands {
            let told = place.leasehold(&[command, &["--store", url]].concat());
            let words = String::from_utf8(told.stderr).unwrap();
            assert_eq!(told.status.code(), Some(2), "{command:?} {url}: {words}");
            assert!(words.contains("--store"), "{command:?} {url}: {words}");
        }
    }
    let told = place.leasehold(&["status", "--store", "redis://127.0.0.1:1"]);
    assert_eq!(told.status.code(), Some(3), "{}", String::from_utf8_lossy(&told.stderr));
}

#[test]
fn a_store_whose_locks_this_user_cannot_write_is_refused_at_the_start() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::os::unix::process::CommandExt;
    let place = Sandbox::new();
    let mut node = place.run("a", &["--ttl", "2s", "--shards", "1"], POLITE);
    place.wait_for_beats("a", 1);
    node.signal(Signal::SIGTERM);
    assert!(node.end().success(), "{}", node.log());
    let allow = |name: &str, mode| {
        fs::set_permissions(place.path().join(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    [("", 0o777), ("x.db", 0o666), ("x.db-live", 0o555)]
        .into_iter()
        .for_each(|(name, mode)| allow(name, mode));
    let flags = ["run", "--node", "b", "--group", "g", "--shards", "1", "--ttl", "2s", "--", "sleep", "60"];
    let mut command = Command::new(LEASEHOLD);
    command.args(flags).current_dir(place.path()).env("LEASEHOLD_STORE", "local:x.db");
    if place.path().metadata().unwrap().uid() == 0 {
        // Nobody refuses root anything.
        command.uid(65534).gid(65534);
    }
    let told = to_its_end(&mut command);
    allow("x.db-live", 0o755);
    if told.status.code() == Some(126) {
        // This program lies where that user cannot come.
        return;
    }
    let words = String::from_utf8(told.stderr).unwrap();
    assert_eq!(told.status.code(), Some(3), "{words}");
    assert!(words.contains("x.db-live writable"), "{words}");
}

#[test]
fn a_store_that_goes_away_for_long_stops_the_work_and_it_starts_again_by_itself() {
    let place = Sandbox::new();
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
    let place = Sandbox::new();
    let flags =
        ["--ttl", "2s", "--ttl-max", "2s", "--shards", "2", "--cooldown", "100ms", "--min-run", "100ms"];
    let (a, _b) = (place.run("a", &flags, POLITE), place.run("b", &flags, POLITE));
    wait_for("both nodes run a shard", PATIENCE, || {
        let nodes: Vec<String> =
            place.beats().values().map(|beats| beats.last().unwrap().node.clone()).collect();
        (nodes.contains(&"a".to_owned()) && nodes.contains(&"b".to_owned())).then_some(())
    });
    let epochs = |place: &Sandbox| -> Vec<u64> {
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

/// `doctor` tries writes out, and needs no more rights for that than the nodes of the namespace have.
#[test]
fn a_doctor_is_content_with_the_rights_that_the_documentation_names() {
    let Some(server) = RedisServer::start(Program::Redis) else { return };
    let text = include_str!("../../../../docs/redis.md");
    let rights = text.lines().find(|line| line.starts_with("ACL SETUSER leasehold ")).unwrap();
    assert_eq!(server.ask(&rights.split_whitespace().collect::<Vec<_>>()).text(), "OK");
    let url = format!("redis://leasehold:secret@127.0.0.1:{}", server.port);
    let place = Sandbox::new();
    let node = place.run("a", &["--store", &url, "--namespace", "work", "--shards", "2"], POLITE);
    place.wait_for_beats("a", 2);
    let keys = || server.ask(&["KEYS", "*"]).list().len();
    let before = keys();
    let told = place.leasehold(&["doctor", "--store", &url, "--namespace", "work"]);
    let words = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(told.status.success(), "{words}");
    assert!(words.contains("conditional writes work") && !words.contains("remain"), "{words}");
    assert_eq!(keys(), before, "nothing of it is left");
    assert!(!node.log().contains("detached"), "{}", node.log());
}

/// Nodes on a bucket that breaks its word would hold shards twice, and none of them must wait for it to mend its ways.
#[test]
fn a_bucket_that_ignores_conditions_ends_a_node_at_its_start() {
    let Some(server) = S3Server::start(Program::Rclone) else { return };
    server.make_bucket("work");
    let place = Sandbox::new();
    let mut node = place.run("a", &["--store", &server.address("work", ""), "--shards", "2"], POLITE);
    assert_eq!(node.end().code(), Some(3), "{}", node.log());
    assert!(node.log().contains("must not be used"), "{}", node.log());
    assert!(place.pids("a").is_empty());
    let told = place.leasehold(&["register", "k", "v", "--store", &server.address("work", "")]);
    assert_eq!(told.status.code(), Some(3), "{}", String::from_utf8_lossy(&told.stderr));
}

/// The test of a bucket may take longer than another process needs to register the key.
#[test]
fn a_key_that_was_registered_during_the_check_of_a_bucket_is_left_alone() {
    let Some(server) = S3Server::start(Program::SeaweedFs) else { return };
    server.make_bucket("work");
    let (place, address) = (Sandbox::new(), server.address("work", ""));
    let log = place.path().join("second.log");
    let mut command = place.command(&["register", "k", "second", "--store", &address]);
    let mut second = command.stderr(fs::File::create(&log).unwrap()).spawn().unwrap();
    // It has begun its check, which is many writes long, and stands still in the middle of it.
    wait_for("its check begins", PATIENCE, || {
        (!server.objects("work", "leasehold/leasehold-probe").is_empty()).then_some(())
    });
    send(second.id(), Signal::SIGSTOP);
    let mut first = place.command(&["register", "k", "first", "--store", &address]).spawn().unwrap();
    wait_for("the first has its key", PATIENCE, || {
        place.stdout(&["keys", "--store", &address]).contains("first").then_some(())
    });
    send(second.id(), Signal::SIGCONT);
    let ended = wait_for("the second is refused", PATIENCE, || second.try_wait().unwrap());
    first.kill().unwrap();
    first.wait().unwrap();
    let told = fs::read_to_string(&log).unwrap();
    assert_eq!(ended.code(), Some(5), "{told}");
    assert!(told.contains("\"first\""), "{told}");
    // The long wait was explained.
    assert!(told.contains("testing whether the bucket"), "{told}");
}
