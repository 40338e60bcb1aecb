//! `leasehold run` with several groups, with groups from the store, and in shadow mode.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::process::{Child, Stdio};

use nix::sys::signal::Signal;

use crate::process::{send, wait_for};
use crate::supervisor::{PATIENCE, Sandbox};

/// Notes that it runs, by group and shard.
const NOTE: &str = "echo $LEASEHOLD_EPOCH >> ran.$LEASEHOLD_GROUP.$LEASEHOLD_SHARD; exec sleep 1000";

fn settings(place: &Sandbox, more: &str) {
    let text = format!("ttl = \"2s\"\nnew_namespace = true\ncooldown = \"0s\"\nmin_run = \"0s\"\n{more}");
    fs::write(place.path().join("leasehold.toml"), text).unwrap();
}

/// A running node. Killed when it is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    fn end(mut self) {
        send(self.0.id(), Signal::SIGTERM);
        assert!(wait_for("it ends", PATIENCE, || self.0.try_wait().unwrap()).success());
    }
}

fn run(place: &Sandbox, node: &str, more: &[&str]) -> Running {
    let log = File::create(place.path().join(format!("{node}.log"))).unwrap();
    let mut command = place.command(&["run", "--node", node]);
    command.args(more).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    Running(command.spawn().unwrap())
}

fn log(place: &Sandbox, node: &str) -> String {
    fs::read_to_string(place.path().join(format!("{node}.log"))).unwrap_or_default()
}

/// How many shards each node holds, by group.
fn held(place: &Sandbox) -> BTreeMap<(String, String), usize> {
    let mut held = BTreeMap::new();
    for line in place.stdout(&["shards"]).lines().skip(1) {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let [shard, "held", holder, ..] = words[..] {
            let group = shard.split('/').next().unwrap().to_owned();
            *held.entry((group, holder.to_owned())).or_default() += 1;
        }
    }
    held
}

fn ran(place: &Sandbox, prefix: &str) -> usize {
    let files = fs::read_dir(place.path()).unwrap().flatten();
    files.filter(|file| file.file_name().to_string_lossy().starts_with(prefix)).count()
}

#[test]
fn groups_share_one_node_its_capacity_and_each_has_its_command() {
    let place = Sandbox::new();
    let own = format!("[\"sh\", \"-c\", {:?}]", NOTE.replace("ran.", "own."));
    settings(
        &place,
        &format!(
            "capacity = 5\n[[group]]\nname = \"orders\"\nshards = 4\ngroup_capacity = 3\ncommand = {own}\n\
             [[group]]\nname = \"tenants\"\nnames = \"blue,red,green\"\n"
        ),
    );
    let node = run(&place, "a", &["--", "sh", "-c", NOTE]);
    let all = wait_for("the node is full", PATIENCE, || {
        let held = held(&place);
        (held.values().sum::<usize>() == 5).then_some(held)
    });
    let of = |group: &str| all.get(&(group.to_owned(), "a".to_owned())).copied().unwrap_or(0);
    assert!(of("orders") <= 3 && of("tenants") <= 3, "{all:?}");
    wait_for("each runs the command of its group", PATIENCE, || {
        (ran(&place, "own.orders.") == of("orders") && ran(&place, "ran.tenants.") == of("tenants"))
            .then_some(())
    });
    assert_eq!((ran(&place, "ran.orders."), ran(&place, "own.tenants.")), (0, 0));
    // A second node takes what the first has no room for.
    let other = run(&place, "b", &["--", "sh", "-c", NOTE]);
    wait_for("all shards run", PATIENCE, || (held(&place).values().sum::<usize>() == 7).then_some(()));
    node.end();
    other.end();
    for file in ["x.db-wal", "x.db-shm"] {
        assert!(!place.path().join(file).exists(), "{file} stays after the last node left");
    }
}

#[test]
fn a_node_keeps_its_minimum_over_all_groups() {
    let place = Sandbox::new();
    settings(&place, "[[group]]\nname = \"x\"\nshards = 4\n[[group]]\nname = \"y\"\nshards = 4\n");
    let on = |node: &str| -> usize {
        held(&place).iter().filter(|((_, holder), _)| holder == node).map(|(_, shards)| shards).sum()
    };
    let a = run(&place, "a", &["--node-kept-min", "6", "--", "sh", "-c", NOTE]);
    wait_for("a has all", PATIENCE, || (on("a") == 8).then_some(()));
    let b = run(&place, "b", &["--", "sh", "-c", NOTE]);
    wait_for("b has two", PATIENCE, || (on("b") == 2).then_some(()));
    // Planned moves go on every few hundred milliseconds; many more views than that show no further one.
    for _ in 0..20 {
        assert_eq!((on("a"), on("b")), (6, 2));
    }
    a.end();
    wait_for("b has all", PATIENCE, || (on("b") == 8).then_some(()));
    b.end();
}

