//! `leasehold run` with a child for every shard.

use std::fs;
use std::io::Write;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::freezer::Freezer;
use crate::process::{now_ns, runs, send, wait_for};
use crate::supervisor::{PATIENCE, POLITE, STUBBORN, Sandbox, gone_at};

const FAST: &[&str] = &["--ttl", "2s", "--shards", "3"];

#[test]
fn each_child_knows_its_shard_and_its_output_is_marked() {
    let place = Sandbox::new();
    let script = "echo \"$LEASEHOLD_NAMESPACE $LEASEHOLD_GROUP $LEASEHOLD_SHARD $LEASEHOLD_EPOCH $LEASEHOLD_NODE {group}/{shard}@{epoch}\"; \
        echo oops >&2; printf unfinished; exec sleep 1000";
    let mut node = place.run("a", FAST, script);
    let out = place.path().join("a.out");
    wait_for("all children print", PATIENCE, || {
        let text = fs::read_to_string(&out).unwrap();
        (0..3).all(|n| text.contains(&format!("g/{n} | default g {n} 1 a g/{n}@1\n"))).then_some(())
    });
    wait_for("errors are passed on", PATIENCE, || node.log().contains("g/0 | oops\n").then_some(()));
    node.signal(Signal::SIGTERM);
    assert!(node.end().success(), "{}", node.log());
    assert!(fs::read_to_string(&out).unwrap().contains("g/1 | unfinished\n"));
    assert!(place.stdout(&["status"]).contains("0 held"));
}

#[test]
fn a_closed_terminal_drains_unless_it_is_to_be_outlived() {
    let place = Sandbox::new();
    let mut node = place.run("a", FAST, POLITE);
    place.wait_for_beats("a", 3);
    node.signal(Signal::SIGHUP);
    assert!(node.end().success(), "{}", node.log());
    assert!(place.stdout(&["status"]).contains("0 held"));

    // As `nohup` does it; the log of the next signal comes after whatever the first one did.
    let inner = place.command(&["run", "--node", "b", "--group", "g"]);
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "trap '' HUP; exec \"$0\" \"$@\""]).arg(inner.get_program()).args(inner.get_args());
    command.args(FAST).args(["--", "sh", "-c", POLITE]).current_dir(place.path());
    command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let log = place.path().join("b.log");
    let mut node = command.stderr(fs::File::create(&log).unwrap()).spawn().unwrap();
    place.wait_for_beats("b", 3);
    send(node.id(), Signal::SIGHUP);
    assert!(place.leasehold(&["release", "g/0"]).status.success());
    wait_for("it goes on", PATIENCE, || {
        let epochs = place.beats().get("0").map_or(0, Vec::len);
        (epochs >= 3).then_some(())
    });
    assert!(!fs::read_to_string(&log).unwrap().contains("draining"));
    send(node.id(), Signal::SIGTERM);
    assert!(node.wait().unwrap().success());
}

#[test]
fn the_password_of_the_store_is_not_handed_on() {
    let place = Sandbox::new();
    let script = "env > seen.$$; mv seen.$$ seen; exec sleep 1000";
    let mut command = place.command(&["run", "--node", "a", "--group", "g", "--new-namespace"]);
    command.args(FAST).args(["--", "sh", "-c", script]);
    let mut node = command.env("LEASEHOLD_STORE_PASSWORD", "hush-hush").spawn().unwrap();
    let seen = wait_for("the child runs", PATIENCE, || fs::read_to_string(place.path().join("seen")).ok());
    send(node.id(), Signal::SIGTERM);
    assert!(node.wait().unwrap().success());
    assert!(seen.contains("LEASEHOLD_STORE=local:x.db") && !seen.contains("hush-hush"), "{seen}");
}

