//! What the library costs: `cargo bench -p leasehold`.
//!
//! Every number stands beside another one that was measured in the same run, because machines differ and are shared.

#![allow(clippy::disallowed_methods)] // a stopwatch may use the monotonic clock

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use leasehold::{Grant, Group, Node, clock};
use leasehold_core::event::Event;
use leasehold_core::store::{Answer, Op, Request, Stored, Swapped, Version};
use leasehold_core::{Action, Config, GroupConfig, GroupName, Moment, Now, ShardId};
use leasehold_local::Local;
use leasehold_store::wrap::Counting;
use leasehold_store::{MemoryServer, Store};

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    let wants = |name: &str| wanted.is_empty() || wanted.iter().any(|word| name.contains(word.as_str()));
    if wants("check") {
        check();
    }
    if wants("steps") {
        steps();
    }
    if wants("memory") {
        memory();
    }
    if wants("local") {
        local();
    }
}

fn heading(text: &str) {
    println!("\n{text}");
}

fn row(what: &str, value: String) {
    println!("  {what:<58} {value:>18}");
}

/// The median of several runs of `body`, per call.
fn per_call(calls: u32, mut body: impl FnMut()) -> Duration {
    let mut runs: Vec<Duration> = (0..11)
        .map(|_| {
            let began = Instant::now();
            for _ in 0..calls {
                body();
            }
            began.elapsed() / calls
        })
        .collect();
    runs.sort();
    runs[runs.len() / 2]
}

fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    sorted.get(sorted.len().saturating_sub(1) * percent / 100).copied().unwrap_or_default()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("tokio starts")
}

/// `grant.check()` beside a bare read of the boot clock.
fn check() {
    heading("grant.check() (goal: within 2 x a bare clock read)");
    runtime().block_on(async {
        let (send, mut receive) = tokio::sync::mpsc::unbounded_channel::<Grant>();
        let node = Node::builder(Arc::new(MemoryServer::new().open("bench")))
            .name("bench")
            .new_namespace()
            .group(Group::leader("one"), move |grant: Grant| {
                let send = send.clone();
                async move {
                    let _ = send.send(grant.clone());
                    grant.stopped().await;
                }
            })
            .start()
            .await
            .expect("a valid configuration");
        let grant = receive.recv().await.expect("a grant");
        let bare = per_call(1_000_000, || {
            black_box(clock::now());
        });
        let checked = per_call(1_000_000, || {
            black_box(grant.check()).expect("a good grant");
        });
        row("bare read of the boot clock", format!("{bare:?}"));
        row("grant.check()", format!("{checked:?}"));
        row("ratio", format!("{:.2} x", checked.as_nanos() as f64 / bare.as_nanos().max(1) as f64));
        node.leave().await;
    });
}

/// A store that answers every request of a core at once, without any other work.
#[derive(Default)]
struct Answering {
    records: std::collections::BTreeMap<leasehold_core::store::Key, Stored>,
    writes: u64,
}

impl Answering {
    fn answer(&mut self, request: &Request) -> Answer {
        match &request.op {
            Op::Read(keys) => Answer::Read {
                found: keys.iter().map(|key| self.records.get(key).cloned()).collect(),
                generation: String::new(),
            },
            Op::List | Op::ListNodes => {
                let entries = self.records.iter().map(|(key, stored)| (key.clone(), stored.clone()));
                let listing =
                    leasehold_core::store::Listing { entries: entries.collect(), ..Default::default() };
                Answer::Listed(if request.op == Op::List { listing } else { listing.nodes_only() })
            }
            Op::Swap(swaps) => {
                let outcomes = swaps.iter().map(|swap| {
                    let current = self.records.get(&swap.key);
                    if current.map(|stored| &stored.version) != swap.expect.as_ref() {
                        return Swapped::Lost(current.cloned());
                    }
                    self.writes += 1;
                    let version = Version::new(self.writes.to_string());
                    if let Some(value) = &swap.value {
                        let stored = Stored { version: version.clone(), value: value.clone() };
                        self.records.insert(swap.key.clone(), stored);
                    }
                    Swapped::Applied(version)
                });
                Answer::Swapped { outcomes: outcomes.collect(), generation: String::new() }
            }
        }
    }
}

/// A core that holds `shards` shards, and the time that it is now.
fn holding(shards: u32) -> (leasehold_core::Node, Answering, Moment, u64) {
    let facts = MemoryServer::new().open("bench").facts();
    let mut config = Config::new("bench".parse().expect("a name"), &facts);
    config.namespace = leasehold_core::config::Namespace::New;
    let group: GroupName = "g".parse().expect("a name");
    config.groups.push(GroupConfig {
        group: group.clone(),
        shards: leasehold_core::record::ShardSet::Numbered(shards),
        policy: Default::default(),
        capacity: None,
    });
    let mut node = leasehold_core::Node::new(config, facts, [7; 32]);
    let mut store = Answering::default();
    let (mut at, mut steps) = (Moment::from_millis(1000), 0);
    let all: Vec<ShardId> = (0..shards).map(|slot| ShardId::slot(&group, slot)).collect();
    while !all.iter().all(|shard| node.owns(shard).is_some()) {
        steps += drive(&mut node, &mut store, &mut at);
    }
    (node, store, at, steps)
}

