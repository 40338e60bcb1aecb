//! `leasehold check` and `leasehold bench`: they pass where they should, fail where they must, and leave nothing.

use std::path::Path;
use std::process::{Command, Output};

use leasehold_servers::{Etcd, EtcdSetup, Program, RedisServer, free_port};
use serde_json::Value;

use crate::process::LEASEHOLD;

fn leasehold(folder: &Path, args: &[&str]) -> Output {
    Command::new(LEASEHOLD).args(args).current_dir(folder).output().unwrap()
}

fn told(output: &Output) -> String {
    format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn files(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn a_good_store_passes_and_nothing_is_left_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let output = leasehold(
        folder.path(),
        &[
            "check",
            "--store",
            "local:x.db",
            "--for",
            "10s",
            "--ttl",
            "2s",
            "--shards",
            "24",
            "--seed",
            "11",
            "--json",
            "--report",
            "r.html",
            "--record",
            "h.jsonl",
        ],
    );
    assert!(output.status.success(), "{}", told(&output));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&found["verdict"], &found["setting"]["seed"]), (&"pass".into(), &"11".into()));
    assert!(found["faults"].as_u64().unwrap() >= 4, "{found:#}");
    assert!(found["starts"].as_u64().unwrap() > 24, "something moved: {found:#}");
    assert_eq!(files(folder.path()), ["h.jsonl", "r.html"]);
    let page = std::fs::read_to_string(folder.path().join("r.html")).unwrap();
    assert!(page.contains("PASS") && page.contains("<svg") && page.ends_with("</html>\n"));
    assert!(!page.contains("http") && !page.contains("<script"), "nothing comes from elsewhere");

    // What was recorded can be judged again, by anybody.
    let again = leasehold(folder.path(), &["check", "--history", "h.jsonl", "--json"]);
    assert!(again.status.success(), "{}", told(&again));
    let again: Value = serde_json::from_slice(&again.stdout).unwrap();
    assert_eq!((&again["starts"], &again["boots"]), (&found["starts"], &1.into()));
}

#[test]
fn workers_that_ignore_their_lease_are_caught() {
    let folder = tempfile::tempdir().unwrap();
    let output = leasehold(
        folder.path(),
        &[
            "check",
            "--store",
            "local:x.db",
            "--for",
            "8s",
            "--ttl",
            "1500ms",
            "--shards",
            "12",
            "--seed",
            "2",
            "--faults",
            "stop",
            "--misbehave",
        ],
    );
    let told = told(&output);
    assert_eq!(output.status.code(), Some(6), "{told}");
    assert!(told.contains("BROKEN  at_most_one_running_worker"), "{told}");
    assert!(told.contains("ran twice at once: "), "{told}");
    assert!(told.contains("leasehold: broken: at_most_one_running_worker"), "{told}");
    assert!(told.contains("FAIL"), "{told}");
    let kept = told.lines().find_map(|line| line.split_once("is kept in ")).expect("where the history is").1;
    assert!(files(Path::new(kept)).iter().any(|name| name == "harness.jsonl"));
    std::fs::remove_dir_all(kept).unwrap();
}

#[test]
fn a_bench_prints_both_sides() {
    let folder = tempfile::tempdir().unwrap();
    let output = leasehold(
        folder.path(),
        &["bench", "--store", "local:x.db", "--shards", "60", "--ttl", "2s", "--rest-for", "4s", "--json"],
    );
    assert!(output.status.success(), "{}", told(&output));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(found["cold_start_ms"].as_f64().unwrap() > 0.0);
    assert!(found["planned_move"]["count"].as_u64().unwrap() > 0, "{found:#}");
    assert!(found["failover"]["count"].as_u64().unwrap() > 0, "{found:#}");
    assert_eq!(found["broken"], Value::Array(Vec::new()), "{found:#}");
    let writes = &found["rest"][1];
    assert!(writes["leasehold"].as_f64().unwrap() > 0.0 && writes["write_per_shard"].as_f64().unwrap() > 3.0);
    assert!(files(folder.path()).is_empty());
}

#[test]
fn etcd_passes_and_its_namespace_is_removed() {
    let Some(server) = Etcd::start(EtcdSetup::single(Program::Etcd34)) else { return };
    network_check(&format!("etcd://{}/it", server.hosts()));
}

#[test]
fn redis_passes_and_the_password_is_nowhere() {
    let port = free_port();
    let Some(_server) = RedisServer::start_at(Program::Redis, port, &["requirepass hush-hush"]) else {
        return;
    };
    network_check(&format!("redis://:hush-hush@127.0.0.1:{port}/0"));
}

/// Every fault of the network, and secrets that must be told to nobody.
fn network_check(url: &str) {
    let folder = tempfile::tempdir().unwrap();
    let output = leasehold(
        folder.path(),
        &[
            "check", "--store", url, "--for", "15s", "--ttl", "2s", "--shards", "24", "--seed", "4",
            "--report", "r.html", "--record", "h.jsonl",
        ],
    );
    let told = told(&output);
    assert!(output.status.success(), "{told}");
    assert!(told.contains("Nothing of this stays on"), "{told}");
    for fault in ["stall", "cut off", "reset", "late"] {
        assert!(told.contains(fault), "no {fault} in\n{told}");
    }
    for text in [told.clone(), std::fs::read_to_string(folder.path().join("r.html")).unwrap()] {
        assert!(!text.contains("hush-hush"), "the password was told");
    }
}