#[test]
fn an_address_with_a_password_is_not_handed_on() {
    let place = Sandbox::new();
    let script = "env > seen.$$; mv seen.$$ seen; exec sleep 1000";
    let mut command =
        place.command(&["run", "--store", "local:x.db", "--node", "a", "--group", "g", "--new-namespace"]);
    command.args(FAST).args(["--", "sh", "-c", script]);
    let mut node = command.env("LEASEHOLD_STORE", "redis://:hush-hush@127.0.0.1:1/0").spawn().unwrap();
    let seen = wait_for("the child runs", PATIENCE, || fs::read_to_string(place.path().join("seen")).ok());
    send(node.id(), Signal::SIGTERM);
    assert!(node.wait().unwrap().success());
    assert!(seen.contains("LEASEHOLD_SHARD=") && !seen.contains("LEASEHOLD_STORE="), "{seen}");
}

#[test]
fn named_shards_come_and_go_with_the_file_that_names_them() {
    let place = Sandbox::new();
    fs::write(place.path().join("names"), "# tenants\nblue\nred\n").unwrap();
    let flags = &["--ttl", "2s", "--names", "@names"];
    let (mut a, mut b) = (place.run("a", flags, POLITE), place.run("b", flags, POLITE));
    let beating = |shard: &str| place.beats().contains_key(shard);
    wait_for("both shards run", PATIENCE, || (beating("blue") && beating("red")).then_some(()));
    fs::write(place.path().join("names"), "green\nred\n").unwrap();
    wait_for("the new shard runs", PATIENCE, || beating("green").then_some(()));
    wait_for("the old shard is nobody's", PATIENCE, || {
        let shards: Vec<String> = place.stdout(&["shards"]).lines().map(str::to_owned).collect();
        shards.iter().all(|line| !line.starts_with("g/blue") || line.contains("retired")).then_some(())
    });
    fs::write(place.path().join("names"), "green\nred\nbad\u{7}\n").unwrap();
    wait_for("a bad name is told of", PATIENCE, || {
        a.log().contains("keeping the previous ones").then_some(())
    });
    place.assert_no_overlap();
    for node in [&mut a, &mut b] {
        node.signal(Signal::SIGTERM);
        assert!(node.end().success(), "{}", node.log());
    }
}

#[test]
fn a_log_that_cannot_be_written_ends_nothing() {
    let place = Sandbox::new();
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let arguments = ["run", "--node", "a", "--group", "g", "--new-namespace", "--ttl", "2s", "--shards", "3"];
    let mut command = place.command(&arguments);
    command.args(["--", "sh", "-c", POLITE]).stderr(full);
    let mut node = command.spawn().unwrap();
    place.wait_for_beats("a", 3);
    place.leasehold(&["release", "g/0"]);
    assert!(node.try_wait().unwrap().is_none(), "what it wanted to log is lost, and nothing else");
    crate::process::send(node.id(), Signal::SIGTERM);
    assert!(node.wait().unwrap().success());
}

#[test]
fn output_that_nobody_reads_is_no_failure() {
    let place = Sandbox::new();
    let commands: [&[&str]; 5] = [
        &["config", "explain"],
        &["config", "show"],
        &["doctor"],
        &["completions", "bash"],
        &["demo", "--plain", "--for", "1s"],
    ];
    for arguments in commands {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let status = place.command(arguments).stdout(writer).status().unwrap();
        assert!(status.success(), "{arguments:?}: {status}");
    }
}

/// A pager that is paused, a terminal after Ctrl-S, a collector of logs that hangs.
#[test]
fn a_log_that_nobody_reads_holds_up_nothing() {
    let place = Sandbox::new();
    let (_reader, mut writer) = std::io::pipe().unwrap();
    let flags = rustix::fs::fcntl_getfl(&writer).unwrap();
    rustix::fs::fcntl_setfl(&writer, flags | rustix::fs::OFlags::NONBLOCK).unwrap();
    // Whatever is written to it from now on waits.
    while writer.write(&[b'.'; 4096]).is_ok() {}
    while writer.write(b".").is_ok() {}
    rustix::fs::fcntl_setfl(&writer, flags).unwrap();
    let run = ["run", "--node", "a", "--group", "g", "--shards", "1", "--ttl", "2s", "--new-namespace", "--"];
    let mut node = place.command(&run).args(["sh", "-c", POLITE]).stderr(writer).spawn().unwrap();
    place.wait_for_beats("a", 1);
    assert!(place.leasehold(&["release", "g/0"]).status.success());
    wait_for("it then starts again", PATIENCE, || {
        place.beats()["0"].iter().any(|beats| beats.epoch > 1).then_some(())
    });
    send(node.id(), Signal::SIGTERM);
    let ended = wait_for("it ends", PATIENCE, || node.try_wait().unwrap());
    assert!(ended.success(), "{ended}");
}

