//! `leasehold run` with a child for every shard.

use std::fs;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::freezer::Freezer;
use crate::process::{now_ns, runs, wait_for};
use crate::supervisor::{PATIENCE, POLITE, Place, STUBBORN, gone_at};

const FAST: &[&str] = &["--ttl", "2s", "--shards", "3"];

#[test]
fn each_child_knows_its_shard_and_its_output_is_marked() {
    let place = Place::new();
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
fn named_shards_come_and_go_with_the_file_that_names_them() {
    let place = Place::new();
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
    wait_for("a bad name is told of", PATIENCE, || a.log().contains("stay as they were").then_some(()));
    place.assert_no_overlap();
    for node in [&mut a, &mut b] {
        node.signal(Signal::SIGTERM);
        assert!(node.end().success(), "{}", node.log());
    }
}

#[test]
fn a_log_that_cannot_be_written_ends_nothing() {
    let place = Place::new();
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
    let place = Place::new();
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

#[test]
fn raw_output_is_not_touched() {
    let place = Place::new();
    let mut node =
        place.run("a", &["--ttl", "2s", "--shards", "1", "--output", "raw"], "echo plain; exec sleep 1000");
    let out = place.path().join("a.out");
    wait_for("the child prints", PATIENCE, || (fs::read_to_string(&out).unwrap() == "plain\n").then_some(()));
    node.signal(Signal::SIGINT);
    assert!(node.end().success());
}

#[test]
fn a_supervisor_that_is_killed_takes_all_its_processes_with_it_and_another_node_goes_on_at_once() {
    let place = Place::new();
    let a = place.run("a", FAST, STUBBORN);
    place.wait_for_beats("a", 3);
    let _b = place.run("b", &["--ttl", "2s", "--shards", "3", "--weight", "1"], STUBBORN);
    wait_for("b is there", PATIENCE, || place.stdout(&["nodes"]).contains("\nb ").then_some(()));
    wait_for("all processes have started", PATIENCE, || (place.pids("a").len() >= 6).then_some(()));
    let pids = place.pids("a");
    let killed_at = now_ns();
    a.signal(Signal::SIGKILL);
    let gone_at = gone_at(&pids);
    assert!(gone_at - killed_at < 1_500_000_000, "took {} ms", (gone_at - killed_at) / 1_000_000);
    place.wait_for_beats("b", 3);
    place.assert_no_overlap();
}

#[test]
fn a_supervisor_that_is_stopped_does_not_keep_its_children_alive_past_its_lease() {
    let place = Place::new();
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
    wait_for("a is back", PATIENCE, || a.log().contains("to=attached cause=the new session").then_some(()));
    place.assert_no_overlap();
    a.signal(Signal::SIGTERM);
    assert!(a.end().code().is_some());
    place.assert_no_overlap();
}

#[test]
fn a_machine_that_sleeps_past_the_lease_wakes_up_to_a_guard_that_kills() {
    let Some(freezer) = Freezer::new("sleep") else { return };
    let place = Place::new();
    let mut a = place.run("a", FAST, STUBBORN);
    freezer.take(a.id());
    place.wait_for_beats("a", 3);
    let _b = place.run("b", &["--ttl", "2s", "--shards", "3", "--weight", "1"], STUBBORN);
    wait_for("b is there", PATIENCE, || place.stdout(&["nodes"]).contains("\nb ").then_some(()));
    let held: Vec<i32> = place.pids("a").into_iter().filter(|pid| runs(*pid)).collect();
    assert!(held.len() >= 6, "every child has a grandchild: {held:?}");
    freezer.freeze();
    place.wait_for_beats("b", 3);
    assert!(held.iter().all(|pid| runs(*pid)), "who sleeps cannot be killed");
    freezer.thaw();
    gone_at(&held);
    wait_for("a has noticed", PATIENCE, || a.log().contains("to=detached").then_some(()));
    wait_for("a is back", PATIENCE, || a.log().contains("to=attached cause=the new session").then_some(()));
    a.signal(Signal::SIGTERM);
    assert!(a.end().code().is_some());
}

#[test]
fn a_child_that_ignores_sigterm_is_killed_when_its_time_is_over() {
    let place = Place::new();
    let mut node = place.run("a", &["--ttl", "2s", "--shards", "1", "--kill-after", "300ms"], STUBBORN);
    place.wait_for_beats("a", 1);
    let pids = place.pids("a");
    node.signal(Signal::SIGTERM);
    assert!(node.end().success(), "{}", node.log());
    assert!(!pids.iter().any(|pid| runs(*pid)), "all processes are gone when the node has left");
}

#[test]
fn the_end_of_a_drain_kills_what_still_runs_and_waits_for_its_death() {
    let place = Place::new();
    let flags = ["--ttl", "2s", "--shards", "3", "--kill-after", "60s", "--drain-within", "500ms"];
    let mut node = place.run("a", &flags, STUBBORN);
    place.wait_for_beats("a", 3);
    node.signal(Signal::SIGTERM);
    assert!(node.end().success(), "{}", node.log());
    assert!(!place.pids("a").iter().any(|pid| runs(*pid)), "all processes are gone when the node has left");
}

#[test]
fn a_second_signal_hurries() {
    let place = Place::new();
    let mut node = place.run(
        "a",
        &["--ttl", "2s", "--shards", "1", "--kill-after", "60s", "--drain-within", "90s"],
        STUBBORN,
    );
    place.wait_for_beats("a", 1);
    node.signal(Signal::SIGTERM);
    node.wait_for_log("draining");
    std::thread::sleep(Duration::from_millis(300));
    assert!(place.pids("a").iter().any(|pid| runs(*pid)), "the first signal asks politely");
    node.signal(Signal::SIGTERM);
    assert!(node.end().success(), "{}", node.log());
    assert!(!place.pids("a").iter().any(|pid| runs(*pid)));
}

#[test]
fn a_child_that_keeps_failing_is_restarted_with_a_pause_and_then_quarantined_until_an_operator_says_so() {
    let place = Place::new();
    let flags = [
        "--ttl",
        "2s",
        "--shards",
        "1",
        "--quarantine-after",
        "3",
        "--restart-first",
        "20ms",
        "--restart-max",
        "50ms",
    ];
    let node = place.run("a", &flags, "echo $LEASEHOLD_EPOCH >> starts; exit 3");
    node.wait_for_log("work keeps crashing");
    assert!(node.log().contains("its command exited with code 3"), "{}", node.log());
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
    let place = Place::new();
    let _node =
        place.run("a", &["--ttl", "2s", "--shards", "1", "--restart-first", "20ms"], "echo x >> starts");
    wait_for("it runs again and again", PATIENCE, || {
        let text = fs::read_to_string(place.path().join("starts")).unwrap_or_default();
        (text.lines().count() >= 3).then_some(())
    });
}

#[test]
fn an_operator_drains_a_node_and_lets_it_take_shards_again() {
    let place = Place::new();
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
fn a_second_process_under_the_same_name_is_refused() {
    let place = Place::new();
    let first = place.run("a", FAST, POLITE);
    place.wait_for_beats("a", 3);
    let second = place
        .leasehold(&["run", "--node", "a", "--group", "g", "--shards", "3", "--ttl", "2s", "--", "true"]);
    let told = String::from_utf8_lossy(&second.stderr).into_owned();
    assert_eq!(second.status.code(), Some(5), "{told}");
    assert!(told.contains("another live process is the node a"), "{told}");
    assert!(place.pids("a").iter().filter(|pid| runs(**pid)).count() >= 3, "the first one goes on");
    drop(first);
}

#[test]
fn a_guard_that_is_killed_fails_its_shard_and_nothing_is_left_behind() {
    let place = Place::new();
    let node = place.run("a", &["--ttl", "2s", "--shards", "1", "--restart-first", "20ms"], STUBBORN);
    wait_for("both processes start", PATIENCE, || (place.pids("a").len() >= 2).then_some(()));
    let pids = place.pids("a");
    let parent = fs::read_to_string(format!("/proc/{}/stat", pids[0])).unwrap();
    let guard: u32 = parent.rsplit_once(") ").unwrap().1.split_whitespace().nth(1).unwrap().parse().unwrap();
    crate::process::send(guard, Signal::SIGKILL);
    gone_at(&pids);
    node.wait_for_log("its guard was killed");
    wait_for("it is started again", PATIENCE, || (place.pids("a").len() >= 4).then_some(()));
    place.assert_no_overlap();
}
