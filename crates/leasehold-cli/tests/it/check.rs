//! `leasehold check` and `leasehold bench`: they pass where they should, fail where they must, and leave nothing.

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use leasehold_servers::{
    Etcd, EtcdSetup, Kubernetes, Program, RedisCluster, RedisSentinel, RedisServer, S3Server, free_port,
    wait_until,
};
use leasehold_store::{Lane, Swap};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::process::{LEASEHOLD, send, to_its_end};

/// How long anything may take that is sure to come.
const PATIENCE: Duration = Duration::from_secs(120);

fn leasehold(folder: &Path, args: &[&str]) -> Output {
    to_its_end(Command::new(LEASEHOLD).args(args).current_dir(folder))
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
    assert!(told.contains("BROKEN  stopped_before_deadline"), "{told}");
    assert!(told.contains("leasehold: broken: at_most_one_running_worker"), "{told}");
    assert!(told.contains("FAIL"), "{told}");
    let kept = told.lines().find_map(|line| line.split_once("is kept in ")).expect("where the history is").1;
    assert!(files(Path::new(kept)).iter().any(|name| name == "harness.jsonl"));
    std::fs::remove_dir_all(kept).unwrap();
}

#[test]
fn files_that_cannot_be_written_are_refused_before_anything_is_begun() {
    let folder = tempfile::tempdir().unwrap();
    for (flag, path) in [("--report", "not/there/r.html"), ("--record", ".")] {
        // The other file is not left behind.
        let other = if flag == "--report" { ["--record", "h.jsonl"] } else { ["--report", "r.html"] };
        let args = ["check", "--store", "local:x.db", flag, path];
        let output = leasehold(folder.path(), &[&args[..], &other[..]].concat());
        let told = told(&output);
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(told.contains(path) && told.contains("nothing was started"), "{told}");
        assert!(files(folder.path()).is_empty(), "{:?}", files(folder.path()));
    }
}

#[test]
fn what_means_nothing_beside_a_history_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let start = r#"{"event":"started","shard":"0","node":"a","epoch":1,"at_ns":5}"#;
    std::fs::write(folder.path().join("h.jsonl"), format!("{start}\n")).unwrap();
    let history = ["check", "--history", "h.jsonl"];
    let alone = leasehold(folder.path(), &history);
    assert!(alone.status.success(), "{}", told(&alone));
    for more in [
        ["--report", "r.html"],
        ["--record", "r.jsonl"],
        ["--store", "local:x.db"],
        ["--faults", "kill"],
        ["--for", "3s"],
        ["--seed", "3"],
        ["--nodes", "3"],
        ["--scenario", "blip"],
    ] {
        let output = leasehold(folder.path(), &[&history[..], &more[..]].concat());
        let told = told(&output);
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert!(told.contains("cannot be used with") && told.contains(more[0]), "{told}");
    }
    assert_eq!(files(folder.path()), ["h.jsonl"]);
}

#[test]
fn a_history_without_a_start_proves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    for text in ["", "{\"event\":\"renewed\"}\n"] {
        std::fs::write(folder.path().join("h.jsonl"), text).unwrap();
        let output = leasehold(folder.path(), &["check", "--history", "h.jsonl"]);
        let words = told(&output);
        assert_eq!(output.status.code(), Some(2), "{words}");
        assert!(words.contains("nothing to judge") && !words.contains("kept"), "{words}");
        let output = leasehold(folder.path(), &["check", "--history", "h.jsonl", "--json"]);
        assert_eq!(output.status.code(), Some(2), "{}", told(&output));
        let found: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(found["verdict"], "unknown");
        assert!(found["why"].as_str().unwrap().contains("nothing was judged"), "{found:#}");
    }
}