#[test]
fn raw_output_is_not_touched() {
    let place = Sandbox::new();
    let mut node =
        place.run("a", &["--ttl", "2s", "--shards", "1", "--output", "raw"], "echo plain; exec sleep 1000");
    let out = place.path().join("a.out");
    wait_for("the child prints", PATIENCE, || (fs::read_to_string(&out).unwrap() == "plain\n").then_some(()));
    node.signal(Signal::SIGINT);
    assert!(node.end().success());
}

#[test]
fn a_supervisor_that_is_killed_takes_all_its_processes_with_it_and_another_node_goes_on_at_once() {
    let place = Sandbox::new();
    let a = place.run("a", &["--ttl", "10s", "--shards", "3"], STUBBORN);
    place.wait_for_beats("a", 3);
    let _b = place.run("b", &["--ttl", "10s", "--shards", "3", "--weight", "1"], STUBBORN);
    wait_for("b is there", PATIENCE, || place.stdout(&["nodes"]).contains("\nb ").then_some(()));
    wait_for("all processes have started", PATIENCE, || (place.pids("a").len() >= 6).then_some(()));
    let pids = place.pids("a");
    let killed_at = now_ns();
    a.signal(Signal::SIGKILL);
    let gone_at = gone_at(&pids);
    assert!(
        gone_at - killed_at < 4_000_000_000,
        "no lease is waited for: took {} ms",
        (gone_at - killed_at) / 1_000_000
    );
    place.wait_for_beats("b", 3);
    place.assert_no_overlap();
}

#[test]
fn a_supervisor_that_is_stopped_does_not_keep_its_children_alive_past_its_lease() {
    let place = Sandbox::new();
    let mut a = place.run("a", FAST, STUBBORN);
    place.wait_for_beats("a", 3);
    let _b = place.run("b", &["--ttl", "2s", "--shards", "3", "--weight", "1"], STUBBORN);
    wait_for("b is there", PATIENCE, || place.stdout(&["nodes"]).contains("\nb ").then_some(()));
    let held: Vec<i32> = place.pids("a").into_iter().filter(|pid| runs(*pid)).collect();
    a.signal(Signal::SIGSTOP);
    gone_at(&held);
    place.wait_for_beats("b", 3);
    a.signal(Signal::SIGCONT);
    wait_for("a has noticed", PATIENCE, || a.log().contains("to=detached").then_some(()));
    wait_for("a is back", PATIENCE, || a.log().contains("to=attached cause=recovered").then_some(()));
    place.assert_no_overlap();
    a.signal(Signal::SIGTERM);
    assert!(a.end().code().is_some());
    place.assert_no_overlap();
}

#[test]
fn a_machine_that_sleeps_past_the_lease_wakes_up_to_a_guard_that_kills() {
    let Some(freezer) = Freezer::new("sleep") else { return };
    let place = Sandbox::new();
    let mut a = place.run("a", FAST, STUBBORN);
    freezer.take(a.id());
    place.wait_for_beats("a", 3);
    let _b = place.run("b", &["--ttl", "2s", "--shards", "3", "--weight", "1"], STUBBORN);
    wait_for("b is there", PATIENCE, || place.stdout(&["nodes"]).contains("\nb ").then_some(()));
    let held: Vec<i32> = place.pids("a").into_iter().filter(|pid| runs(*pid)).collect();
    assert!(held.len() >= 6, "every child has a grandchild: {held:?}");
    let frozen = freezer.freeze();
    place.wait_for_beats("b", 3);
    assert!(held.iter().all(|pid| runs(*pid)), "who sleeps cannot be killed");
    drop(frozen);
    gone_at(&held);
    wait_for("a has noticed", PATIENCE, || a.log().contains("to=detached").then_some(()));
    wait_for("a is back", PATIENCE, || a.log().contains("to=attached cause=recovered").then_some(()));
    a.signal(Signal::SIGTERM);
    assert!(a.end().code().is_some());
}

