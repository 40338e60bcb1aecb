//! `may_move` against a twin that looks at each reason by itself, and finds out by trying for how long it holds.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_core::may_move::{Move, Receiver, Room, Unmoved, may_move};
use leasehold_core::record::Policy;
use leasehold_core::{Moment, NodeName};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

/// A move, in milliseconds and plain numbers. Small ones, so that they meet.
#[derive(Clone, Debug)]
struct Case {
    at: u64,
    freeze: Option<String>,
    pinned_here: bool,
    frozen_until: u64,
    plan_is_stale: bool,
    moved_at: Option<u64>,
    started_at: u64,
    on_trial_until: Option<u64>,
    begun: Vec<u64>,
    running: usize,
    cooldown: u64,
    min_run: u64,
    moves_max: u32,
    window: u64,
    kept_min: u32,
    running_in_all: usize,
    kept_min_in_all: u32,
    to: Option<To>,
}

#[derive(Clone, Debug)]
struct To {
    receives: bool,
    silent_for: Option<u64>,
    ttl: u64,
    agrees: bool,
    missed_at: Option<u64>,
    in_all: Option<u32>,
    of_group: Option<u32>,
}

fn rarely() -> impl Strategy<Value = bool> {
    prop::bool::weighted(0.1)
}

fn receivers() -> impl Strategy<Value = To> {
    let room = || prop::option::weighted(0.3, 0_u32..4);
    (
        prop::bool::weighted(0.9),
        prop::option::weighted(0.95, 0_u64..60),
        80_u64..120,
        rarely(),
        prop::option::weighted(0.2, 0_u64..=100),
        room(),
        room(),
    )
        .prop_map(|(receives, silent_for, ttl, disagrees, missed_at, in_all, of_group)| To {
            receives,
            silent_for,
            ttl,
            agrees: !disagrees,
            missed_at,
            in_all,
            of_group,
        })
}

fn cases() -> impl Strategy<Value = Case> {
    let frozen = (prop::option::weighted(0.05, "[a-z]{0,3}"), rarely(), 0_u64..110, rarely());
    let times = (
        (prop::option::of(0_u64..=100), 0_u64..=100, prop::option::weighted(0.2, 0_u64..110)),
        prop::collection::vec(0_u64..=100, 0..6),
    );
    let in_all = (1_usize..12, prop::option::weighted(0.2, 1_u32..12).prop_map(Option::unwrap_or_default));
    let policy = (0_u64..20, 0_u64..20, 0_u32..5, 1_u64..80, 0_u32..3, 1_usize..6, in_all);
    let to = prop::option::weighted(0.95, receivers());
    (frozen, times, policy, to).prop_map(|(frozen, times, policy, to)| {
        let (freeze, pinned_here, frozen_until, plan_is_stale) = frozen;
        let ((moved_at, started_at, on_trial_until), mut begun) = times;
        let (cooldown, min_run, moves_max, window, kept_min, running, in_all) = policy;
        begun.sort_unstable();
        let (at, kept_min) = (100, if running < 3 { kept_min } else { 0 });
        Case {
            at,
            freeze,
            pinned_here,
            frozen_until,
            plan_is_stale,
            moved_at,
            started_at,
            on_trial_until,
            begun,
            running,
            cooldown,
            min_run,
            moves_max,
            window,
            kept_min,
            running_in_all: in_all.0,
            kept_min_in_all: in_all.1,
            to,
        }
    })
}

fn moment(ms: u64) -> Moment {
    Moment::ZERO + Duration::from_millis(ms)
}

fn asked(case: &Case, node: &NodeName) -> Result<(), Unmoved> {
    let policy = Policy {
        cooldown_ms: case.cooldown,
        min_run_ms: case.min_run,
        moves_max: case.moves_max,
        move_window_ms: case.window,
        kept_min: case.kept_min,
        ..Policy::default()
    };
    let begun: Vec<Moment> = case.begun.iter().copied().map(moment).collect();
    may_move(&Move {
        at: moment(case.at),
        policy,
        frozen_by_operator: case.freeze.as_deref(),
        pinned_here: case.pinned_here,
        frozen_until: moment(case.frozen_until),
        plan_is_stale: case.plan_is_stale,
        moved_at: case.moved_at.map(moment),
        started_at: moment(case.started_at),
        on_trial_until: case.on_trial_until.map(moment),
        moves_begun: &begun,
        running: case.running,
        running_in_all: case.running_in_all,
        kept_min_in_all: case.kept_min_in_all,
        view: 7,
        to: case.to.as_ref().map(|to| Receiver {
            node,
            receives: to.receives,
            silent_for: to.silent_for.map(Duration::from_millis),
            ttl: Duration::from_millis(to.ttl),
            view: if to.agrees { 7 } else { 8 },
            missed_at: to.missed_at.map(moment),
            room: Room { in_all: to.in_all, of_group: to.of_group },
        }),
    })
}

