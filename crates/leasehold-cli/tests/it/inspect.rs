//! Commands that go on: watching, registering; and those for shells.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::mpsc;
use std::time::Duration;

use leasehold_servers::{Program, RedisServer};
use nix::sys::signal::Signal;

use crate::process::{send, wait_for};
use crate::supervisor::{PATIENCE, POLITE, STUBBORN, Sandbox};

#[test]
fn a_watch_prints_every_change_as_a_line_of_json() {
    let place = Sandbox::new();
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
    let place = Sandbox::new();
    let mut node = place.run("a", &["--ttl", "60s", "--shards", "2"], POLITE);
    place.wait_for_beats("a", 2);
    let status = place.stdout(&["status"]);
    assert!(status.starts_with("1 live node, 2 shards, 2 held\n"), "{status}");
    assert!(status.contains("s ago (its clock)"), "one look shows no renewal: {status}");
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
fn a_reader_that_lost_the_store_says_so_and_paints_every_second() {
    let Some(server) = RedisServer::start(Program::Redis) else { return };
    let (place, url) = (Sandbox::new(), server.address());
    let _a = place.run("a", &["--store", &url, "--ttl", "10s", "--shards", "2"], POLITE);
    place.wait_for_beats("a", 2);
    let mut watch =
        place.command(&["status", "--watch", "--store", &url]).stdout(Stdio::piped()).spawn().unwrap();
    let (sender, lines) = mpsc::channel();
    let out = BufReader::new(watch.stdout.take().unwrap());
    let reader = std::thread::Builder::new().spawn(move || {
        out.lines().map_while(Result::ok).for_each(|line| drop(sender.send(line)));
    });
    let next = |what: &str, is_it: &dyn Fn(&str) -> bool| {
        wait_for(what, PATIENCE, || {
            lines.recv_timeout(Duration::from_millis(50)).ok().filter(|line| is_it(line))
        })
    };
    let first = next("the time", &|line| line.ends_with(" UTC"));
    let second = next("a second picture", &|line| line.ends_with(" UTC"));
    assert_ne!(first, second, "every picture has its time");
    drop(server);
    let lost = next("it says so", &|line| line.starts_with("STORE UNREACHABLE since "));
    assert!(lost.contains(" UTC; data is "), "{lost}");
    let age = |line: &str| {
        line.split_once("data is ").unwrap().1.split(' ').next().unwrap().parse::<u32>().unwrap()
    };
    next("it keeps saying so", &|line| {
        line.starts_with("STORE UNREACHABLE since ") && age(line) > age(&lost)
    });
    let headline = next("what was known stays", &|line| line.contains(" live node"));
    assert!(!headline.contains("silent"), "who hears nobody calls nobody silent: {headline}");
    send(watch.id(), Signal::SIGKILL);
    watch.wait().unwrap();
    reader.unwrap().join().unwrap();
}

#[test]
fn scripts_can_wait_for_what_operators_ask() {
    let place = Sandbox::new();
    // Nothing is there yet.
    let mut waiting = place.command(&["wait", "--owned", "--quiet"]).spawn().unwrap();
    let flags = ["--ttl", "2s", "--shards", "4", "--cooldown", "100ms", "--min-run", "100ms"];
    let _a = place.run("a", &flags, POLITE);
    assert!(waiting.wait().unwrap().success());
    let _b = place.run("b", &flags, POLITE);
    assert_eq!(place.stdout(&["wait", "--node", "b", "attached"]), "node b is attached\n");
    assert!(place.leasehold(&["status", "--check"]).status.success());
    let drained = place.stdout(&["drain", "a", "--wait"]);
    assert!(drained.ends_with("done\n"), "{drained}");
    assert_eq!(place.stdout(&["shards", "--node", "a"]), "no shards\n");
    assert!(place.leasehold(&["undrain", "a"]).status.success());
    assert!(place.stdout(&["pin", "g/1", "a", "--wait"]).ends_with("done\n"));
    let epoch = || -> u64 {
        let json: serde_json::Value =
            serde_json::from_str(&place.stdout(&["explain", "1", "--json"])).unwrap();
        assert_eq!(json["holder"], "a");
        json["epoch"].as_u64().unwrap()
    };
    let before = epoch();
    assert!(place.stdout(&["release", "1", "--wait"]).ends_with("done\n"));
    assert!(epoch() > before);
    let refused = place.leasehold(&["group", "set", "g", "shards=6"]);
    let told = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(2), "{told}");
    assert!(told.contains(" of 1000 sample keys would move to other shards; nothing was changed"), "{told}");
    assert!(place.leasehold(&["group", "set", "g", "shards=6", "--yes", "--wait"]).status.success());
    assert_eq!(place.stdout(&["shards", "--state", "held"]).lines().count(), 7);
    let late = place.leasehold(&["wait", "--node", "b", "gone", "--timeout", "300ms"]);
    assert_eq!(late.status.code(), Some(8), "{}", String::from_utf8_lossy(&late.stderr));
}