#[test]
fn a_child_that_ignores_sigterm_is_killed_when_its_time_is_over() {
    let place = Sandbox::new();
    let mut node = place.run("a", &["--ttl", "2s", "--shards", "1", "--kill-after", "300ms"], STUBBORN);
    place.wait_for_beats("a", 1);
    let pids = place.pids("a");
    node.signal(Signal::SIGTERM);
    assert!(node.end().success(), "{}", node.log());
    assert!(!pids.iter().any(|pid| runs(*pid)), "all processes are gone when the node has left");
}

#[test]
fn the_end_of_a_drain_kills_what_still_runs_and_waits_for_its_death() {
    let place = Sandbox::new();
    let flags = ["--ttl", "2s", "--shards", "3", "--kill-after", "60s", "--drain-within", "500ms"];
    let mut node = place.run("a", &flags, STUBBORN);
    place.wait_for_beats("a", 3);
    node.signal(Signal::SIGTERM);
    assert!(node.end().success(), "{}", node.log());
    assert!(!place.pids("a").iter().any(|pid| runs(*pid)), "all processes are gone when the node has left");
}

#[test]
fn a_second_signal_hurries() {
    let place = Sandbox::new();
    let mut node = place.run(
        "a",
        &["--ttl", "2s", "--shards", "1", "--kill-after", "60s", "--drain-within", "90s"],
        STUBBORN,
    );
    place.wait_for_beats("a", 1);
    node.signal(Signal::SIGTERM);
    node.wait_for_log("draining");
    assert!(place.pids("a").iter().any(|pid| runs(*pid)), "the first signal asks politely");
    node.hurry();
    assert!(node.end().success(), "{}", node.log());
    assert!(!place.pids("a").iter().any(|pid| runs(*pid)));
}

/// As from `timeout`, which tells its child and then the whole group.
#[test]
fn two_signals_at_once_are_one_wish() {
    let place = Sandbox::new();
    let flags =
        ["--ttl", "2s", "--shards", "1", "--kill-after", "60s", "--drain-within", "90s", "--log", "debug"];
    let mut node = place.run("a", &flags, STUBBORN);
    place.wait_for_beats("a", 1);
    // Two of the same kind at once would reach it as one.
    node.signal(Signal::SIGTERM);
    node.signal(Signal::SIGINT);
    node.wait_for_log("draining");
    node.wait_for_log("ignored a signal within 1 s of the previous one");
    assert!(!node.log().contains("second signal: "), "{}", node.log());
    assert!(place.pids("a").iter().any(|pid| runs(*pid)), "its child may take its time");
    node.hurry();
    assert!(node.end().success(), "{}", node.log());
}

#[test]
fn a_child_that_keeps_failing_is_restarted_with_a_pause_and_then_quarantined_until_an_operator_says_so() {
    let place = Sandbox::new();
    let flags = [
        "--ttl",
        "2s",
        "--shards",
        "1",
        "--on-failure",
        "quarantine:3",
        "--restart-first",
        "20ms",
        "--restart-max",
        "50ms",
    ];
    let node = place.run("a", &flags, "echo $LEASEHOLD_EPOCH >> starts; exit 3");
    node.wait_for_log("work keeps failing");
    assert!(node.log().contains("the command exited with code 3"), "{}", node.log());
    let starts = || fs::read_to_string(place.path().join("starts")).unwrap().lines().count();
    assert_eq!(starts(), 3);
    wait_for("it is shown", PATIENCE, || place.stdout(&["shards"]).contains("quarantined").then_some(()));
    assert!(place.stdout(&["status"]).contains("quarantined g/0"));
    let asked = place.leasehold(&["unquarantine", "g/0"]);
    assert!(asked.status.success(), "{asked:?}");
    wait_for("it runs again", PATIENCE, || (starts() > 3).then_some(()));
    let epochs: Vec<u64> = fs::read_to_string(place.path().join("starts"))
        .unwrap()
        .lines()
        .map(|line| line.parse().unwrap())
        .collect();
    assert!(epochs.is_sorted(), "{epochs:?}");
}

