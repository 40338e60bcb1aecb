//! Hooks of `leasehold run`: commands, messages of `run --one`, and the worked example with Kafka.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use nix::sys::signal::Signal;

use crate::process::{to_its_end, wait_for};
use crate::supervisor::{PATIENCE, POLITE, Sandbox};

const FAST: &[&str] =
    &["--ttl", "2s", "--shards", "4", "--hook-every", "100ms", "--cooldown", "0s", "--min-run", "0s"];

fn holders(place: &Sandbox, node: &str) -> usize {
    let shards = place.stdout(&["shards"]);
    shards.lines().filter(|line| line.split_whitespace().nth(2) == Some(node)).count()
}

fn holds(place: &Sandbox, node: &str, shard: &str) -> bool {
    let shards = place.stdout(&["shards"]);
    let mut words = shards.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    words.any(|words| words.first() == Some(&shard) && words.get(2) == Some(&node))
}

fn both_have_some(place: &Sandbox) {
    wait_for("both have some", PATIENCE, || {
        (holders(place, "a") == 2 && holders(place, "b") == 2).then_some(())
    });
}

#[test]
fn the_health_command_hands_shards_over_and_takes_them_back() {
    let place = Sandbox::new();
    let health = ["--health-command", "test ! -e sick.$LEASEHOLD_NODE || { echo the disk is full; exit 1; }"];
    let flags = [FAST, &health].concat();
    let (a, _b) = (place.run("a", &flags, POLITE), place.run("b", &flags, POLITE));
    both_have_some(&place);
    fs::write(place.path().join("sick.a"), "").unwrap();
    wait_for("b has all", PATIENCE, || (holders(&place, "b") == 4).then_some(()));
    assert!(a.log().contains("exit code 1: the disk is full"), "{}", a.log());
    fs::remove_file(place.path().join("sick.a")).unwrap();
    wait_for("a is back", PATIENCE, || (holders(&place, "a") == 2).then_some(()));
    place.assert_no_overlap();
}

#[test]
fn the_weight_command_moves_shards() {
    let place = Sandbox::new();
    fs::write(place.path().join("weight.a"), "100").unwrap();
    fs::write(place.path().join("weight.b"), "100").unwrap();
    let flags = [FAST, &["--weight-command", "cat weight.$LEASEHOLD_NODE"]].concat();
    let (a, _b) = (place.run("a", &flags, POLITE), place.run("b", &flags, POLITE));
    both_have_some(&place);
    fs::write(place.path().join("weight.a"), "0").unwrap();
    wait_for("b has all", PATIENCE, || (holders(&place, "b") == 4).then_some(()));
    fs::write(place.path().join("weight.a"), "much").unwrap();
    a.wait_for_log("is no whole number");
    assert_eq!(holders(&place, "b"), 4, "the weight stays as it was");
}

#[test]
fn the_gate_command_keeps_a_shard_away_until_it_says_yes() {
    let place = Sandbox::new();
    fs::write(place.path().join("closed.a.2"), "").unwrap();
    let gate = "echo $LEASEHOLD_GROUP >> asked; test ! -e closed.$LEASEHOLD_NODE.$LEASEHOLD_SHARD";
    let flags = [FAST, &["--gate-command", gate]].concat();
    let mut a = place.run("a", &flags, POLITE);
    wait_for("a has the others", PATIENCE, || (holders(&place, "a") == 3).then_some(()));
    a.wait_for_log("the gate command refuses the shard");
    let _b = place.run("b", &flags, POLITE);
    wait_for("b takes what a refused", PATIENCE, || holds(&place, "b", "g/2").then_some(()));
    fs::remove_file(place.path().join("closed.a.2")).unwrap();
    a.wait_for_log("the gate command lets the shard in");
    assert!(fs::read_to_string(place.path().join("asked")).unwrap().starts_with("g\n"));
    a.signal(Signal::SIGTERM);
    assert!(a.end().success(), "{}", a.log());
    place.assert_no_overlap();
}

/// Acknowledges every stop, and says what is in the file `say`.
const SAYS: &str = "tail -n +1 -F say.$LEASEHOLD_NODE 2>/dev/null & while read -r line; do \
    case \"$line\" in *'\"event\":\"stop\"'*) echo \"$line\" | sed 's/\"stop\"/\"stopped\"/';; esac; done";

