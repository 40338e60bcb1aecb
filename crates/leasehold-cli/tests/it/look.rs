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
fn a_key_is_registered_for_as_long_as_its_process_lives() {
    let place = Place::new();
    let mut keeper =
        place.command(&["register", "services/a", "10.0.0.1:80"]).stderr(Stdio::null()).spawn().unwrap();
    wait_for("the key is there", PATIENCE, || {
        place.stdout(&["keys"]).contains("services/a  10.0.0.1:80").then_some(())
    });
    send(keeper.id(), Signal::SIGTERM);
    assert!(keeper.wait().unwrap().success());
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
