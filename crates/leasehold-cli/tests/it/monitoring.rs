//! The alert rules and the dashboard in `deploy/`, on a real Prometheus.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use leasehold_servers::{Program, Prometheus, RedisServer, promtool, wait_until};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::listen::{address, get, wait_status};
use crate::process::wait_for;
use crate::supervisor::{PATIENCE, Sandbox};

fn root(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

const RULES: &str = "deploy/prometheus/leasehold.rules.yml";
const RULE_TESTS: &str = "deploy/prometheus/leasehold.rules.test.yml";

/// The names of all alerts.
fn alerts() -> BTreeSet<String> {
    let rules = fs::read_to_string(root(RULES)).unwrap();
    let names = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    names.map(str::to_owned).collect()
}

#[test]
fn every_alert_is_tested_and_documented() {
    let tests = fs::read_to_string(root(RULE_TESTS)).unwrap();
    let page = fs::read_to_string(root("docs/monitoring.md")).unwrap();
    for alert in alerts() {
        let fires = format!("alertname: {alert}\n        exp_alerts:\n");
        let quiet = format!("alertname: {alert}, exp_alerts: []");
        assert!(tests.contains(&fires) && tests.contains(&quiet), "{alert} is not tested both ways");
        assert!(page.contains(&format!("\n### {alert}\n")), "docs/monitoring.md lacks {alert}");
    }
    for heading in page.lines().filter_map(|line| line.strip_prefix("### Leasehold")) {
        assert!(alerts().contains(&format!("Leasehold{heading}")), "there is no alert {heading}");
    }
    let arguments = ["test", "rules", "leasehold.rules.test.yml"];
    let Some((fine, said)) = promtool(&root("deploy/prometheus"), &arguments, "") else { return };
    assert!(fine, "{said}");
}

/// The tests of the rules can fail: with a longer `for`, an alert fires too late.
#[test]
fn a_wrong_rule_fails_its_test() {
    let folder = tempfile::TempDir::new().unwrap();
    let rules = fs::read_to_string(root(RULES)).unwrap();
    let late = "leasehold_attached == 0\n        for: 9m";
    let spoiled = rules.replacen("leasehold_attached == 0\n        for: 1m", late, 1);
    assert_ne!(rules, spoiled);
    fs::write(folder.path().join("leasehold.rules.yml"), spoiled).unwrap();
    fs::copy(root(RULE_TESTS), folder.path().join("tests.yml")).unwrap();
    let Some((fine, said)) = promtool(folder.path(), &["test", "rules", "tests.yml"], "") else { return };
    assert!(!fine && said.contains("LeaseholdNodeDetached"), "{said}");
}

/// Every query of the dashboard, with its title; variables are filled in as Grafana does.
fn queries() -> Vec<(String, String)> {
    let text = fs::read_to_string(root("deploy/grafana/leasehold.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let mut queries = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let query = target["expr"].as_str().unwrap();
            let query = query.replace("$node", ".*").replace("$group", ".*");
            let query = query.replace("$__rate_interval", "1m").replace("$__range", "1m");
            assert!(!query.contains('$'), "an unknown variable: {query}");
            queries.push((panel["title"].as_str().unwrap().to_owned(), query));
        }
    }
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        let Some(query) = variable["definition"].as_str() else { continue };
        let inside = query.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')')).unwrap();
        let (metric, label) = inside.split_once(", ").unwrap();
        queries
            .push((format!("variable {label}"), format!("count by ({label}) ({metric}{{{label}!=\"\"}})")));
    }
    assert!(queries.len() > 40, "{}", queries.len());
    queries
}

/// Whether a page has a line that starts and ends like this.
fn shows(page: &str, starts: &str, ends: &str) -> bool {
    page.lines().any(|line| line.starts_with(starts) && line.ends_with(ends))
}

/// A shard that fails, and others that do their work.
const WORK: &str = "if [ $LEASEHOLD_SHARD = 0 ]; then exit 1; fi; exec sleep 1000";

