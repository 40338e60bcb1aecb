//! The example controller with two API servers and three replicas, as real processes, one of which is killed.

#[path = "../../examples/clusters.rs"]
mod controller;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use leasehold_servers::{Kubernetes as Server, Process, wait_until};

const CLUSTERS: [&str; 4] = ["one-a", "one-b", "two-a", "two-b"];
/// The default on Kubernetes.
const TTL: Duration = Duration::from_secs(15);

/// One owner's time with a cluster, as the reconciliations show it, in milliseconds of the boot clock.
#[derive(Clone, Debug)]
struct Tenure {
    node: String,
    epoch: u64,
    began: u128,
    ended: u128,
    times: usize,
}

struct Replica {
    name: String,
    process: Process,
    log: PathBuf,
}

/// Not a test of its own: as a child process it is a replica of the controller.
#[test]
fn replica() {
    if std::env::var_os("STORE").is_some() {
        controller::main().expect("a replica ends well");
    }
}

#[test]
fn no_cluster_is_ever_reconciled_by_two() {
    let Some(one) = Server::start(&[]) else { return };
    let Some(two) = Server::start(&[]) else { return };
    for name in CLUSTERS {
        let kubeconfig = if name.starts_with("one") { &one } else { &two }.kubeconfig_text("admin");
        make_secret(&one, name, &kubeconfig);
    }
    make_secret(&one, "broken", "this: [is no kubeconfig");
    make_secret(&one, "locked", &two.kubeconfig_text("nobody-knows-this-token"));
    make_secret(&one, "mended", "{apiVersion: v1, kind: Config, current-context: nowhere}");
    let mut replicas: Vec<Replica> = ["a", "b", "c"].iter().map(|name| start(&one, name)).collect();
    let everybody = |replicas: &[Replica]| {
        let tenures = tenures(replicas);
        CLUSTERS
            .iter()
            .all(|cluster| tenures.get(*cluster).is_some_and(|list| list.iter().any(|t| t.times >= 5)))
    };
    assert!(wait_until(Duration::from_secs(60), || everybody(&replicas)), "{}", logs(&replicas));
    assert!(
        logs(&replicas).contains("a Secret with the label of a cluster is invalid"),
        "{}",
        logs(&replicas)
    );

    // The one that has most to do is killed.
    let owner = |cluster: &str, replicas: &[Replica]| {
        tenures(replicas).get(cluster).and_then(|list| list.last().cloned()).expect("it has an owner")
    };
    let victim = owner("two-a", &replicas).node;
    let lost: Vec<&str> = CLUSTERS.into_iter().filter(|name| owner(name, &replicas).node == victim).collect();
    let at = replicas.iter().position(|replica| replica.name == victim).expect("it is one of ours");
    replicas[at].process.kill();
    let taken = |replicas: &[Replica]| {
        lost.iter().all(|cluster| {
            let now = owner(cluster, replicas);
            now.node != victim && now.times >= 5
        })
    };
    assert!(wait_until(TTL * 2 + Duration::from_secs(10), || taken(&replicas)), "{}", logs(&replicas));

    // A cluster that is no more is let go, and one that leaves in order hands over at once.
    assert!(one.kubectl(&["delete", "secret", "one-b"]).good);
    let leaver = owner("two-a", &replicas).node;
    let at = replicas.iter().position(|replica| replica.name == leaver).expect("it is one of ours");
    replicas[at].process.stop();
    let handed_over = |replicas: &[Replica]| {
        let now = owner("two-a", replicas);
        now.node != leaver && now.times >= 5
    };
    assert!(wait_until(Duration::from_secs(20), || handed_over(&replicas)), "{}", logs(&replicas));
    let count = |replicas: &[Replica]| -> usize {
        tenures(replicas).get("one-b").map_or(0, |list| list.iter().map(|t| t.times).sum())
    };
    let before = count(&replicas);
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(count(&replicas), before, "nobody looks after a cluster whose Secret is gone");

    judge(&tenures(&replicas), &victim, &leaver);
    a_mended_secret_is_taken_up(&one, &replicas);
    // The holder of the cluster that rejects all clients reported that once, or again after a timeout, not at every try.
    let mut told = 0;
    for replica in &replicas {
        let log = fs::read_to_string(&replica.log).unwrap_or_default();
        let lines = log.lines().filter(|line| line.contains("Unauthorized")).count();
        assert!(lines <= 3, "{}: {lines} lines\n{log}", replica.name);
        told += lines;
    }
    assert!(told > 0, "{}", logs(&replicas));
}

