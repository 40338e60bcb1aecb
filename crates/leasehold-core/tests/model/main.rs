//! An exhaustive model of sessions and shards: every state that the rules allow is visited, and none has two holders.
//! `spec/model.md` explains it. `cargo test -p leasehold-core --test model -- --nocapture` prints the counts and, for
//! each rule that is switched off, the shortest run that goes wrong. `LEASEHOLD_MODEL=large` visits larger spaces as a whole.

mod clocks;
mod moves;
mod normalise;
mod pack;
mod process_moves;
mod search;
mod session_moves;
mod setup;
mod shard_moves;
mod state;
mod store_moves;
mod teeth;

use moves::{KINDS, Violation};
use search::{Found, Symmetry, search, search_first, search_for_traps};
use setup::Setup;

const ALL: &[Violation] = &[
    Violation::TwoHolders,
    Violation::TwoRunning,
    Violation::EpochNotHigher,
    Violation::ReleasedWhileRunning,
];

/// More states than any of these spaces has; reaching it fails the test.
const STATES_MAX: usize = 6_000_000;

/// How many states of a larger space are visited by default.
const FIRST_STATES: usize = 100_000;
/// The same, where what is to be seen lies further from the start.
const FIRST_STATES_LATE: usize = 600_000;

/// Visits all states; each of these kinds of steps must have been possible somewhere, or the run means nothing.
fn all_states_hold(title: &str, setup: &Setup, must_happen: &[&str]) {
    judge(title, setup, must_happen, search(setup, Symmetry::Reduced, ALL, STATES_MAX));
}

/// Visits all states where asked to, and else those nearest to the start, which takes seconds.
fn as_far_as_asked(title: &str, setup: &Setup, must_happen: &[&str]) {
    let first = if setup.late_meta { FIRST_STATES_LATE } else { FIRST_STATES };
    match std::env::var("LEASEHOLD_MODEL").as_deref() {
        Ok("large") => all_states_hold(title, setup, must_happen),
        _ => judge(title, setup, must_happen, search_first(setup, ALL, first)),
    }
}

fn judge(title: &str, setup: &Setup, must_happen: &[&str], found: Found) {
    if found.counterexample.is_some() {
        let again = search(setup, Symmetry::Kept, ALL, usize::MAX);
        let counterexample = again.counterexample.expect("what goes wrong does so under any names");
        panic!("{title}: {:?}\n{}", counterexample.violation, counterexample.trace);
    }
    println!("{title}: {} states, {} steps, depth {}", found.states, found.steps, found.depth);
    for kind in must_happen {
        let at = KINDS.iter().position(|known| known == kind).expect("a kind of step");
        assert!(found.kinds[at] > 0, "{title}: {kind} never happened, so the run shows nothing about it");
    }
}

/// What happens in every run, with crashes, pauses and moves.
const USUAL: &[&str] = &[
    "Tick",
    "TickAsleep",
    "Wake",
    "Crash",
    "Detach",
    "Open",
    "SendRenewal",
    "GiveUpRenewal",
    "LandRenewal",
    "HearRenewal",
    "SendLeave",
    "SendFence",
    "SendClaim",
    "GiveUpClaim",
    "LandClaim",
    "LandLateClaim",
    "HearClaim",
    "ForgetClaim",
    "TellToStop",
    "Stopped",
    "SendRelease",
    "LandRelease",
];

#[test]
fn two_nodes_and_one_shard() {
    all_states_hold("two nodes, one shard, ttl 5", &Setup { ttl: 5, ..Setup::new(2, 1) }, USUAL);
}

#[test]
fn two_nodes_and_two_shards() {
    all_states_hold("two nodes, two shards, ttl 3", &Setup::new(2, 2), USUAL);
}

#[test]
fn three_nodes_and_one_shard() {
    let setup = Setup { crashes: false, ..Setup::new(3, 1) };
    let kinds = ["TickAsleep", "Wake", "Detach", "SendFence", "LandClaim", "LandRelease"];
    all_states_hold("three nodes, one shard, ttl 3, no crashes", &setup, &kinds);
}

#[test]
fn an_old_life_and_a_new_one_of_the_same_name() {
    let setup = Setup { ttl: 4, ..Setup::new(2, 1).twins() };
    all_states_hold("two lives of one name, one shard, ttl 4", &setup, USUAL);
}

#[test]
fn requests_that_land_when_nobody_waits_for_them() {
    let setup = Setup { voluntary: false, pauses: false, ..Setup::new(2, 1).with_latecomers() };
    let kinds = ["Crash", "LandLateRenewal", "LandLateJoin", "LandLateClaim", "LandFence", "LandLeave"];
    all_states_hold("two nodes, one shard, ttl 3, latecomers, no pauses or moves", &setup, &kinds);
}

#[test]
fn a_node_record_that_vanishes() {
    let setup = Setup { vanishes: 1, used_before: true, ..Setup::new(2, 1) };
    let kinds = [USUAL, &["Vanish"]].concat();
    all_states_hold("two nodes, one shard, ttl 3, a record vanishes", &setup, &kinds);
    let setup = Setup { vanishes: 2, ..Setup::new(2, 1).twins() };
    let kinds = [USUAL, &["Vanish", "LandRenewalCopied", "LandLateJoin"]].concat();
    all_states_hold("two lives of one name, one shard, ttl 3, it vanishes twice", &setup, &kinds);
}

