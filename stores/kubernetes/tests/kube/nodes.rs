//! Nodes of the library on the store: what people see with kubectl, how fast shards move, and what an outage does.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::{Group, Node, Policy};
use leasehold_kubernetes::Kubernetes;
use leasehold_servers::Kubernetes as Server;

use crate::common::{annotation, applied, leases, now, open, put, run, shared, stranger};

/// Who worked on what, from when to when.
#[derive(Clone, Default)]
struct Diary(Arc<Mutex<Vec<Entry>>>);

#[derive(Clone, Debug)]
struct Entry {
    shard: String,
    node: &'static str,
    epoch: u64,
    began: Duration,
    ended: Option<Duration>,
}

impl Diary {
    async fn start(&self, store: Kubernetes, name: &'static str, ttl: Duration, shards: u32) -> Node {
        let diary = self.clone();
        let work = move |grant: leasehold::Grant| {
            let diary = diary.clone();
            async move {
                let at = {
                    let mut all = diary.0.lock().unwrap();
                    let (shard, epoch) = (grant.shard().to_string(), grant.epoch().0);
                    all.push(Entry { shard, node: name, epoch, began: now(), ended: None });
                    all.len() - 1
                };
                grant.stopped().await;
                diary.0.lock().unwrap()[at].ended = Some(now());
            }
        };
        let node = Node::builder(Arc::new(store)).name(name).ttl(ttl).new_namespace();
        // One planned move at a time, so that each can be told from the others.
        let policy = Policy { moves_max: 1, move_window_ms: 400, ..Policy::default() };
        node.group(Group::numbered("orders", shards).policy(policy), work).start().await.unwrap()
    }

    fn at_work(&self, name: &str) -> usize {
        self.0.lock().unwrap().iter().filter(|e| e.ended.is_none() && e.node == name).count()
    }

    /// The gaps between one owner and the next; panics if there was ever more than one.
    fn gaps(&self) -> Vec<Duration> {
        let mut by_shard: BTreeMap<String, Vec<Entry>> = BTreeMap::new();
        for entry in self.0.lock().unwrap().iter() {
            by_shard.entry(entry.shard.clone()).or_default().push(entry.clone());
        }
        let mut gaps = Vec::new();
        for list in by_shard.values_mut() {
            list.sort_by_key(|entry| entry.began);
            for pair in list.windows(2) {
                let ended = pair[0].ended.unwrap_or(Duration::MAX);
                assert!(ended <= pair[1].began, "two owners at once: {pair:?}");
                assert!(pair[0].epoch < pair[1].epoch, "epochs rise: {pair:?}");
                gaps.push(pair[1].began - ended);
            }
        }
        gaps
    }
}