#[test]
fn what_is_not_judged_between_machines_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let start = |epoch: u64, boot: &str| {
        format!(
            r#"{{"event":"started","shard":"0","node":"a","epoch":{epoch},"at_ns":{epoch},"boot":"{boot}"}}"#
        )
    };
    std::fs::write(folder.path().join("one.jsonl"), format!("{}\n", start(1, "x"))).unwrap();
    std::fs::write(folder.path().join("two.jsonl"), format!("{}\n", start(2, "y"))).unwrap();
    let judged = |files: &[&str]| {
        let words = told(&leasehold(folder.path(), &[&["check", "--history"], files].concat()));
        let json = leasehold(folder.path(), &[&["check", "--json", "--history"], files].concat());
        let json: Value = serde_json::from_slice(&json.stdout).unwrap();
        (words, json["not_judged_between_machines"].clone())
    };
    let (words, json) = judged(&["one.jsonl"]);
    assert!(!words.contains("not judged across machines") && json == Value::Array(vec![]), "{words}{json}");
    let (words, json) = judged(&["one.jsonl", "two.jsonl"]);
    let line = words.lines().find(|line| line.contains("at_most_one_running_worker")).unwrap();
    assert!(line.ends_with("in 2 runs, not judged across machines"), "{words}");
    let line = words.lines().find(|line| line.contains("stopped_before_deadline")).unwrap();
    assert!(line.contains("not judged") && line.ends_with("runs whose end has no deadline: 2"), "{words}");
    assert_eq!(json, serde_json::json!(["at_most_one_running_worker", "epochs_strictly_rise"]));
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
    assert_eq!(found["node_records"]["count"], 3, "{found:#}");
    assert!(found["start"]["bytes_written"].as_u64().unwrap() > 0, "{found:#}");
    let writes = &found["rest"][1];
    assert!(writes["leasehold"].as_f64().unwrap() > 0.0 && writes["write_per_shard"].as_f64().unwrap() > 3.0);
    assert!(files(folder.path()).is_empty());
}

#[test]
fn a_bench_of_the_cost_alone_leaves_the_rest_out() {
    let folder = tempfile::tempdir().unwrap();
    let args = ["--shards", "60", "--nodes", "2", "--ttl", "2s", "--rest-for", "3s", "--cost-only"];
    let output = leasehold(folder.path(), &[&["bench", "--store", "local:x.db"], &args[..]].concat());
    let told = told(&output);
    assert!(output.status.success(), "{told}");
    assert!(told.contains("bytes written per second") && told.contains("(2 records)"), "{told}");
    assert!(!told.contains("failover") && !told.contains("planned move"), "{told}");
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

/// What these commands say of a store that cannot be used, with their exit codes.
fn refused(url: &str) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let said = |command: &str| {
        let output = leasehold(folder.path(), &[command, "--store", url, "--ttl", "10s", "--shards", "8"]);
        assert_eq!(output.status.code(), Some(3), "{command}: {}", told(&output));
        told(&output)
    };
    ["check", "bench"].map(said).into()
}

#[test]
fn a_bucket_that_ignores_conditions_is_refused_before_a_node_is_started() {
    let Some(server) = S3Server::start(Program::Rclone) else { return };
    server.make_bucket("careless");
    for told in refused(&server.address("careless", "")) {
        assert!(told.contains("must not be used") && !told.contains("shards, ttl"), "{told}");
    }
    assert_eq!(server.objects("careless", "leasehold"), Vec::<String>::new());
}

#[test]
fn a_store_that_refuses_every_node_is_told_with_its_words() {
    let setup = EtcdSetup::single(Program::Etcd35).arg("--quota-backend-bytes=4000000");
    let Some(server) = Etcd::start(setup) else { return };
    let url = format!("etcd://{}/it", server.hosts());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = leasehold::store::open(&url, "full").unwrap();
        let value: Vec<u8> = vec![b'x'; 500_000];
        for n in 0..100 {
            let key = format!("nodes/n{n}").parse().unwrap();
            let swap = Swap { key, expect: None, value: Some(value.as_slice().into()) };
            if store.swap(Lane::Work, &[swap]).await.is_err() {
                return;
            }
        }
        panic!("the quota is never used up");
    });
    for told in refused(&url) {
        assert!(told.contains("refuses every node") && told.contains("etcdctl defrag"), "{told}");
    }
}