const WIPED: &[&str] =
    &["Wipe", "NoticeWipe", "CreateMeta", "OpenMeta", "LearnMeta", "SendCreate", "LandLateClaim"];

const HOLED: &[&str] = &["Hole", "SendCreate", "LandClaim", "LandLateClaim", "HearClaim", "Repair"];

#[test]
fn a_shard_record_that_vanishes() {
    let setup = Setup { holes: 1, ttl: 2, used_before: true, ..Setup::new(2, 1) };
    let kinds = [USUAL, HOLED].concat();
    all_states_hold("two nodes, one shard, ttl 2, its record vanishes", &setup, &kinds);
    let setup = Setup { holes: 2, crashes: false, pauses: false, ..setup };
    let kinds = [HOLED, &["TellToStop", "SendRelease", "LandRelease"]].concat();
    all_states_hold("two nodes, one shard, ttl 2, its record vanishes twice", &setup, &kinds);
}

#[test]
fn a_store_that_is_emptied() {
    let calm = Setup { crashes: false, pauses: false, voluntary: false, ..Setup::new(2, 1) };
    let setup = Setup { wipes: 1, used_before: true, ..calm };
    all_states_hold("two nodes, one shard, ttl 3, the store is emptied", &setup, WIPED);
    let setup = Setup { voluntary: true, ..setup };
    let kinds = [WIPED, &["TellToStop", "SendRelease", "LandRelease"]].concat();
    all_states_hold("two nodes, one shard, ttl 3, the store is emptied, with moves", &setup, &kinds);
}

#[test]
fn a_meta_that_is_damaged() {
    let calm = Setup { crashes: false, pauses: false, voluntary: false, ..Setup::new(2, 1) };
    let setup = Setup { wipes: 1, damages: 1, used_before: true, ..calm };
    let kinds = [WIPED, &["DamageMeta", "RestoreMeta", "ReplaceMeta"]].concat();
    as_far_as_asked("two nodes, one shard, ttl 3, the store is emptied and meta damaged", &setup, &kinds);
}

#[test]
fn writes_of_meta_that_land_late() {
    let calm = Setup { crashes: false, pauses: false, voluntary: false, ttl: 2, ..Setup::new(2, 1) };
    let setup = Setup { wipes: 2, late_meta: true, used_before: true, ..calm.clone() };
    let kinds = [WIPED, &["SendMeta", "LandMeta"]].concat();
    as_far_as_asked("two nodes, one shard, ttl 2, emptied twice, late writes of meta", &setup, &kinds);
    // With a ttl of 2 and a margin of 1, no session lives long enough for a renewal after the damage.
    let setup = Setup { wipes: 1, damages: 1, ttl: 3, begun: true, ..setup };
    let kinds = ["Wipe", "SendMeta", "LandMeta", "DamageMeta", "RestoreMeta", "ReplaceMeta", "LandClaim"];
    as_far_as_asked(
        "two nodes, one shard, ttl 3, emptied, meta damaged, late writes of meta",
        &setup,
        &kinds,
    );
}

#[test]
fn every_state_leads_on_to_one_where_all_runs() {
    for (title, setup) in [
        ("two nodes, one shard, ttl 3", Setup::new(2, 1)),
        (
            "two nodes, one shard, ttl 2, its record vanishes, no crashes or pauses",
            Setup { holes: 1, ttl: 2, used_before: true, crashes: false, pauses: false, ..Setup::new(2, 1) },
        ),
        ("two lives of one name, ttl 3, it vanishes", Setup { vanishes: 1, ..Setup::new(2, 1).twins() }),
        ("two lives of one name, ttl 3, latecomers", Setup::new(2, 1).twins().with_latecomers()),
    ] {
        let states = search_for_traps(&setup, STATES_MAX).unwrap_or_else(|trap| panic!("{title}: {trap}"));
        println!("{title}: from each of {states} states the shard can run again");
    }
}

#[test]
fn larger_spaces() {
    as_far_as_asked("two nodes, one shard, ttl 6", &Setup { ttl: 6, ..Setup::new(2, 1) }, USUAL);
    as_far_as_asked("three nodes, one shard, ttl 3", &Setup::new(3, 1), USUAL);
    as_far_as_asked("two nodes, one shard, ttl 3, latecomers", &Setup::new(2, 1).with_latecomers(), USUAL);
    let vanishing = Setup { vanishes: 2, used_before: true, ..Setup::new(2, 1) };
    as_far_as_asked("two nodes, one shard, ttl 3, records vanish twice", &vanishing, USUAL);
    let holed = Setup { holes: 1, used_before: true, crashes: false, pauses: false, ..Setup::new(2, 1) };
    as_far_as_asked(
        "two nodes, one shard, ttl 3, its record vanishes",
        &holed,
        &["Hole", "SendCreate", "HearClaim"],
    );
    let wiped = Setup { wipes: 1, used_before: true, ..Setup::new(2, 1) };
    as_far_as_asked("two nodes, one shard, ttl 3, emptied, with crashes and pauses", &wiped, WIPED);
}
