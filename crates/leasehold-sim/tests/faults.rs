//! No fault is only scheduled: every kind takes effect within the schedules of every test run.

use std::time::Duration;

use leasehold_sim::{
    AfterFailure, Fault, FaultKind, MS, Options, Raise, Restart, SECOND, Shutdown, StoreKind, Target,
    run_many,
};

/// How many plain schedules it takes until every kind was met, at the very least this often.
const SEEDS: u64 = 300;
const MET_MIN: u64 = 20;

#[test]
fn every_kind_of_fault_takes_effect() {
    // From where the other tests do not look.
    let summary = run_many(&Options::default(), 1_000_000..1_000_000 + SEEDS, 2, AfterFailure::GoOn, |_| {});
    let seldom: Vec<String> = FaultKind::all()
        .map(|kind| (kind, summary.stats.fault_coverage.of(kind)))
        .filter(|(_, fault_coverage)| *fault_coverage < MET_MIN)
        .map(|(kind, fault_coverage)| format!("{} {fault_coverage}", kind.as_str()))
        .collect();
    assert!(seldom.is_empty(), "met less than {MET_MIN} times in {SEEDS} schedules: {seldom:?}");
}

/// How often a kind took effect in runs that have only these faults, at these seconds.
fn fault_coverage(kind: FaultKind, script: &[(u64, Fault)]) -> u64 {
    let script = script.iter().map(|(second, fault)| (second * SECOND, fault.clone())).collect();
    let (store, faults_for) = (Some(StoreKind::Etcd), Duration::from_secs(60));
    let options = Options { store, faults_for, script: Some(script), ..Options::default() };
    run_many(&options, 0..20, 2, AfterFailure::GoOn, |_| {}).stats.fault_coverage.of(kind)
}

#[test]
fn a_fault_without_an_effect_does_not_count() {
    let (short, long) = (MS, 40 * SECOND);
    // Over before any node can have heard of it, or about a node that is not there.
    let gone = (5, Fault::Crash { slot: 2, then: Restart::Never });
    let (pin, drain) =
        (|lasts| Fault::Pin { shard: 3, slot: 2, lasts }, |lasts| Fault::Drain { slot: 2, lasts });
    assert_eq!(fault_coverage(FaultKind::Pin, &[(15, pin(short))]), 0);
    assert_eq!(fault_coverage(FaultKind::Pin, &[gone.clone(), (15, pin(long))]), 0);
    assert!(fault_coverage(FaultKind::Pin, &[(15, pin(long))]) > 5);
    assert_eq!(fault_coverage(FaultKind::Drain, &[gone.clone(), (15, drain(long))]), 0);
    assert!(fault_coverage(FaultKind::Drain, &[(15, drain(long))]) > 5);
    // Nothing wants to move, or a node that comes back should get something.
    let freeze = (2, Fault::Freeze { lasts: 50 * SECOND });
    assert_eq!(fault_coverage(FaultKind::Freeze, &[(30, Fault::Freeze { lasts: short })]), 0);
    assert!(fault_coverage(FaultKind::Freeze, &[(1, Fault::Weight { slot: 1, weight: 400 }), freeze]) > 5);
    assert_eq!(fault_coverage(FaultKind::Release, &[(15, Fault::Release { shard: 999 })]), 0);
    assert!(fault_coverage(FaultKind::Release, &[(15, Fault::Release { shard: 3 })]) > 5);
    let disengage = |lasts| Fault::Disengage { shard: 1, slot: None, lasts };
    assert_eq!(fault_coverage(FaultKind::Disengage, &[(15, disengage(short))]), 0);
    assert!(fault_coverage(FaultKind::Disengage, &[(15, disengage(long))]) > 1);
    let twin = (15, Fault::Twin { slot: 2, lasts: long });
    assert_eq!(
        fault_coverage(FaultKind::Twin, &[(5, Fault::Crash { slot: 2, then: Restart::Never }), twin.clone()]),
        0
    );
    assert!(fault_coverage(FaultKind::Twin, &[twin]) > 5);
    // What is not there cannot vanish.
    let vanish = |what| (15, Fault::Vanish { what });
    assert_eq!(fault_coverage(FaultKind::VanishControl, &[vanish(Target::Control)]), 0);
    assert_eq!(
        fault_coverage(
            FaultKind::VanishControl,
            &[(5, Fault::Freeze { lasts: long }), vanish(Target::Control)]
        ),
        20
    );
    assert_eq!(fault_coverage(FaultKind::VanishMeta, &[vanish(Target::Meta)]), 20);
    assert_eq!(fault_coverage(FaultKind::VanishShard, &[vanish(Target::Shard(999))]), 0);
    assert_eq!(fault_coverage(FaultKind::VanishShard, &[vanish(Target::Shard(3))]), 20);
    assert_eq!(fault_coverage(FaultKind::VanishShards, &[vanish(Target::Shards)]), 20);
    // Nodes that are there go on; a node that starts has to wait.
    let raise = Fault::Protocol { slot: 2, raise: Raise::Protocol, lasts: 20 * SECOND };
    assert!(fault_coverage(FaultKind::Protocol, &[(15, raise)]) > 5);
    let back = (30, Fault::Downgrade { gap: SECOND, how: Shutdown::Graceful });
    assert_eq!(fault_coverage(FaultKind::Downgrade, std::slice::from_ref(&back)), 0, "no node is newer");
    assert!(
        fault_coverage(FaultKind::Downgrade, &[(15, Fault::Upgrade { slot: 2, after: SECOND }), back]) > 5
    );
}