/// No kernel proves anything of a process on another machine: all that one look has is what its clock said.
#[test]
fn a_cluster_whose_nodes_are_all_dead_is_no_cluster_without_problems() {
    let Some(server) = RedisServer::start(Program::Redis) else { return };
    let (place, url) = (Sandbox::new(), server.address());
    let mut node = place.run("a", &["--store", &url, "--ttl", "4s", "--shards", "2"], POLITE);
    place.wait_for_beats("a", 2);
    let status = place.stdout(&["status", "--store", &url]);
    assert!(status.starts_with("1 live node, 2 shards, 2 held\n"), "{status}");
    assert!(status.contains("no problems"), "{status}");
    node.signal(Signal::SIGKILL);
    node.end();
    let status = wait_for("one look gives an alarm", PATIENCE, || {
        let status = place.stdout(&["status", "--store", &url]);
        (!status.contains("no problems")).then_some(status)
    });
    assert!(status.starts_with("1 live node (1 silent), 2 shards, 2 held (2 at risk)\n"), "{status}");
    assert!(status.lines().any(|line| line.starts_with("a     silent  silent ")), "{status}");
    assert!(status.contains("silent_node a: silent ") && status.contains(" s of 4.0 s"), "{status}");
    assert!(status.contains("2 shards at risk, and no other live node serves its groups"), "{status}");
    assert!(place.stdout(&["shards", "--store", &url]).contains("held, at risk"));
    let check = place.leasehold(&["status", "--check", "--quiet", "--store", &url]);
    let told = String::from_utf8(check.stderr).unwrap();
    assert_eq!((check.status.code(), check.stdout.len()), (Some(6), 0), "{told}");
    assert!(told.contains("an operator is needed: node a renewed "), "{told}");
    let patient = place.leasehold(&["status", "--check", "--max-age", "1h", "--store", &url]);
    assert_eq!(patient.status.code(), Some(0), "{}", String::from_utf8_lossy(&patient.stderr));
}

#[test]
fn why_a_shard_has_not_moved_and_work_that_does_not_stop_are_seen_from_outside() {
    let place = Sandbox::new();
    let flags = ["--ttl", "2s", "--shards", "2", "--stop-timeout", "300ms", "--kill-after", "60s"];
    let _a = place.run("a", &flags, STUBBORN);
    place.wait_for_beats("a", 2);
    assert!(place.leasehold(&["freeze", "--note", "audit"]).status.success());
    let _b = place.run("b", &flags, STUBBORN);
    let shard = wait_for("a shard is wanted on b", PATIENCE, || {
        let json: serde_json::Value = serde_json::from_str(&place.stdout(&["shards", "--json"])).ok()?;
        let wanted = json.as_array()?.iter().find(|shard| shard["wanted"] == "b")?;
        Some(format!("g/{}", wanted["shard"].as_str()?))
    });
    let because = "it has not moved because voluntary moves are frozen: audit";
    wait_for("its holder tells why", PATIENCE, || {
        place.stdout(&["explain", &shard]).contains(because).then_some(())
    });
    assert!(place.leasehold(&["unfreeze"]).status.success());
    wait_for("it is shown as stuck", PATIENCE, || place.stdout(&["shards"]).contains("stuck").then_some(()));
    let status = place.stdout(&["status"]);
    assert!(status.contains(&format!("stuck {shard}: its work (epoch ")), "{status}");
    let explained = place.stdout(&["explain", &shard]);
    assert!(explained.contains("it has not moved because its work (epoch "), "{explained}");
    let repaired = place.stdout(&["repair", &shard]);
    assert!(repaired.contains("find out why, or kill its process"), "{repaired}");
    assert!(!repaired.contains("leasehold release"), "{repaired}");
}

#[test]
fn what_operators_asked_for_shows_everywhere() {
    let place = Sandbox::new();
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
    let place = Sandbox::new();
    let mut keeper =
        place.command(&["register", "services/a", "10.0.0.1:80"]).stderr(Stdio::null()).spawn().unwrap();
    wait_for("the key is there", PATIENCE, || {
        place.stdout(&["keys"]).contains("services/a  10.0.0.1:80").then_some(())
    });
    let second = place.leasehold(&["register", "services/a", "10.0.0.2:80"]);
    assert_eq!(second.status.code(), Some(5));
    let told = String::from_utf8(second.stderr).unwrap();
    assert!(told.contains("services/a is already registered with the value \"10.0.0.1:80\""), "{told}");
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
    assert_eq!(place.stdout(&["keys"]), "no registered keys\n");
}

