//! An exhaustive model of sessions and shards. `spec/model.md` explains it.

mod moves;
mod pack;
mod process_moves;
mod search;
mod session_moves;
mod setup;
mod shard_moves;
mod state;
mod store_moves;

use moves::Violation;
use search::{Symmetry, search};
use setup::{Rule, Setup};

const ALL: &[Violation] = &[
    Violation::TwoHolders,
    Violation::TwoRunning,
    Violation::EpochNotHigher,
    Violation::ReleasedWhileRunning,
];

fn holds(title: &str, setup: &Setup, states_max: usize) {
    let found = search(setup, Symmetry::Reduced, ALL, states_max);
    println!("{title}: {} states, {} steps, depth {}", found.states, found.steps, found.depth);
    let none = moves::KINDS.iter().zip(&found.kinds).filter(|(_, times)| **times == 0);
    println!("   never taken: {:?}", none.map(|(kind, _)| kind).collect::<Vec<_>>());
    if let Some(counterexample) = found.counterexample {
        let again = search(setup, Symmetry::Kept, ALL, usize::MAX);
        panic!("{title}: {:?}\n{}", counterexample.violation, again.counterexample.unwrap().trace);
    }
}

#[test]
fn two_nodes_one_shard() {
    holds("two nodes, one shard", &Setup::new(2, 1), 30_000_000);
}

#[test]
fn three_nodes_one_shard() {
    let mut setup = Setup::new(3, 1);
    setup.crashes = false;
    holds("three nodes, one shard", &setup, 30_000_000);
}

#[test]
fn two_nodes_two_shards() {
    let setup = Setup::new(2, 2);
    holds("two nodes, two shards", &setup, 30_000_000);
}

#[test]
fn latecomers() {
    let setup = Setup::new(2, 1).with_latecomers();
    holds("latecomers", &setup, 30_000_000);
}

#[test]
fn vanish() {
    let mut setup = Setup::new(2, 1);
    setup.vanishes = 1;
    holds("vanish", &setup, 30_000_000);
}

#[test]
fn vanish_twins() {
    let mut setup = Setup::new(2, 1).twins();
    holds("twins", &setup, 30_000_000);
    setup.vanishes = 1;
    setup.crashes = false;
    holds("vanish twins no crash", &setup, 30_000_000);
    setup.crashes = true;
    holds("vanish twins", &setup, 30_000_000);
}

#[test]
fn wipe() {
    let mut setup = Setup::new(2, 1);
    setup.wipes = 1;
    holds("wipe", &setup, 30_000_000);
}

#[test]
fn teeth() {
    let _ = Rule::Margin;
    let one = Setup::new(2, 1).without(Rule::DeadlineFromSending);
    let found = search(&one, Symmetry::Kept, ALL, 10_000_000);
    println!("{}", found.states);
    println!("{}", found.counterexample.unwrap().trace);
}

#[test]
#[ignore]
fn explore() {
    let get = |k: &str, d: u8| std::env::var(k).ok().map_or(d, |v| v.parse().unwrap());
    let mut setup = Setup::new(get("P", 2) as usize, get("S", 1) as usize);
    if get("TWINS", 0) == 1 {
        setup = setup.twins();
    }
    setup.latecomers = get("LATE", 0) == 1;
    setup.wipes = get("WIPES", 0);
    setup.vanishes = get("VAN", 0);
    setup.ttl = get("TTL", 3);
    setup.crashes = get("CRASH", 1) == 1;
    setup.pauses = get("PAUSE", 1) == 1;
    setup.voluntary = get("VOL", 1) == 1;
    setup.used_before = get("USED", 0) == 1;
    holds("explore", &setup, 25_000_000);
}
