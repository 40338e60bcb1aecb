//! How long a plan takes, on one core, beside the naive way: `cargo bench -p leasehold-core --bench placement`.
//!
//! The naive way formats a string for every pair, hashes it and takes a floating-point logarithm, without any bound on
//! the load: it does less, and is what people write first.

#![allow(
    clippy::disallowed_methods,
    reason = "a benchmark measures with the machine's clock; nothing depends on it"
)]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

use leasehold_core::name::{GroupName, NodeName, ShardId};
use leasehold_core::placement::{Candidate, Placement, Planner, Question, Rendezvous};
use leasehold_core::record::Policy;
use xxhash_rust::xxh3::xxh3_64;

/// Nodes with weights 1 to 8.
fn nodes(count: u32) -> Vec<Candidate> {
    let node = |i: u32| Candidate {
        name: NodeName::new(format!("worker-{i:04}")).expect("a plain name"),
        weight: 1 + i % 8,
        capacity: None,
        zone: None,
    };
    (0..count).map(node).collect()
}

fn question(shards: u32, nodes: Vec<Candidate>) -> Question {
    let group = GroupName::new("bench").expect("a plain name");
    Question {
        nodes,
        shards: (0..shards).map(|slot| ShardId::slot(&group, slot)).collect(),
        policy: Policy::default(),
        pins: BTreeMap::new(),
        declined: BTreeMap::new(),
    }
}

fn naive(question: &Question) -> Vec<u32> {
    let best = |shard: &ShardId| {
        let mut best = (f64::INFINITY, 0);
        for (i, node) in question.nodes.iter().enumerate() {
            let hash = xxh3_64(format!("{shard}:{}", node.name).as_bytes());
            let score = -((hash as f64 + 0.5) / 2f64.powi(64)).ln() / f64::from(node.weight);
            if score < best.0 {
                best = (score, i as u32);
            }
        }
        best.1
    };
    question.shards.iter().map(best).collect()
}

/// What a run took: of the processor, and of the clock on the wall, which is longer on a busy machine.
#[derive(Clone, Copy)]
struct Took {
    processor: Duration,
    wall: Duration,
}

fn time(run: impl FnOnce()) -> Took {
    let (began, began_wall) = (processor_time(), Instant::now());
    run();
    let wall = began_wall.elapsed();
    let processor = match (began, processor_time()) {
        (Some(began), Some(ended)) => ended - began,
        _ => wall,
    };
    Took { processor, wall }
}

#[cfg(unix)]
fn processor_time() -> Option<Duration> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Some(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

#[cfg(not(unix))]
fn processor_time() -> Option<Duration> {
    None
}

fn median(mut times: Vec<Took>) -> Took {
    let middle = times.len() / 2;
    times.sort_unstable_by_key(|took| took.wall);
    let wall = times[middle].wall;
    times.sort_unstable_by_key(|took| took.processor);
    Took { processor: times[middle].processor, wall }
}

fn row(what: &str, took: Took, beside: &str, other: Took, goal: &str) {
    let ms = |time: Duration| format!("{:.2} ms", time.as_secs_f64() * 1e3);
    let ratio = other.processor.as_secs_f64() / took.processor.as_secs_f64();
    let (processor, wall, other) = (ms(took.processor), ms(took.wall), ms(other.processor));
    println!("{what:<30} {processor:>10} {wall:>13}   {beside:<12} {other:>12} {ratio:>9.1} ×   {goal}");
}

fn repeat(runs: usize, mut run: impl FnMut()) -> Took {
    median((0..runs).map(|_| time(&mut run)).collect())
}

fn from_scratch(question: &Question, runs: usize) -> Took {
    repeat(runs, || drop(black_box(Rendezvous.place(black_box(question)))))
}

/// The change from one question to another. Each answer is checked against a plan from scratch.
fn change(before: &Question, after: &Question) -> Took {
    let mut planner = Planner::rendezvous();
    let expected = Rendezvous.place(after);
    let mut times = Vec::new();
    for _ in 0..9 {
        planner.plan(before.clone());
        let next = after.clone();
        let mut answer = None;
        times.push(time(|| answer = Some(black_box(planner.plan(black_box(next))))));
        assert_eq!(answer.as_deref(), Some(&expected), "the planner must agree with a plan from scratch");
    }
    median(times)
}

fn main() {
    println!("medians on one core; weights 1 to 8, default balance\n");
    println!(
        "{:<30} {:>10} {:>13}   {:<12} {:>12} {:>11}   goal",
        "", "processor", "wall", "beside", "processor", "ratio"
    );
    let wide = question(2_048, nodes(1_000));
    let slow = repeat(3, || drop(black_box(naive(black_box(&wide)))));
    row("2,048 shards × 1,000 nodes", from_scratch(&wide, 25), "naive", slow, "< 10 ms");

    let large = question(1_000_000, nodes(100));
    let slow = repeat(1, || drop(black_box(naive(black_box(&large)))));
    let scratch = from_scratch(&large, 7);
    row("1,000,000 shards × 100 nodes", scratch, "naive", slow, "< 1000 ms");

    let mut fewer = large.clone();
    fewer.nodes.remove(42);
    let mut heavier = large.clone();
    heavier.nodes[42].weight += 1;
    row("  a node joins", change(&fewer, &large), "from scratch", scratch, "≥ 10 ×");
    row("  a node leaves", change(&large, &fewer), "from scratch", scratch, "≥ 10 ×");
    row("  a weight rises", change(&large, &heavier), "from scratch", scratch, "≥ 10 ×");
    row("  a weight falls", change(&heavier, &large), "from scratch", scratch, "≥ 10 ×");
}