#[test]
fn all_mistakes_in_groups_are_told_and_nothing_starts() {
    let place = Sandbox::new();
    let tables =
        "[[group]]\nname = \"x\"\n[[group]]\nname = \"y\"\nshards = 2\ncommand = [\"no-such-program\"]\n";
    settings(&place, tables);
    let output = place.leasehold(&["run", "--group", "z"]);
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{told}");
    for part in [
        "4 invalid settings",
        "--group: `group` is set outside the [[group]] tables",
        "leasehold.toml:5: `run` requires the setting `shards` or `names` for the group x",
        "leasehold.toml:10: no-such-program is not an executable program",
        "leasehold.toml:5: the group x has no command",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
}

#[test]
fn a_shadow_starts_nothing_and_tells_what_it_would_have_done() {
    let place = Sandbox::new();
    let flags = ["--group", "g", "--shards", "3", "--ttl", "2s", "--new-namespace", "--", "sh", "-c", NOTE];
    let real = run(&place, "a", &flags);
    let shadow = |node| run(&place, node, &[&["--shadow"], &flags[..]].concat());
    let (s, t) = (shadow("s"), shadow("t"));
    let beside = || place.stdout(&["shards", "--namespace", "default-shadow"]);
    wait_for("both namespaces are served", PATIENCE, || {
        let shadowed = beside().lines().filter(|line| line.contains(" held ")).count();
        (shadowed == 3 && ran(&place, "ran.g.") == 3).then_some(())
    });
    let logs = || log(&place, "s") + &log(&place, "t");
    wait_for("it says so", PATIENCE, || {
        (logs().matches("shadow: the command would start shard=g/").count() >= 3).then_some(())
    });
    // A death is as real as anywhere, and moves the shards of the shadow alone.
    drop(t);
    wait_for("the other has all", PATIENCE, || {
        (beside().lines().filter(|line| line.contains(" held ") && line.contains(" s ")).count() == 3)
            .then_some(())
    });
    s.end();
    let told = log(&place, "s");
    assert!(told.contains("why=\"draining\"") || told.contains("why=draining"), "{told}");
    assert!(told.contains("draining"), "{told}");
    assert!(told.lines().last().unwrap().contains("; 0 would run now"), "{told}");
    for shard in 0..3 {
        let epochs = fs::read_to_string(place.path().join(format!("ran.g.{shard}"))).unwrap();
        assert_eq!(epochs.lines().count(), 1, "only the real node started commands, once each: {epochs}");
    }
    real.end();
}

#[test]
fn groups_from_the_store_are_served_while_they_are_there() {
    let place = Sandbox::new();
    let flags = ["--serve", "orders-*,billing", "--ttl", "2s", "--new-namespace", "--", "sh", "-c", NOTE];
    let (a, b) = (run(&place, "a", &flags), run(&place, "b", &flags));
    wait_for("both are there", PATIENCE, || {
        (place.stdout(&["nodes"]).matches("active").count() == 2).then_some(())
    });
    let create = |name: &str| place.leasehold(&["group", "create", name, "shards=4"]);
    for name in ["orders-eu", "billing", "other"] {
        let output = create(name);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let of = |group: &str| -> usize {
        held(&place).iter().filter(|((of, _), _)| of == group).map(|(_, shards)| shards).sum()
    };
    wait_for("they are served", PATIENCE, || (of("orders-eu") == 4 && of("billing") == 4).then_some(()));
    assert_eq!(of("other"), 0);
    let again = create("billing");
    assert_eq!(again.status.code(), Some(1), "{}", String::from_utf8_lossy(&again.stderr));

    let refused = place.leasehold(&["group", "delete", "billing"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--stop"));
    assert_eq!((refused.status.code(), of("billing")), (Some(1), 4));
    let deleted = place.leasehold(&["group", "delete", "billing", "--stop"]);
    assert!(deleted.status.success(), "{}", String::from_utf8_lossy(&deleted.stderr));
    wait_for("nobody runs it", PATIENCE, || (of("billing") == 0).then_some(()));
    assert_eq!(of("orders-eu"), 4);
    let groups = place.stdout(&["group", "list"]);
    assert!(!groups.contains("billing"), "nobody writes it again: {groups}");

    assert!(create("billing").status.success());
    wait_for("it is back", PATIENCE, || (of("billing") == 4).then_some(()));
    let epochs = wait_for("it runs again", PATIENCE, || {
        let text = fs::read_to_string(place.path().join("ran.billing.0")).unwrap();
        let epochs: Vec<u64> = text.lines().map(|line| line.parse().unwrap()).collect();
        (epochs.len() >= 2).then_some(epochs)
    });
    assert!(epochs.is_sorted_by(|a, b| a < b), "{epochs:?}");
    a.end();
    b.end();
}