#[test]
fn a_child_that_ends_well_is_started_again() {
    let place = Sandbox::new();
    let _node =
        place.run("a", &["--ttl", "2s", "--shards", "1", "--restart-first", "20ms"], "echo x >> starts");
    wait_for("it runs again and again", PATIENCE, || {
        let text = fs::read_to_string(place.path().join("starts")).unwrap_or_default();
        (text.lines().count() >= 3).then_some(())
    });
}

#[test]
fn an_operator_drains_a_node_and_lets_it_take_shards_again() {
    let place = Sandbox::new();
    let flags = ["--ttl", "2s", "--shards", "4", "--cooldown", "100ms", "--min-run", "100ms"];
    let _a = place.run("a", &flags, POLITE);
    place.wait_for_beats("a", 4);
    let _b = place.run("b", &flags, POLITE);
    place.wait_for_beats("b", 2);
    assert!(place.leasehold(&["drain", "a", "--note", "maintenance"]).status.success());
    place.wait_for_beats("b", 4);
    assert!(place.stdout(&["nodes"]).contains("drain maintenance"));
    assert!(place.leasehold(&["undrain", "a"]).status.success());
    place.wait_for_beats("a", 2);
    place.assert_no_overlap();
}

#[test]
fn a_node_for_names_takes_no_slots_and_says_so() {
    let place = Sandbox::new();
    let _a = place.run("a", &["--ttl", "2s", "--shards", "4"], POLITE);
    place.wait_for_beats("a", 4);
    let c = place.run("c", &["--ttl", "2s", "--names", "x,y"], POLITE);
    c.wait_for_log(
        "takes no shards of this group: it serves named shards, but the group in the store has numbered ones",
    );
    assert!(c.log().contains("leasehold group delete g"), "{}", c.log());
    wait_for("everybody sees it", PATIENCE, || {
        place.stdout(&["status"]).contains("unserved_group c").then_some(())
    });
    std::thread::sleep(Duration::from_secs(4));
    assert_eq!(c.log().matches("takes no shards of this group").count(), 1, "{}", c.log());
    assert!(place.pids("c").is_empty(), "{}", c.log());
}

#[test]
fn a_node_says_which_of_its_settings_the_store_has_otherwise() {
    let place = Sandbox::new();
    let _a = place.run("a", &["--ttl", "2s", "--shards", "4"], POLITE);
    place.wait_for_beats("a", 4);
    let b = place.run("b", &["--ttl", "2s", "--shards", "9", "--balance", "2"], POLITE);
    b.wait_for_log("shards 9 here, 4 in the store; balance 2.00 here, 1.10 in the store");
    assert!(b.log().contains("leasehold group set g shards=9 balance=2.00"), "{}", b.log());
    std::thread::sleep(Duration::from_secs(4));
    assert_eq!(b.log().matches("the store has other settings").count(), 1, "{}", b.log());
    assert!(place.leasehold(&["group", "set", "g", "shards=9", "balance=2.00", "--yes"]).status.success());
    wait_for("all run", PATIENCE, || (place.beats().len() == 9).then_some(()));
}

