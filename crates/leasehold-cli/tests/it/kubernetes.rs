//! `leasehold run` on a Kubernetes API: what only Leases and machines with labels can show.

use std::process::Stdio;

use leasehold_servers::Kubernetes;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::process::{send, wait_for};
use crate::supervisor::{PATIENCE, POLITE, Sandbox};

const MACHINE: &str = r#"{"apiVersion":"v1","kind":"Node","metadata":
    {"name":"m1","labels":{"topology.kubernetes.io/zone":"z-1"}}}"#;

#[test]
fn a_node_stands_in_the_zone_of_its_machine_and_what_is_long_gone_leaves_no_lease() {
    let Some(server) = Kubernetes::start(&[]) else { return };
    let made = server.kubectl_as("admin", &["apply", "-f", "-"], MACHINE);
    assert!(made.good, "{}", made.text);
    let url = format!("k8s://default?kubeconfig={}", server.kubeconfig("admin").display());
    let place = Sandbox::new();
    let names = |text: &str| std::fs::write(place.path().join("names"), text).unwrap();
    names("red\nblue\n");
    let flags = ["--store", &url, "--ttl", "3s", "--retired-kept", "3s", "--names", "@names"];
    let _a = place.run("a", &[&flags[..], &["--zone", "node:m1"]].concat(), POLITE);
    let mut b = place.run("b", &[&flags[..], &["--zone", "z-2"]].concat(), POLITE);
    let status = || -> Option<Value> {
        serde_json::from_str(&place.stdout(&["status", "--store", &url, "--json"])).ok()
    };
    let zones = wait_for("both nodes run", PATIENCE, || {
        let nodes = status()?["nodes"].as_array()?.clone();
        let zone =
            |name: &str| nodes.iter().find(|node| node["name"] == name)?["zone"].as_str().map(str::to_owned);
        zone("a").zip(zone("b"))
    });
    assert_eq!(zones, ("z-1".to_owned(), "z-2".to_owned()));

    let leases =
        || server.kubectl(&["get", "leases", "-o", "jsonpath={range .items[*]}{.metadata.name} {end}"]).text;
    let epoch = || {
        let shards = status()?["shards"].as_array()?.clone();
        shards.iter().find(|shard| shard["shard"] == "red" && shard["state"] == "held")?["epoch"].as_u64()
    };
    let before = wait_for("red is held", PATIENCE, epoch);
    let all = leases();
    assert!(all.contains("red") && all.contains("blue"), "{all}");
    b.signal(Signal::SIGTERM);
    assert!(b.end().success(), "{}", b.log());
    names("blue\n");
    let was = all.split_whitespace().count();
    wait_for("the Leases of b and of red are gone", PATIENCE, || {
        let left = leases();
        (!left.contains("red") && left.split_whitespace().count() == was - 2).then_some(())
    });

    // The record is gone, its epochs are not: the node that runs red now has a higher one.
    names("red\nblue\n");
    let after = wait_for("red is held again", PATIENCE, epoch);
    assert!(after > before, "{after} after {before}");
    place.assert_no_overlap();
}

#[test]
fn a_key_is_registered_and_a_machine_that_is_not_there_is_told() {
    let Some(server) = Kubernetes::start(&[]) else { return };
    let url = format!("k8s://default?kubeconfig={}", server.kubeconfig("admin").display());
    let place = Sandbox::new();
    let mut keeper = place
        .command(&["register", "--store", &url, "services/a", "10.0.0.1:80"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let keys = || place.stdout(&["keys", "--store", &url]);
    wait_for("the key is there", PATIENCE, || keys().contains("services/a  10.0.0.1:80").then_some(()));
    let second = place.leasehold(&["register", "--store", &url, "services/a", "10.0.0.2:80"]);
    assert_eq!(second.status.code(), Some(5));
    send(keeper.id(), Signal::SIGTERM);
    assert!(keeper.wait().unwrap().success());
    assert_eq!(keys(), "no registered keys\n");
    let left = server.kubectl(&["get", "leases", "-l", "leasehold.dev/kind in (lease,key)", "-o", "name"]);
    assert_eq!((left.good, left.text.as_str()), (true, ""), "nothing is left");

    let told = |store: &str| {
        let run =
            ["run", "--store", store, "--group", "g", "--shards", "1", "--zone", "node:m9", "--", "true"];
        let output = place.leasehold(&run);
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, text) = told(&url);
    assert_eq!(code, Some(3), "{text}");
    assert!(text.contains("there is no Kubernetes node m9: use spec.nodeName of the pod"), "{text}");
    let (code, text) = told("local:x.db");
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("only a Kubernetes store (k8s://…) can look up the zone of a machine"), "{text}");
}

/// Who may make Leases and look at them, and may not change any.
const RULES: &str = r#"
{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","metadata":{"name":"half","namespace":"default"},
 "rules":[{"apiGroups":["coordination.k8s.io"],"resources":["leases"],"verbs":["get","list","watch","create"]}]}
{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleBinding","metadata":{"name":"half","namespace":"default"},
 "roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"half"},
 "subjects":[{"kind":"User","name":"half","apiGroup":"rbac.authorization.k8s.io"}]}"#;

#[test]
fn who_is_not_let_in_ends_and_who_may_not_write_can_still_be_hurried() {
    let Some(server) = Kubernetes::start(&["half"]) else { return };
    let place = Sandbox::new();
    let url = |user: &str| format!("k8s://default?kubeconfig={}", server.kubeconfig(user).display());
    let mut stranger = place.run("a", &["--store", &url("stranger"), "--ttl", "3s", "--shards", "1"], POLITE);
    assert_eq!(stranger.end().code(), Some(3), "{}", stranger.log());
    assert!(stranger.log().contains("rejected the credentials"), "{}", stranger.log());

    let made = server.kubectl_as("admin", &["apply", "-f", "-"], RULES);
    assert!(made.good, "{}", made.text);
    let patient = ["--ttl", "3s", "--shards", "1", "--drain-within", "10m"];
    let mut half = place.run("b", &[&["--store", &url("half")], &patient[..]].concat(), POLITE);
    half.wait_for_log("verb `update`");
    half.signal(Signal::SIGTERM);
    half.wait_for_log("draining");
    half.hurry();
    assert!(!half.end().success());
}
