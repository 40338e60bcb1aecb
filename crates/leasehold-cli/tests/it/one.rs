//! `leasehold run --one`: one child for all shards.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use nix::sys::signal::Signal;

use crate::process::{runs, wait_for};
use crate::supervisor::{PATIENCE, Sandbox, gone_at};

const FLAGS: &[&str] = &["--one", "--ttl", "2s", "--shards", "3"];

/// Notes every line that it is told, and acknowledges every stop.
const GOOD: &str = "echo $$ >> pids.$LEASEHOLD_NODE; echo a line for people; while read -r line; do \
    echo \"$line\" >> told.$LEASEHOLD_NODE; \
    case \"$line\" in *'\"event\":\"stop\"'*) echo \"$line\" | sed 's/\"stop\"/\"stopped\"/';; esac; done";
/// Notes every line, acknowledges nothing, and ignores SIGTERM.
const BAD: &str = "trap '' TERM; echo $$ >> pids.$LEASEHOLD_NODE; while read -r line; do echo \"$line\" >> told.$LEASEHOLD_NODE; done; \
    while :; do sleep 1; done";

fn told(place: &Sandbox, event: &str) -> Vec<serde_json::Value> {
    let text = fs::read_to_string(place.path().join("told.a")).unwrap_or_default();
    let lines = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    lines.filter(|line| line["event"] == event).collect()
}

#[test]
fn one_child_is_told_of_its_shards_and_their_deadlines_and_hands_them_over() {
    let place = Sandbox::new();
    let mut node = place.run("a", FLAGS, GOOD);
    wait_for("it is granted all shards", PATIENCE, || (told(&place, "grant").len() == 3).then_some(()));
    assert_eq!(told(&place, "hello").len(), 1);
    assert_eq!(told(&place, "hello")[0]["clock"], "CLOCK_BOOTTIME");
    let grant = &told(&place, "grant")[0];
    let ns = |line: &serde_json::Value, key: &str| line[key].as_u64().unwrap();
    assert!(
        ns(grant, "stop_at_ns") < ns(grant, "kill_at_ns")
            && ns(grant, "kill_at_ns") < ns(grant, "valid_until_ns")
    );
    wait_for("its deadlines move", PATIENCE, || (told(&place, "deadline").len() >= 2).then_some(()));
    assert!(told(&place, "deadline").iter().map(|line| ns(line, "stop_at_ns")).is_sorted());
    assert_eq!(place.pids("a").len(), 1, "there is one child");
    node.signal(Signal::SIGTERM);
    assert!(node.end().success(), "{}", node.log());
    assert_eq!(told(&place, "stop").len(), 3);
    assert!(fs::read_to_string(place.path().join("a.out")).unwrap().contains("a line for people\n"));
    assert!(place.stdout(&["status"]).contains("0 held"));
}

/// More than a pipe and all that waits in memory can hold.
const TALK: usize = 20_000;

/// Prints a great deal, then does as it should.
const TALKATIVE: &str =
    "awk 'BEGIN { for (i = 0; i < 20000; i++) printf \"%01000d\\n\", i }'; echo done > talked; ";

#[test]
fn nothing_that_one_child_prints_is_lost_on_a_slow_reader_and_its_lease_goes_on() {
    let place = Sandbox::new();
    let mut arguments = vec!["run", "--node", "a", "--group", "g", "--new-namespace"];
    let script = format!("{{ {TALKATIVE} }} & {GOOD}");
    arguments.extend(FLAGS);
    arguments.extend(["--", "sh", "-c", &script]);
    let log = fs::File::create(place.path().join("a.log")).unwrap();
    let mut node = place.command(&arguments).stdout(Stdio::piped()).stderr(log).spawn().unwrap();
    wait_for("it is granted all shards", PATIENCE, || (told(&place, "grant").len() == 3).then_some(()));
    let before = told(&place, "deadline").len();
    // Nobody reads for longer than the lease.
    wait_for("its deadlines move", PATIENCE, || (told(&place, "deadline").len() >= before + 8).then_some(()));
    assert!(!place.path().join("talked").exists(), "the child waits for its reader");
    let out = BufReader::new(node.stdout.take().unwrap());
    let reader = std::thread::Builder::new().spawn(move || {
        let numbers = out.lines().map_while(Result::ok).filter_map(|line| line.parse::<usize>().ok());
        numbers.collect::<Vec<usize>>()
    });
    wait_for("it has said all", PATIENCE, || place.path().join("talked").exists().then_some(()));
    crate::process::send(node.id(), Signal::SIGTERM);
    assert!(node.wait().unwrap().success());
    assert_eq!(place.pids("a").len(), 1, "it was never started again");
    assert!(reader.unwrap().join().unwrap().into_iter().eq(0..TALK), "every line came, in order");
}

#[test]
fn one_child_that_dies_is_started_again_with_all_its_shards() {
    let place = Sandbox::new();
    let _node = place.run("a", &[FLAGS, &["--restart-first", "20ms"]].concat(), GOOD);
    wait_for("it is granted all shards", PATIENCE, || (told(&place, "grant").len() == 3).then_some(()));
    crate::process::send(place.pids("a")[0] as u32, Signal::SIGKILL);
    wait_for("they are granted again", PATIENCE, || (told(&place, "grant").len() >= 6).then_some(()));
    let epochs: Vec<u64> = told(&place, "grant").iter().map(|line| line["epoch"].as_u64().unwrap()).collect();
    assert!(epochs[3..].iter().all(|epoch| *epoch > 1), "{epochs:?}");
}

#[test]
fn one_child_of_a_stopped_supervisor_is_dead_by_the_end_of_its_lease() {
    let place = Sandbox::new();
    let node = place.run("a", FLAGS, BAD);
    wait_for("it is granted all shards", PATIENCE, || (told(&place, "grant").len() == 3).then_some(()));
    let pids = place.pids("a");
    node.signal(Signal::SIGSTOP);
    std::thread::sleep(std::time::Duration::from_millis(100));
    let gone_at = gone_at(&pids);
    let last = told(&place, "deadline")
        .iter()
        .chain(&told(&place, "grant"))
        .map(|line| line["valid_until_ns"].as_u64().unwrap())
        .max();
    assert!(
        gone_at <= last.unwrap(),
        "it outlived its lease by {} ms",
        (gone_at - last.unwrap()) / 1_000_000
    );
    node.signal(Signal::SIGCONT);
}

#[test]
fn one_child_that_acknowledges_nothing_is_killed_at_the_end_of_the_drain() {
    let place = Sandbox::new();
    let mut node = place.run("a", &[FLAGS, &["--drain-within", "1s"]].concat(), BAD);
    wait_for("it is granted all shards", PATIENCE, || (told(&place, "grant").len() == 3).then_some(()));
    node.signal(Signal::SIGTERM);
    node.end();
    assert!(!place.pids("a").iter().any(|pid| runs(*pid)), "{}", node.log());
}