/// Lets the next deadline come, and answers everything that the core asks. Returns the number of steps.
fn drive(node: &mut leasehold_core::Node, store: &mut Answering, at: &mut Moment) -> u64 {
    let mut out = Vec::new();
    *at = node.deadline().max(*at);
    let now = |at: Moment| Now { at, unix_ms: 1_800_000_000_000 + at.as_millis() };
    node.step(now(*at), Event::Tick, &mut out);
    let mut steps = 1;
    while let Some(action) = out.pop() {
        if let Action::Ask(request) = action {
            let answer = store.answer(&request);
            node.step(now(*at), Event::Answered(request.id, answer), &mut out);
            steps += 1;
        }
    }
    steps
}

fn steps() {
    heading("core steps per second (renewals and listings at rest, the store answers at once)");
    let rate = |shards: u32| {
        let (mut node, mut store, mut at, _) = holding(shards);
        let began = Instant::now();
        let mut steps = 0;
        while began.elapsed() < Duration::from_secs(1) {
            steps += drive(&mut node, &mut store, &mut at);
        }
        steps as f64 / began.elapsed().as_secs_f64()
    };
    let few = rate(16);
    let many = rate(10_000);
    row("holding 16 shards", format!("{few:.0}/s"));
    row("holding 10,000 shards (a listing decodes nothing that did not change)", format!("{many:.0}/s"));
    row("ratio", format!("{:.1} x", few / many));
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn memory() {
    heading("memory per held shard in the core (records, plan and state)");
    let before = resident_kib();
    let (node, store, _, _) = holding(100_000);
    let with_store = resident_kib();
    drop(store);
    row("100,000 shards held", format!("{} MiB", (with_store - before) / 1024));
    row(
        "per shard, with the bytes of the records themselves",
        format!("{} B", (with_store - before) * 1024 / 100_000),
    );
    black_box(node);
}

/// Three nodes and 1,000 shards on one file.
fn local() {
    const SHARDS: u32 = 1000;
    heading("local store, three nodes in one process, 1,000 shards");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("bench.db");
    runtime().block_on(async {
        let running = Arc::new(AtomicU64::new(0));
        let gaps = Arc::new(std::sync::Mutex::new(Gaps::default()));
        let open = || Arc::new(Counting::new(Arc::new(Local::open(&path, "bench").expect("a database"))));
        let stores = [open(), open(), open()];
        let began = Instant::now();
        let mut nodes = Vec::new();
        for (index, store) in stores.iter().enumerate() {
            let (running, gaps) = (running.clone(), gaps.clone());
            let work = move |grant: Grant| {
                let (running, gaps) = (running.clone(), gaps.clone());
                async move {
                    gaps.lock().expect("no poison").started(grant.shard().to_string());
                    running.fetch_add(1, Ordering::SeqCst);
                    grant.stopped().await;
                    running.fetch_sub(1, Ordering::SeqCst);
                    gaps.lock().expect("no poison").stopped(grant.shard().to_string());
                }
            };
            let node = Node::builder(store.clone())
                .name(format!("node-{index}"))
                .new_namespace()
                .group(Group::numbered("g", SHARDS), work)
                .start();
            nodes.push(node.await.expect("a valid configuration"));
        }
        let all = async |running: &AtomicU64| {
            while running.load(Ordering::SeqCst) < u64::from(SHARDS) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        all(&running).await;
        row("cold start to all owned", format!("{:?}", began.elapsed()));

        tokio::time::sleep(Duration::from_secs(8)).await;
        stores.iter().for_each(|store| drop(store.take()));
        let rest = Duration::from_secs(20);
        tokio::time::sleep(rest).await;
        let counts: Vec<_> = stores.iter().map(|store| store.take()).collect();
        let writes: u64 = counts.iter().map(|c| c.node_swaps + c.shard_swaps + c.other_swaps).sum();
        let shards: u64 = counts.iter().map(|c| c.shard_swaps).sum();
        let naive = f64::from(SHARDS) / 10.0;
        let rate = writes as f64 / rest.as_secs_f64();
        row("writes at rest, all three nodes", format!("{rate:.2}/s"));
        row("of them of shard records", format!("{shards}"));
        row("one write per shard per 10 s would be", format!("{naive:.0}/s ({:.0} x)", naive / rate));

        gaps.lock().expect("no poison").gaps.clear();
        let leaver = nodes.pop().expect("three nodes");
        let began = Instant::now();
        leaver.leave().await;
        row("a node leaves: its last word after", format!("{:?}", began.elapsed()));
        all(&running).await;
        row("everything owned again after", format!("{:?}", began.elapsed()));
        let mut gaps = gaps.lock().expect("no poison").gaps.clone();
        gaps.sort();
        row("shards moved", format!("{}", gaps.len()));
        row("gap of a planned move, median", format!("{:?}", percentile(&gaps, 50)));
        row("gap of a planned move, 99 %", format!("{:?}", percentile(&gaps, 99)));
        for node in nodes {
            node.leave().await;
        }
    });
}

#[derive(Default)]
struct Gaps {
    stopped: std::collections::BTreeMap<String, Instant>,
    gaps: Vec<Duration>,
}

impl Gaps {
    fn stopped(&mut self, shard: String) {
        self.stopped.insert(shard, Instant::now());
    }

    fn started(&mut self, shard: String) {
        if let Some(at) = self.stopped.remove(&shard) {
            self.gaps.push(at.elapsed());
        }
    }
}