/// For how many milliseconds from now this stays so, if it is so now: tried one by one.
fn lasts(at: u64, is_so: impl Fn(u64) -> bool) -> Option<u64> {
    let over_in = (0..10_000).find(|ms| !is_so(at + ms)).expect("no reason lasts forever by itself");
    (over_in > 0).then_some(over_in)
}

/// Every reason that there is, whatever the others say.
fn reasons(case: &Case, node: &NodeName) -> Vec<Unmoved> {
    let mut all = Vec::new();
    let Some(to) = &case.to else { return vec![Unmoved::NoReceiver] };
    let began_within = |at: u64| case.begun.iter().filter(|begun| at - **begun < case.window).count();
    let rate = |at: u64| case.moves_max > 0 && began_within(at) >= case.moves_max as usize;
    let cool = |at: u64| case.moved_at.is_some_and(|moved_at| at - moved_at < case.cooldown);
    all.extend(case.freeze.clone().map(Unmoved::FrozenByOperator));
    all.extend(case.pinned_here.then_some(Unmoved::Pinned));
    all.extend(lasts(case.at, |at| at < case.frozen_until).map(Unmoved::FrozenByVanishing));
    all.extend(case.plan_is_stale.then_some(Unmoved::PlanIsStale));
    all.extend(lasts(case.at, cool).map(Unmoved::Cooldown));
    all.extend(lasts(case.at, |at| at - case.started_at < case.min_run).map(Unmoved::MinimumRun));
    let trial = |at: u64| case.on_trial_until.is_some_and(|until| at < until);
    all.extend(lasts(case.at, trial).map(Unmoved::OnTrial));
    all.extend(lasts(case.at, rate).map(Unmoved::Rate));
    let keeps = case.running - 1;
    all.extend((keeps < case.kept_min as usize).then_some(Unmoved::MinimumKept(case.kept_min)));
    let keeps_in_all = case.running_in_all - 1;
    let too_few = keeps_in_all < case.kept_min_in_all as usize;
    all.extend(too_few.then_some(Unmoved::MinimumKeptInAll(case.kept_min_in_all)));
    all.extend((!to.receives).then(|| Unmoved::ReceiverRefuses(node.clone())));
    let silent = to.silent_for.is_none_or(|silent_for| 2 * silent_for > to.ttl);
    all.extend(silent.then(|| Unmoved::ReceiverSilent(node.clone())));
    all.extend((!to.agrees).then(|| Unmoved::ReceiverDisagrees(node.clone())));
    let missed = lasts(case.at, |at| to.missed_at.is_some_and(|missed_at| at - missed_at < to.ttl));
    all.extend(missed.map(|ms| Unmoved::ReceiverMissed(node.clone(), ms)));
    let full = [to.in_all, to.of_group].contains(&Some(0));
    all.extend(full.then(|| Unmoved::ReceiverFull(node.clone())));
    all
}

fn word(answer: &Result<(), Unmoved>) -> String {
    let text = format!("{answer:?}");
    text.split(['(', ' ']).filter(|word| !word.is_empty()).take(2).collect::<Vec<_>>().join(" ")
}

#[test]
fn the_first_of_all_reasons_is_given_and_none_is_missed() {
    let node: NodeName = "b".parse().expect("a node's name");
    let mut runner = TestRunner::new(crate::trying(20_000));
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    for _ in 0..runner.config().cases {
        let case = cases().new_tree(&mut runner).expect("a case").current();
        let answer = asked(&case, &node);
        let expected = reasons(&case, &node).into_iter().next().map_or(Ok(()), Err);
        assert_eq!(answer, expected, "{case:#?}");
        *seen.entry(word(&answer)).or_default() += 1;
    }
    println!("{seen:#?}");
    // Fifteen reasons with a receiver, one without, and none at all.
    assert_eq!(seen.len(), 17, "{seen:#?}");
    assert!(seen.values().all(|times| *times >= 20), "{seen:#?}");
}
