//! `leasehold demo`, with and without a terminal.

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc;

use nix::sys::signal::Signal;

use crate::process::{LEASEHOLD, send, terminal, to_its_end};
use crate::supervisor::PATIENCE;

#[test]
fn the_demo_breaks_things_heals_and_sees_no_double_owner() {
    let output = to_its_end(Command::new(LEASEHOLD).args(["demo", "--for", "8s", "--shards", "16"]));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    for part in [
        "starting 3 nodes",
        "d joins",
        "killed with SIGKILL",
        "SIGSTOP",
        "stopped gracefully",
        "double owners seen by the workers: 0",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    assert!(!text.contains("timed out"), "{text}");
}

#[test]
fn a_short_demo_begins_nothing_that_takes_longer() {
    let arguments = ["demo", "--for", "4s", "--ttl", "10s", "--shards", "8"];
    let output = to_its_end(Command::new(LEASEHOLD).args(arguments));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(!text.contains("SIGSTOP"), "a lease of 10 s does not run out in 4 s: {text}");
    assert_eq!(text.matches("skipping the remaining steps").count(), 1, "{text}");
}

#[test]
fn the_demo_in_a_terminal_says_how_many_nodes_start() {
    let (mut screen, terminal) = terminal(120);
    let mut demo = Command::new(LEASEHOLD)
        .args(["demo", "--for", "1s", "--nodes", "2", "--shards", "8"])
        .stdin(terminal.try_clone().unwrap())
        .stdout(terminal.try_clone().unwrap())
        .stderr(terminal)
        .spawn()
        .unwrap();
    let mut shown = Vec::new();
    // Reading fails when nobody has the terminal open any more.
    let _ = screen.read_to_end(&mut shown);
    let shown = String::from_utf8_lossy(&shown);
    assert!(demo.wait().unwrap().success(), "{shown}");
    assert!(shown.contains("starting 2 nodes; press k"), "{shown}");
}

#[test]
fn nothing_is_said_to_have_been_done_to_a_node_that_is_not_there() {
    let (mut screen, terminal) = terminal(120);
    let mut demo = Command::new(LEASEHOLD)
        .args(["demo", "--for", "30s", "--nodes", "2", "--shards", "8"])
        .stdin(terminal.try_clone().unwrap())
        .stdout(terminal.try_clone().unwrap())
        .stderr(terminal)
        .spawn()
        .unwrap();
    let mut keys = screen.try_clone().unwrap();
    let (sender, pieces) = mpsc::channel();
    let reader = std::thread::Builder::new().spawn(move || {
        let mut piece = [0; 4096];
        while let Ok(count @ 1..) = screen.read(&mut piece) {
            let _ = sender.send(piece[..count].to_vec());
        }
    });
    let mut shown = Vec::new();
    let mut wait_for = |text: &str| {
        while !String::from_utf8_lossy(&shown).contains(text) {
            shown.extend(pieces.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{text:?} is not shown")));
        }
    };
    wait_for("starting 2 nodes");
    for (key, said) in [("k", "killed a"), ("p", "a is not running: press k to start it")] {
        keys.write_all(key.as_bytes()).unwrap();
        wait_for(said);
    }
    keys.write_all(b"dq").unwrap();
    wait_for("double owners seen by the workers: 0");
    assert!(demo.wait().unwrap().success());
    drop(keys);
    reader.unwrap().join().unwrap();
    shown.extend(pieces.iter().flatten());
    let shown = String::from_utf8_lossy(&shown);
    assert!(!shown.contains("paused a") && !shown.contains("stopping a"), "{shown}");
}

#[test]
fn a_terminal_that_can_draw_nothing_gets_the_plain_run() {
    let (mut screen, terminal) = terminal(120);
    let mut demo = Command::new(LEASEHOLD)
        .args(["demo", "--for", "1s", "--nodes", "2", "--shards", "8"])
        .env("TERM", "dumb")
        .stdin(terminal.try_clone().unwrap())
        .stdout(terminal.try_clone().unwrap())
        .stderr(terminal)
        .spawn()
        .unwrap();
    let mut shown = Vec::new();
    let _ = screen.read_to_end(&mut shown);
    let shown = String::from_utf8_lossy(&shown);
    assert!(demo.wait().unwrap().success(), "{shown}");
    assert!(shown.contains("each a separate process") && !shown.contains('\u{1b}'), "{shown}");
}

#[test]
fn a_demo_whose_terminal_goes_leaves_nothing_behind() {
    let folder = tempfile::TempDir::new().unwrap();
    let mut demo = Command::new(LEASEHOLD)
        .args(["demo", "--for", "60s", "--shards", "8"])
        .env("TMPDIR", folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = demo.stdout.take().unwrap();
    assert_eq!(out.read(&mut [0]).unwrap(), 1, "it says that it starts");
    // Nobody reads what it says last.
    drop(out);
    send(demo.id(), Signal::SIGHUP);
    assert!(demo.wait().unwrap().success());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