#[test]
fn every_query_of_the_dashboard_shows_something_of_a_cluster_with_faults() {
    // A stopped node must not hold a lock on the store that the others need, so it is not a local one.
    let Some(redis) = RedisServer::start(Program::Redis) else { return };
    let (place, store) = (Sandbox::new(), redis.address());
    let mut flags = vec!["--store", &store, "--listen", "127.0.0.1:0", "--ttl", "3s", "--shards", "12"];
    flags.extend(["--on-failure", "quarantine:2", "--restart-first", "50ms"]);
    flags.extend(["--cooldown", "0s", "--min-run", "0s"]);
    let [a, b, c] = ["a", "b", "c"].map(|name| place.run(name, &flags, WORK));
    let targets = [address(&a), address(&b), address(&c)];
    let Some(prometheus) = Prometheus::start(&targets, &[&root(RULES)]) else { return };
    targets.iter().for_each(|at| drop(wait_status(at, "/readyz?share=1", 200)));
    wait_for("a shard is quarantined", PATIENCE, || {
        let mut pages = targets.iter().map(|at| get(at, "/metrics", &[]).text);
        pages.any(|page| shows(&page, "leasehold_shards_quarantined{", " 1")).then_some(())
    });

    // One node stops renewing until it has lost its session, and operators drain another one.
    c.signal(Signal::SIGSTOP);
    let told = |name: &str| {
        let answer = prometheus.alerts();
        let alerts: Value = serde_json::from_str(&answer).unwrap();
        let alerts = alerts["data"]["alerts"].as_array().cloned().unwrap_or_default();
        alerts.iter().any(|alert| alert["labels"]["alertname"] == *name)
    };
    for name in ["LeaseholdNodeSilent", "LeaseholdShardsQuarantined", "LeaseholdNodeDown"] {
        wait_for(&format!("{name} is told"), PATIENCE, || told(name).then_some(()));
    }
    wait_for("the silent node is fenced", PATIENCE, || {
        let mut pages = targets[..2].iter().map(|at| get(at, "/metrics", &[]).text);
        pages.any(|page| shows(&page, "leasehold_fenced_total{", " 1")).then_some(())
    });
    c.signal(Signal::SIGCONT);
    wait_for("it lost its session", PATIENCE, || {
        shows(&get(&targets[2], "/metrics", &[]).text, "leasehold_detachments_total{", " 1").then_some(())
    });
    assert!(place.leasehold(&["drain", "b", "--store", &store]).status.success());
    wait_for("the drained node hands over", PATIENCE, || {
        shows(&get(&targets[1], "/metrics", &[]).text, "leasehold_shards_owned{", " 0").then_some(())
    });

    // A store that answers with errors for a moment, so that calls fail.
    redis.stall();
    wait_for("calls fail", PATIENCE, || {
        let page = get(&targets[0], "/metrics", &[]).text;
        page.lines()
            .any(|line| line.starts_with("leasehold_store_calls_total{") && line.contains("failed"))
            .then_some(())
    });
    redis.resume();
    wait_status(&targets[0], "/readyz?share=1", 200);

    for (title, query) in queries() {
        // Prometheus needs two samples of a counter before it knows a rate.
        let mut answer = String::new();
        let found = wait_until(Duration::from_secs(20), || {
            answer = prometheus.query(&query);
            let parsed: Value = serde_json::from_str(&answer).unwrap();
            assert_eq!(parsed["status"], "success", "{title}: {query}\n{answer}");
            parsed["data"]["result"].as_array().is_some_and(|result| !result.is_empty())
        });
        assert!(found, "{title} shows nothing: {query}\n{answer}");
    }
}

/// Every metric is explained on the page; those of nodes are shown on the dashboard or watched by a rule.
#[test]
fn every_metric_is_documented_and_used() {
    let page = fs::read_to_string(root("docs/monitoring.md")).unwrap();
    let used = fs::read_to_string(root("deploy/grafana/leasehold.json")).unwrap()
        + &fs::read_to_string(root(RULES)).unwrap();
    let table = include_str!("../../../leasehold/src/observe.rs");
    let rows: Vec<&str> = table.lines().filter_map(|line| line.strip_prefix("//! | `leasehold_")).collect();
    assert!(rows.len() > 40, "the table has {}", rows.len());
    for row in rows {
        assert!(page.contains(&format!("| `leasehold_{row}")), "docs/monitoring.md lacks the row {row}");
        let name = row.split('`').next().unwrap();
        let of_a_node = !name.starts_with("client_") && !name.starts_with("registry_");
        assert!(
            !of_a_node || used.contains(&format!("leasehold_{name}")),
            "neither the dashboard nor a rule uses {name}"
        );
    }
}