async fn until(what: &str, at_most: Duration, mut yes: impl FnMut() -> bool) {
    let began_at = now();
    while !yes() {
        assert!(now() - began_at < at_most, "not within {at_most:?}: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

const SOON: Duration = Duration::from_secs(30);

#[test]
fn people_and_other_tools_read_it_rightly() {
    run(async {
        let Some(server) = shared() else { return };
        let diary = Diary::default();
        let ttl = Duration::from_secs(15);
        let node = diary.start(open(&server, "truth"), "worker-0", ttl, 4).await;
        until("all run", SOON, || diary.at_work("worker-0") == 4).await;
        let client = stranger(&server).await;
        let (_, found) = leases(&client, "truth").await;
        for lease in &found {
            let spec = lease.spec.clone().unwrap_or_default();
            let kind = lease.metadata.labels.as_ref().unwrap()["leasehold.dev/kind"].as_str();
            match kind {
                "shard" => {
                    assert_eq!(spec.holder_identity.as_deref(), Some("worker-0"));
                    assert!(spec.acquire_time.is_some());
                    assert_eq!(
                        spec.lease_transitions,
                        Some(1),
                        "{}",
                        annotation(lease, "leasehold.dev/epoch")
                    );
                    assert!(spec.renew_time.is_none() && spec.lease_duration_seconds.is_none());
                }
                "node" => {
                    assert_eq!(spec.holder_identity.as_deref(), Some("worker-0"));
                    assert_eq!(spec.lease_duration_seconds, Some(15));
                    assert!(spec.renew_time.is_some());
                }
                _ => assert!(spec.holder_identity.is_none(), "{kind}"),
            }
        }
        let said = server.kubectl(&["get", "leases", "-l", "leasehold.dev/namespace=truth"]);
        assert_eq!(
            said.text.lines().filter(|line| line.contains("-shard-") && line.contains("worker-0")).count(),
            4
        );
        node.leave().await;
        let (_, found) = leases(&client, "truth").await;
        let held =
            found.iter().filter(|lease| lease.spec.as_ref().is_some_and(|s| s.holder_identity.is_some()));
        assert_eq!(held.count(), 0, "nobody holds anything after a clean leave");
        let renewed =
            found.iter().filter(|lease| lease.spec.as_ref().is_some_and(|s| s.renew_time.is_some()));
        assert_eq!(renewed.count(), 0, "the end of a session is no renewal of it");
        assert_eq!(found.len(), 4 + 4, "four shards, and node, group, meta and anchor");
    });
}

/// How long a write takes on this machine right now: the median, and how to stop asking.
async fn write_latency(store: Kubernetes, stop: Arc<AtomicBool>) -> Duration {
    let mut version = applied(&store, put("nodes/probe", None, b"0")).await;
    let mut spans = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let sent_at = now();
        version = applied(&store, put("nodes/probe", Some(&version), b"0")).await;
        spans.push(now() - sent_at);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    spans.sort();
    spans[spans.len() / 2]
}

#[test]
fn planned_moves_take_a_few_round_trips() {
    run(async {
        let Some(server) = shared() else { return };
        let diary = Diary::default();
        let ttl = Duration::from_secs(15);
        let done = Arc::new(AtomicBool::new(false));
        let moves = async {
            let a = diary.start(open(&server, "moves"), "a", ttl, 24).await;
            until("a has all", SOON, || diary.at_work("a") == 24).await;
            let b = diary.start(open(&server, "moves"), "b", ttl, 24).await;
            until("b gets its share", SOON, || diary.at_work("b") >= 11 && diary.at_work("a") <= 13).await;
            done.store(true, Ordering::Relaxed);
            let gaps = diary.gaps();
            futures::join!(a.leave(), b.leave());
            gaps
        };
        let (mut gaps, write) = futures::join!(moves, write_latency(open(&server, "probe"), done.clone()));
        gaps.sort();
        let (median, slowest) = (gaps[gaps.len() / 2], gaps[gaps.len() - 1]);
        println!(
            "{} planned moves: median {median:?}, slowest {slowest:?}; a write takes {write:?}",
            gaps.len()
        );
        // On a machine that is busy with other things a write alone can take longer than a move should.
        let most = Duration::from_millis(100).max(write * 10);
        assert!(gaps.len() >= 11 && median <= most, "{gaps:?}");
    });
}

#[test]
fn an_outage_of_the_server_ends_by_itself_and_nobody_doubles() {
    run(async {
        let Some(mut server) = Server::start(&[]) else { return };
        let diary = Diary::default();
        let ttl = Duration::from_secs(6);
        let a = diary.start(open(&server, "outage"), "a", ttl, 8).await;
        let b = diary.start(open(&server, "outage"), "b", ttl, 8).await;
        let all = || diary.at_work("a") == 4 && diary.at_work("b") == 4;
        until("both work", SOON, all).await;
        // Shorter than the ttl allows for: the work goes on.
        let before = diary.0.lock().unwrap().len();
        server.stall();
        tokio::time::sleep(Duration::from_secs(2)).await;
        server.go_on();
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(diary.0.lock().unwrap().len(), before, "a stall of 2 s at a ttl of 6 s is survived");
        // Longer: everybody stops in time, and starts again with higher epochs.
        server.stall();
        until("all have stopped", ttl, || diary.at_work("a") + diary.at_work("b") == 0).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        server.go_on();
        until("all work again", SOON, all).await;
        server.restart();
        until("all work after a restart", SOON, all).await;
        diary.gaps();
        a.leave().await;
        b.leave().await;
    });
}