#[test]
fn a_registered_key_does_not_speak_to_the_terminal_and_has_a_name() {
    let place = Sandbox::new();
    let (key, value) = ("a\nb\u{1b}[31m", "v\u{1b}[2J\nfake row");
    let mut keeper = place.command(&["register", key, value]).stderr(Stdio::null()).spawn().unwrap();
    let table = wait_for("the key is there", PATIENCE, || {
        Some(place.stdout(&["keys"])).filter(|table| table.starts_with("KEY"))
    });
    assert_eq!(table.lines().nth(1), Some(r"a\nb\u{1b}[31m  v\u{1b}[2J\nfake row"), "{table}");
    assert_eq!(table.lines().count(), 2, "{table}");
    let json: serde_json::Value = serde_json::from_str(&place.stdout(&["keys", "--json"])).unwrap();
    assert_eq!(json, serde_json::json!([{"key": key, "value": value}]), "programs get what is there");
    let second = place.leasehold(&["register", key, "x"]);
    assert!(!second.stderr.contains(&0x1b), "{}", String::from_utf8_lossy(&second.stderr));
    send(keeper.id(), Signal::SIGTERM);
    assert!(keeper.wait().unwrap().success());
    let nameless = place.leasehold(&["register", "", "x"]);
    assert_eq!(nameless.status.code(), Some(2));
    let told = String::from_utf8(nameless.stderr).unwrap();
    assert_eq!(told, "leasehold: the key is empty; nothing was registered\n");
}

#[test]
fn a_node_is_not_started_with_control_characters_in_what_others_see_of_it() {
    let place = Sandbox::new();
    let flags = ["run", "--group", "g", "--shards", "1", "--zone", "\u{1b}[31mred", "--address", "a\nb"];
    let refused = place.leasehold(&[&flags[..], &["--labels", "rack=\u{9b}2J", "--", "true"]].concat());
    let told = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(2), "{told}");
    assert!(told.contains(r#"--zone: "\u{1b}[31mred" contains a control character"#), "{told}");
    assert!(told.contains(r#"--address: "a\nb" contains a control character"#), "{told}");
    assert!(told.contains(r#"--labels: "rack=\u{9b}2J" contains a control character"#), "{told}");
}

#[test]
fn a_key_whose_lease_was_lost_is_registered_again_and_that_is_told() {
    let Some(server) = RedisServer::start(Program::Redis) else { return };
    let (place, url) = (Sandbox::new(), server.address());
    let log = place.path().join("log");
    let mut keeper = place
        .command(&["register", "services/a", "10.0.0.1:80", "--store", &url])
        .stderr(std::fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let is_there = || server.ask(&["GET", "{default}:key:services/a"]).text() == "10.0.0.1:80";
    wait_for("the key is there", PATIENCE, || is_there().then_some(()));
    server.ask(&["FLUSHALL"]);
    wait_for("the key is back", PATIENCE, || is_there().then_some(()));
    send(keeper.id(), Signal::SIGTERM);
    assert!(keeper.wait().unwrap().success());
    let told = std::fs::read_to_string(&log).unwrap();
    assert!(told.contains("the store dropped the lease of registered keys"), "{told}");
    assert!(server.ask(&["KEYS", "*"]).list().is_empty());
}

#[test]
fn who_only_looks_is_not_told_that_something_may_have_happened() {
    let url = format!("redis://127.0.0.1:{}", leasehold_servers::free_port());
    let told = Sandbox::new().leasehold(&["status", "--store", &url]);
    let words = String::from_utf8(told.stderr).unwrap();
    assert_eq!(told.status.code(), Some(3), "{words}");
    assert!(words.contains("reading the namespace failed; nothing was changed"), "{words}");
}

#[test]
fn shells_get_their_completions() {
    for shell in ["bash", "zsh", "fish"] {
        let script = Sandbox::new().stdout(&["completions", shell]);
        assert!(script.contains("unquarantine") && script.contains("what-if"), "{shell}");
    }
}

#[test]
fn a_memory_store_is_good_for_a_try() {
    for store in ["memory:", "memory:mine"] {
        let place = Sandbox::new();
        let script = "touch started; exec sleep 1000";
        let mut node = place.run("a", &["--store", store, "--ttl", "2s", "--shards", "1"], script);
        wait_for("the child starts", PATIENCE, || place.path().join("started").exists().then_some(()));
        node.signal(Signal::SIGTERM);
        assert!(node.end().success(), "{}", node.log());
        assert!(node.log().contains("exists only in this process"), "{}", node.log());
    }
}