/// A cluster whose kubeconfig no client could be made of was a failed reconciliation at every try, and no crash.
fn a_mended_secret_is_taken_up(home: &Server, replicas: &[Replica]) {
    let said = |what: &str| -> usize {
        let logs = replicas.iter().map(|replica| fs::read_to_string(&replica.log).unwrap_or_default());
        logs.map(|log| log.lines().filter(|line| line.contains(what)).count()).sum()
    };
    let told = said("mended: store refused: the kubeconfig of the cluster mended");
    assert!((1..=replicas.len()).contains(&told), "told {told} times\n{}", logs(replicas));
    assert_eq!(said("crash"), 0, "{}", logs(replicas));
    let file = home.folder().join("secret-mended");
    fs::write(&file, home.kubeconfig_text("admin")).expect("a file");
    let from = format!("--from-file=kubeconfig={}", file.display());
    let (secret, made) =
        (home.folder().join("secret-mended.json"), ["create", "secret", "generic", "mended"]);
    let text = home.kubectl(&[&made[..], &[&from, "--dry-run=client", "-o", "json"]].concat());
    fs::write(&secret, &text.text).expect("a file");
    let said = home.kubectl(&["patch", "secret", "mended", "--patch-file", &secret.display().to_string()]);
    assert!(said.good, "{}", said.text);
    let attended = || tenures(replicas).get("mended").is_some_and(|list| list.iter().any(|t| t.times >= 2));
    assert!(wait_until(Duration::from_secs(60), attended), "{}", logs(replicas));
}

/// No two tenures of a cluster overlap, epochs rise, and nobody waits longer than stated.
fn judge(tenures: &BTreeMap<String, Vec<Tenure>>, victim: &str, leaver: &str) {
    for (cluster, list) in tenures {
        for pair in list.windows(2) {
            let [before, after] = pair else { unreachable!("windows of two") };
            assert!(before.ended <= after.began, "{cluster} was reconciled by two: {before:?}, {after:?}");
            assert!(before.epoch < after.epoch, "{cluster}: epochs rise: {before:?}, {after:?}");
            let unattended = Duration::from_millis((after.began - before.ended) as u64);
            let (how, most) = match () {
                () if before.node == *victim => ("killed", TTL + Duration::from_secs(5)),
                // Nobody waits for a lease to run out: how long it takes is printed.
                () if before.node == *leaver => ("left", TTL / 2),
                () => ("moved", TTL / 2),
            };
            println!(
                "{cluster}: {} (epoch {}) {how}, {} (epoch {}) took over; unattended for {unattended:?}",
                before.node, before.epoch, after.node, after.epoch
            );
            assert!(
                unattended <= most,
                "{cluster} was unattended for {unattended:?} after its owner was {how}"
            );
        }
    }
}

fn make_secret(server: &Server, name: &str, kubeconfig: &str) {
    let file = server.folder().join(format!("secret-{name}"));
    fs::write(&file, kubeconfig).expect("a file");
    let from = format!("--from-file=kubeconfig={}", file.display());
    let said = server.kubectl(&["create", "secret", "generic", name, &from]);
    assert!(said.good, "{}", said.text);
    let said = server.kubectl(&["label", "secret", name, "leasehold.dev/cluster=true"]);
    assert!(said.good, "{}", said.text);
}

fn start(home: &Server, name: &str) -> Replica {
    let test = std::env::current_exe().expect("this test is a file");
    let store = format!("STORE=k8s://default?kubeconfig={}", home.kubeconfig("admin").display());
    let args = [&store, &format!("NODE={name}"), "NEW_NAMESPACE=yes", &test.display().to_string(), "replica"];
    let args: Vec<String> = args.into_iter().chain(["--exact", "--nocapture"]).map(str::to_owned).collect();
    let process = Process::start(&format!("replica-{name}"), "/usr/bin/env".as_ref(), home.folder(), &args);
    Replica { name: name.to_owned(), process, log: home.folder().join(format!("replica-{name}.log")) }
}

/// All tenures of each cluster, in the order in which they began.
fn tenures(replicas: &[Replica]) -> BTreeMap<String, Vec<Tenure>> {
    let mut all: BTreeMap<String, Vec<Tenure>> = BTreeMap::new();
    for replica in replicas {
        for line in fs::read_to_string(&replica.log).unwrap_or_default().lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let [cluster, epoch, began, ended] = words[..] else { continue };
            let (Ok(epoch), Ok(began), Ok(ended)) = (epoch.parse(), began.parse(), ended.parse()) else {
                continue;
            };
            let list = all.entry(cluster.to_owned()).or_default();
            match list.iter_mut().find(|t| t.node == replica.name && t.epoch == epoch) {
                Some(tenure) => {
                    tenure.ended = tenure.ended.max(ended);
                    tenure.times += 1;
                }
                None => list.push(Tenure { node: replica.name.clone(), epoch, began, ended, times: 1 }),
            }
        }
    }
    for list in all.values_mut() {
        list.sort_by_key(|tenure| tenure.began);
    }
    all
}

fn logs(replicas: &[Replica]) -> String {
    replicas.iter().map(|r| format!("--- {}\n{}\n", r.name, r.process.log_end())).collect()
}