/// Ended in the middle of its work, for example by a service manager.
#[test]
fn a_check_that_is_told_to_end_leaves_nothing() {
    let Some(server) = RedisServer::start(Program::Redis) else { return };
    let address = server.address();
    let cases = [
        ("check", "local:x.db", Signal::SIGTERM),
        ("check", address.as_str(), Signal::SIGHUP),
        ("bench", address.as_str(), Signal::SIGTERM),
    ];
    for (command, url, signal) in cases {
        let (folder, temporary) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let said = folder.path().join("said");
        let log = std::fs::File::create(&said).unwrap();
        let mut process = Command::new(LEASEHOLD)
            .args([command, "--store", url, "--ttl", "2s", "--shards", "8"])
            .current_dir(folder.path())
            .env("TMPDIR", temporary.path())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let said = || std::fs::read_to_string(&said).unwrap();
        let works = || said().contains("all 8 shards run") || said().contains("at rest");
        let works = wait_until(PATIENCE, works);
        send(process.id(), signal);
        let mut ended = None;
        wait_until(PATIENCE, || {
            ended = process.try_wait().unwrap();
            ended.is_some()
        });
        if ended.is_none() {
            process.kill().unwrap();
        }
        assert!(works, "{command} on {url}: {}", said());
        assert_eq!(ended.and_then(|status| status.code()), Some(1), "{command} on {url}: {}", said());
        assert!(said().contains("interrupted; nothing was"), "{}", said());
        assert_eq!(files(folder.path()), ["said"]);
        assert_eq!(files(temporary.path()), Vec::<String>::new());
        assert!(server.ask(&["KEYS", "*"]).list().is_empty());
    }
}

/// What broke others: one of three nodes with 2,048 shards is cut off for 70 s, and for 5 s. On both stores at once, since
/// most of it is waiting.
#[test]
fn a_node_that_is_cut_off_leaves_nothing_twice_and_comes_back() {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let Some(server) = Etcd::start(EtcdSetup::single(Program::Etcd35)) else { return };
            exact_stories(&format!("etcd://{}/it", server.hosts()));
            assert_eq!(server.ctl(&["get", "--prefix", "/", "--keys-only"]).trim(), "");
        });
        scope.spawn(|| {
            let Some(server) = RedisServer::start(Program::Redis) else { return };
            exact_stories(&server.address());
            assert!(server.ask(&["KEYS", "*"]).list().is_empty());
        });
    });
}

fn exact_stories(url: &str) {
    let cut_off = story(url, "cut-off");
    for promise in ["at_most_one_running_worker", "taken_over_in_time", "balance_within_bound"] {
        assert_eq!(kept(&cut_off, promise), Some(true), "{promise}: {cut_off:#}");
    }
    // Every shard ran at first, a third of them elsewhere, and as many again when the node was back.
    assert!(cut_off["starts"].as_u64().unwrap() > 2048 + 2 * 600, "{cut_off:#}");
    let blip = story(url, "blip");
    assert_eq!(kept(&blip, "nothing_lost"), Some(true), "{blip:#}");
}

/// Plays a scenario as it is, without a number changed.
fn story(url: &str, scenario: &str) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let output = leasehold(folder.path(), &["check", "--store", url, "--scenario", scenario, "--json"]);
    assert!(output.status.success(), "{}", told(&output));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let setting = |name: &str| found["setting"][name].as_str().unwrap();
    assert_eq!((setting("nodes"), setting("shards"), setting("ttl")), ("3", "2048", "10s"), "{found:#}");
    found
}

/// No node reaches the store for longer than the ttl: nothing runs twice, everything runs again, and what that caused is
/// counted. On a server and on a file, both at once, since most of it is waiting.
#[test]
fn an_outage_of_the_store_is_survived_and_what_it_caused_is_told() {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let Some(server) = RedisServer::start(Program::Redis) else { return };
            outage(&server.address(), "3");
            assert!(server.ask(&["KEYS", "*"]).list().is_empty());
        });
        scope.spawn(|| outage("local:x.db", "1"));
    });
}