#[test]
fn one_child_reports_its_weight_its_load_and_its_health() {
    let place = Sandbox::new();
    let flags = [&["--one", "--restart-max", "1s", "--restart-first", "100ms"], FAST].concat();
    let say = |line: &str| {
        let path = place.path().join("say.a");
        writeln!(fs::File::options().create(true).append(true).open(path).unwrap(), "{line}").unwrap();
    };
    let (a, _b) = (place.run("a", &flags, SAYS), place.run("b", &flags, SAYS));
    both_have_some(&place);
    say(r#"{"event":"load","load":0.75}"#);
    wait_for("its load is shown", PATIENCE, || {
        place.stdout(&["nodes", "--json"]).contains("\"load\": \"0.75\"").then_some(())
    });
    say(r#"{"event":"weight","weight":300}"#);
    wait_for("it has more", PATIENCE, || (holders(&place, "a") == 3).then_some(()));
    say(r#"{"event":"health","healthy":false}"#);
    wait_for("it hands all over", PATIENCE, || (holders(&place, "b") == 4).then_some(()));
    a.wait_for_log("the child reports that it is unhealthy");
    fs::remove_file(place.path().join("say.a")).unwrap();
    a.wait_for_log("the child is healthy: this node takes shards again");
    wait_for("a new child has some again", PATIENCE, || (holders(&place, "a") >= 1).then_some(()));
}

#[test]
fn one_child_refuses_a_shard_and_another_node_takes_it() {
    let place = Sandbox::new();
    let refuses = "while read -r line; do case \"$line\" in \
        *'\"event\":\"grant\"'*'\"shard\":\"2\"'*) test -e picky.$LEASEHOLD_NODE && \
            echo \"$line\" | sed 's/\"grant\"/\"refuse\",\"for_ms\":600000/';; \
        *'\"event\":\"stop\"'*) echo \"$line\" | sed 's/\"stop\"/\"stopped\"/';; esac; done";
    fs::write(place.path().join("picky.a"), "").unwrap();
    let flags = [&["--one"], FAST].concat();
    let a = place.run("a", &flags, refuses);
    a.wait_for_log("the child refused a shard");
    wait_for("the others stay", PATIENCE, || (holders(&place, "a") == 3).then_some(()));
    let _b = place.run("b", &flags, refuses);
    wait_for("b has it", PATIENCE, || holds(&place, "b", "g/2").then_some(()));
}

#[test]
fn the_gate_for_kafka_heeds_lag_members_and_who_consumes_a_partition() {
    let folder = tempfile::TempDir::new().unwrap();
    let kafka = folder.path().join("kafka-consumer-groups.sh");
    // What Kafka 3 prints. With a file `away` the broker is away.
    let script = "#!/bin/sh\ntest \"$*\" = '--bootstrap-server k:9092 --describe --group old' || exit 9\n\
        test ! -e away || { echo 'Error: Timed out waiting for a node assignment'; exit 1; }\n\
        cat <<'END'\n\n\
        GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG CONSUMER-ID HOST CLIENT-ID\n\
        old orders 0 100 107 7 - - -\n\
        old orders 1 100 900100 900000 - - -\n\
        old orders 2 100 100 0 old-7-4f2a /10.0.0.3 old-7\n\
        old other 3 1 2 1 old-8-77aa /10.0.0.4 old-8\nEND\n";
    fs::write(&kafka, script).unwrap();
    fs::set_permissions(&kafka, fs::Permissions::from_mode(0o755)).unwrap();
    let gate = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/hooks/kafka-gate.sh");
    let ask = |shard: &str, members_max: &str| {
        let mut command = Command::new(&gate);
        command.env("KAFKA_CONSUMER_GROUPS", &kafka).env("KAFKA_BOOTSTRAP", "k:9092");
        command.env("KAFKA_CONSUMER_GROUP", "old").env("LEASEHOLD_GROUP", "orders");
        command.env("LEASEHOLD_SHARD", shard).env("MEMBERS_MAX", members_max);
        let output = to_its_end(command.current_dir(folder.path()));
        let said = String::from_utf8(output.stdout).unwrap();
        (output.status.code().unwrap(), said.trim().to_owned())
    };
    let no = |why: &str| (1, why.to_owned());
    assert_eq!(ask("0", "200"), (0, String::new()));
    assert_eq!(ask("1", "200"), no("its lag of 900000 is above 100000"));
    assert_eq!(ask("2", "200"), no("still consumed by old-7-4f2a"));
    assert_eq!(ask("3", "200"), (0, String::new()), "a partition that nobody has consumed yet");
    assert_eq!(ask("0", "1"), no("2 members are more than 1"));
    fs::write(folder.path().join("away"), "").unwrap();
    let (code, said) = ask("0", "200");
    assert_eq!(code, 2);
    assert!(said.starts_with("Kafka does not answer: Error: Timed out"), "{said}");
}
