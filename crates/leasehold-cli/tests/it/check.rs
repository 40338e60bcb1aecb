//! `leasehold check` and `leasehold bench`: they pass where they should, fail where they must, and leave nothing.

use std::path::Path;
use std::process::{Command, Output};

use leasehold_servers::{Etcd, EtcdSetup, Kubernetes, Program, RedisServer, S3Server, free_port};
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
    network_check(&format!("etcd://{}/it", server.hosts()), "2s");
    assert_eq!(server.ctl(&["get", "--prefix", "/", "--keys-only"]).trim(), "");
}

#[test]
fn redis_passes_and_the_password_is_nowhere() {
    let port = free_port();
    let Some(server) = RedisServer::start_at(Program::Redis, port, &["requirepass hush-hush"]) else {
        return;
    };
    network_check(&format!("redis://:hush-hush@127.0.0.1:{port}/0"), "2s");
    let mut shell = server.shell().unwrap();
    shell.ask(&["AUTH", "hush-hush"]).unwrap();
    assert!(shell.ask(&["KEYS", "*"]).unwrap().list().is_empty());
}

#[test]
fn kubernetes_passes_and_its_leases_are_removed() {
    let Some(server) = Kubernetes::start(&[]) else { return };
    network_check(&format!("k8s://default?kubeconfig={}", server.kubeconfig("admin").display()), "3s");
    let left = server.kubectl(&["get", "leases", "--all-namespaces", "-o", "name"]);
    assert_eq!((left.good, left.text.as_str()), (true, ""));
}

#[test]
fn a_bucket_passes_and_its_objects_are_removed() {
    let Some(server) = S3Server::start(Program::SeaweedFs) else { return };
    server.make_bucket("tried");
    network_check(&server.address("tried", ""), "3s");
    assert_eq!(server.objects("tried", "leasehold"), Vec::<String>::new());
}

/// Stores that take few writes a second, or charge for each, are measured like the others, and beside money.
#[test]
fn a_bench_of_a_bucket_says_what_it_costs() {
    let Some(server) = S3Server::start(Program::Moto) else { return };
    server.make_bucket("measured");
    let found = small_bench(&server.address("measured", ""), "5s");
    let money = &found["money"];
    let month = |name: &str| money[name].as_f64().unwrap_or_else(|| panic!("{name} in {found:#}"));
    assert!(month("dollars_a_month") > 0.0 && month("writes_per_hour") >= 3000.0, "{found:#}");
    // What was measured is what the settings promise, give or take what a short time shows.
    let ratio = month("dollars_a_month") / month("dollars_a_month_by_the_settings");
    assert!((0.5..2.0).contains(&ratio), "{found:#}");
    assert_eq!(server.objects("measured", "leasehold"), Vec::<String>::new());
}

#[test]
fn a_bench_of_kubernetes_measures_everything() {
    let Some(server) = Kubernetes::start(&[]) else { return };
    let url = format!("k8s://default?kubeconfig={}", server.kubeconfig("admin").display());
    let found = small_bench(&url, "4s");
    assert!(found["money"].is_null(), "{found:#}");
    let median = found["planned_move"]["median_ms"].as_f64().unwrap();
    assert!(median < 1000.0, "usually a tenth of this or less: {found:#}");
    assert!(server.kubectl(&["get", "leases", "-o", "name"]).text.is_empty());
}

fn small_bench(url: &str, ttl: &str) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let output = leasehold(
        folder.path(),
        &["bench", "--store", url, "--shards", "24", "--ttl", ttl, "--rest-for", "6s", "--json"],
    );
    assert!(output.status.success(), "{}", told(&output));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(found["failover"]["count"].as_u64().unwrap() > 0, "{found:#}");
    assert_eq!(found["broken"], Value::Array(Vec::new()), "{found:#}");
    assert_eq!(found["shard_writes_at_rest"], 0, "{found:#}");
    found
}

/// Every fault of the network, and secrets that must be told to nobody.
fn network_check(url: &str, ttl: &str) {
    let folder = tempfile::tempdir().unwrap();
    let output = leasehold(
        folder.path(),
        &[
            "check", "--store", url, "--for", "15s", "--ttl", ttl, "--shards", "24", "--seed", "4",
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