fn outage(url: &str, faults: &str) {
    let folder = tempfile::tempdir().unwrap();
    let small = ["--shards", "60", "--ttl", "2s", "--json", "--report", "r.html"];
    let args = [&["check", "--store", url, "--scenario", "outage"], &small[..]].concat();
    // What is kept of a broken promise goes with the folder.
    let output = to_its_end(
        Command::new(LEASEHOLD).args(args).current_dir(folder.path()).env("TMPDIR", folder.path()),
    );
    let found: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", told(&output)));
    let promises = found["promises"].as_array().unwrap();
    for promise in promises.iter().filter(|promise| promise["name"] != "no_stampede") {
        assert_eq!(promise["kept"], true, "{found:#}");
    }
    let told = &found["outage"];
    let number = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("no number in {found:#}"));
    assert_eq!((&told["overlaps"], found["faults"].to_string().as_str()), (&0.into(), faults), "{found:#}");
    assert!(number(&told["lasted_ms"]) > 2000 && number(&told["starts_per_shard"]["min"]) >= 1, "{found:#}");
    number(&told["all_owned_after_ms"]);
    for node in told["nodes"].as_array().unwrap() {
        number(&node["stopped_after_ms"]);
        number(&node["back_after_ms"]);
    }
    let started_twice = number(&told["starts_per_shard"]["shards_started_more_than_once"]);
    let largest = number(&told["largest_share_with_all_back"]["shards"]);
    let allowed = number(&told["bounded_share"]) + number(&told["slack"]);
    let good = started_twice == 0 && largest <= allowed;
    assert_eq!(kept(&found, "no_stampede"), Some(good), "{found:#}");
    assert_eq!(output.status.code(), Some(if good { 0 } else { 6 }), "{found:#}");
    let page = std::fs::read_to_string(folder.path().join("r.html")).unwrap();
    assert!(page.contains("<h2>Outage</h2>") && page.contains("starts per shard since the outage"), "{page}");
}

/// Whether a promise was kept; `None` if it was not judged.
fn kept(found: &Value, name: &str) -> Option<bool> {
    let promises = found["promises"].as_array()?;
    promises.iter().find(|promise| promise["name"] == name)?["kept"].as_bool()
}

/// What the other tests do to one server of each kind, for a short time.
#[test]
fn other_releases_and_several_servers_pass_too() {
    let short = |url: &str| {
        let folder = tempfile::tempdir().unwrap();
        let args = ["--for", "6s", "--ttl", "2s", "--shards", "24", "--seed", "4", "--json"];
        let output = leasehold(folder.path(), &[&["check", "--store", url], &args[..]].concat());
        assert!(output.status.success(), "{url}: {}", told(&output));
        let found: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(
            found["faults"].as_u64().unwrap() >= 2 && found["starts"].as_u64().unwrap() > 24,
            "{found:#}"
        );
    };
    if let Some(server) = Etcd::start(EtcdSetup::single(Program::Etcd35)) {
        short(&format!("etcd://{}/it", server.hosts()));
    }
    if let Some(server) = Etcd::start(EtcdSetup::single(Program::Etcd34).members(3)) {
        short(&format!("etcd://{}/it", server.hosts()));
    }
    if let Some(server) = RedisServer::start(Program::Valkey) {
        short(&server.address());
    }
    if let Some(servers) = RedisSentinel::start(Program::Redis, 2) {
        short(&servers.address());
    }
    if let Some(servers) = RedisCluster::start(Program::Redis) {
        short(&servers.address());
    }
}

#[test]
fn a_bench_of_etcd_measures_everything() {
    let Some(server) = Etcd::start(EtcdSetup::single(Program::Etcd34)) else { return };
    small_bench(&format!("etcd://{}/it", server.hosts()), "3s");
    assert_eq!(server.ctl(&["get", "--prefix", "/", "--keys-only"]).trim(), "");
}

#[test]
fn a_bench_of_redis_measures_everything() {
    let Some(server) = RedisServer::start(Program::Redis) else { return };
    small_bench(&server.address(), "3s");
    assert!(server.ask(&["KEYS", "*"]).list().is_empty());
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
    assert!(told.contains("All test data was removed from"), "{told}");
    for fault in ["stall", "cut off", "reset", "slow"] {
        assert!(told.contains(fault), "no {fault} in\n{told}");
    }
    for text in [told.clone(), std::fs::read_to_string(folder.path().join("r.html")).unwrap()] {
        assert!(!text.contains("hush-hush"), "the password was told");
    }
}