#[test]
fn a_node_says_what_operators_ask_of_it() {
    let place = Sandbox::new();
    let mut a = place.run("a", FAST, POLITE);
    place.wait_for_beats("a", 1);
    for (arguments, told) in [
        (&["freeze", "--note", "audit"] as &[&str], "an operator froze voluntary moves"),
        (&["unfreeze"], "an operator unfroze voluntary moves"),
        (&["weight", "a", "50"], "an operator changed the weight of this node"),
        (&["pin", "g/0", "a"], "an operator pinned a shard"),
        (&["drain", "a", "--note", "new disk"], "an operator drained this node"),
    ] {
        let done = place.leasehold(arguments);
        assert!(done.status.success(), "{arguments:?}: {done:?}");
        a.wait_for_log(told);
    }
    a.signal(Signal::SIGTERM);
    assert!(a.end().success(), "{}", a.log());
    let again = place.run("a", FAST, POLITE);
    again.wait_for_log("to undo: leasehold undrain a");
    assert!(again.log().contains("new disk"), "{}", again.log());
    assert!(place.leasehold(&["undrain", "a"]).status.success());
    again.wait_for_log("an operator undrained this node");
}

#[test]
fn a_restart_grace_in_the_store_keeps_the_shards_of_a_node_that_leaves() {
    let place = Sandbox::new();
    let flags = ["--ttl", "2s", "--shards", "4", "--cooldown", "100ms", "--min-run", "100ms"];
    let _a = place.run("a", &flags, POLITE);
    place.wait_for_beats("a", 4);
    assert!(place.leasehold(&["group", "set", "g", "restart_grace=10m"]).status.success());
    let mut b = place.run("b", &flags, POLITE);
    place.wait_for_beats("b", 2);
    b.signal(Signal::SIGTERM);
    assert!(b.end().success(), "{}", b.log());
    let json =
        |arguments: &[&str]| serde_json::from_str::<serde_json::Value>(&place.stdout(arguments)).unwrap();
    let with = |holder: serde_json::Value| -> Vec<String> {
        let shards = json(&["shards", "--json"]);
        let theirs = shards.as_array().unwrap().iter().filter(|shard| shard["holder"] == holder);
        theirs.map(|shard| format!("g/{}", shard["shard"].as_str().unwrap())).collect()
    };
    let kept = with(serde_json::Value::Null);
    assert_eq!(kept.len(), 2, "{}", place.stdout(&["shards"]));
    for shard in &kept {
        assert_eq!(json(&["explain", shard, "--json"])["moved_because"], "restart");
    }
    let _b = place.run("b", &flags, POLITE);
    wait_for("it has its shards again", PATIENCE, || (with("b".into()) == kept).then_some(()));
}

#[test]
fn a_second_process_under_the_same_name_is_refused() {
    let place = Sandbox::new();
    let first = place.run("a", FAST, POLITE);
    place.wait_for_beats("a", 3);
    let second = place
        .leasehold(&["run", "--node", "a", "--group", "g", "--shards", "3", "--ttl", "2s", "--", "true"]);
    let told = String::from_utf8_lossy(&second.stderr).into_owned();
    assert_eq!(second.status.code(), Some(5), "{told}");
    assert!(told.contains("another live process uses the node name a"), "{told}");
    assert!(place.pids("a").iter().filter(|pid| runs(**pid)).count() >= 3, "the first one goes on");
    drop(first);
}

#[test]
fn a_guard_that_is_killed_fails_its_shard_and_nothing_is_left_behind() {
    let place = Sandbox::new();
    let node = place.run("a", &["--ttl", "2s", "--shards", "1", "--restart-first", "20ms"], STUBBORN);
    wait_for("both processes start", PATIENCE, || (place.pids("a").len() >= 2).then_some(()));
    let pids = place.pids("a");
    let parent = fs::read_to_string(format!("/proc/{}/stat", pids[0])).unwrap();
    let guard: u32 = parent.rsplit_once(") ").unwrap().1.split_whitespace().nth(1).unwrap().parse().unwrap();
    crate::process::send(guard, Signal::SIGKILL);
    gone_at(&pids);
    node.wait_for_log("the guard process was killed");
    wait_for("it is started again", PATIENCE, || (place.pids("a").len() >= 4).then_some(()));
    place.assert_no_overlap();
}
