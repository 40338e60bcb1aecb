//! `leasehold register` with many keys, a file that changes, and `keys --watch`.

use std::fs::{self, File};
use std::process::{Child, Stdio};

use nix::sys::signal::Signal;

use crate::process::{send, wait_for};
use crate::supervisor::{PATIENCE, Sandbox};

/// A running command. Killed when it is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(place: &Sandbox, arguments: &[&str], output: &str) -> Running {
    let file = |end: &str| File::create(place.path().join(format!("{output}.{end}"))).unwrap();
    let mut command = place.command(arguments);
    Running(command.stdin(Stdio::null()).stdout(file("out")).stderr(file("log")).spawn().unwrap())
}

/// The leases of the store and how many keys each has, as the database has them.
fn leases(place: &Sandbox) -> Vec<(i64, i64)> {
    let database = rusqlite::Connection::open(place.path().join("x.db")).unwrap();
    let sql =
        "SELECT ttl_ms, (SELECT count(*) FROM keys WHERE keys.lease = leases.lease) FROM leases ORDER BY 1";
    let mut statement = database.prepare(sql).unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    rows.map(Result::unwrap).collect()
}

#[test]
fn many_keys_share_a_lease_for_each_ttl_and_follow_a_file() {
    let place = Sandbox::new();
    let file = place.path().join("keys");
    fs::write(&file, "c=3\n[ttl 60s]\nd=4\n").unwrap();
    let arguments = ["register", "a", "1", "b", "2", "--file", "keys", "--ttl", "20s", "--retry", "100ms,1s"];
    let mut keeper = start(&place, &arguments, "keeper");
    let keys = || place.stdout(&["keys"]);
    let rows = |text: &str| {
        text.lines()
            .skip(1)
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join("="))
            .collect::<Vec<_>>()
    };
    wait_for("all are there", PATIENCE, || (rows(&keys()) == ["a=1", "b=2", "c=3", "d=4"]).then_some(()));
    assert_eq!(leases(&place), [(20_000, 3), (60_000, 1)]);

    let watcher = start(&place, &["keys", "--watch", "--json"], "watch");
    fs::write(&file, "c=33\ne=5\n").unwrap();
    wait_for("the file is followed", PATIENCE, || {
        (rows(&keys()) == ["a=1", "b=2", "c=33", "e=5"]).then_some(())
    });
    wait_for("the last key of a lease took it along", PATIENCE, || {
        (leases(&place) == [(20_000, 4)]).then_some(())
    });
    wait_for("the watcher saw it", PATIENCE, || {
        let text = fs::read_to_string(place.path().join("watch.out")).unwrap();
        text.lines().last().is_some_and(|line| line.contains(r#"{"key":"e","value":"5"}"#)).then_some(())
    });
    fs::write(&file, "nonsense\n").unwrap();
    wait_for("a mistake changes nothing", PATIENCE, || {
        let told = fs::read_to_string(place.path().join("keeper.log")).unwrap();
        told.contains("keeping the previous ones").then_some(())
    });
    assert_eq!(rows(&keys()).len(), 4);

    let second = place.leasehold(&["register", "a", "x", "b", "x", "f", "x"]);
    let told = String::from_utf8(second.stderr).unwrap();
    assert_eq!(second.status.code(), Some(5), "{told}");
    assert!(told.contains("a is already registered") && told.contains("b is already registered"), "{told}");
    assert!(!keys().contains('f'), "all or nothing");

    drop(watcher);
    send(keeper.0.id(), Signal::SIGTERM);
    assert!(wait_for("it ends", PATIENCE, || keeper.0.try_wait().unwrap()).success());
    assert_eq!((keys().as_str(), leases(&place)), ("no registered keys\n", vec![]));
}

#[test]
fn mistakes_are_told_before_anything_is_registered() {
    let place = Sandbox::new();
    fs::write(place.path().join("bad"), "x\n[ttl 1ms]\n").unwrap();
    for (arguments, told) in [
        (&["register"][..], "no keys"),
        (&["register", "a"], "the key \"a\" has no value"),
        (&["register", "a", "1", "a", "2"], "the key \"a\" is given twice"),
        (&["register", "--file", "nowhere"], "cannot read nowhere"),
        (&["register", "--file", "bad"], "bad:1: \"x\" is not KEY=VALUE\n  bad:2: "),
        (&["register", "a", "1", "--ttl", "5"], "add a unit"),
        (&["register", "a", "1", "--ttl", "10ms"], "registry.ttl"),
    ] {
        let output = place.leasehold(arguments);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {text}");
        assert!(text.contains(told), "{arguments:?}: {text}");
        assert!(!place.path().join("x.db").exists(), "{arguments:?}");
    }
}
