//! What the simulator found once, put back in front of it. Each is the shortest schedule that showed the bug, over
//! several seeds, on the stores where it showed.

use std::time::Duration;

use leasehold_sim::{
    AfterFailure, Damage, Fault, Generation, GroupKind, Options, PausePoint, Profile, Restart, SECOND,
    StoreKind, Target, Tracing, Traffic, report, run, run_many,
};

fn holds(store: StoreKind, script: Vec<(u64, Fault)>) {
    let script: Vec<_> = script.into_iter().map(|(second, fault)| (second * SECOND, fault)).collect();
    let options = Options {
        store: Some(store),
        script: Some(script),
        faults_for: Duration::from_secs(60),
        ..Options::default()
    };
    let summary = run_many(&options, 0..20, 2, AfterFailure::Stop, |_| {});
    if let Some((seed, _)) = summary.failures.first() {
        let told = Options { tracing: Tracing::On, ..options };
        panic!("{}", report::failure(&told, &run(&told, *seed)));
    }
}

/// All kinds of faults but those that there were not yet when the seeds below were found: the same schedules as then.
fn as_found() -> Profile {
    let later = "-corrupt-meta,-vanish-shard,-vanish-shards,-vanish-control,-vanish-meta,-stall,-slow-gate,-clock-rate,-full-disk,-placement,-rolling-ttl,-cut-renewals,-frozen,-step-down";
    later.parse().expect("a list of faults")
}

fn vanish(what: Target) -> Fault {
    Fault::Vanish { what }
}

/// A new session was opened over the hole while the work of the former one was still stopping: two workers ran.
#[test]
fn no_node_joins_while_its_former_work_runs() {
    for store in [StoreKind::Etcd, StoreKind::Redis, StoreKind::Memory] {
        holds(store, vec![(20, vanish(Target::Node(1))), (40, vanish(Target::Node(2)))]);
    }
}

/// Slots that a smaller group had retired were never claimed again when it grew.
#[test]
fn a_group_that_shrinks_and_grows_again_is_whole() {
    let script = vec![(10, Fault::Resize { shards: 3 }), (25, Fault::Resize { shards: 16 })];
    holds(StoreKind::Etcd, script.clone());
    holds(StoreKind::Object, script);
}

/// A rolled-back store showed a session as alive that all nodes knew to be dead, and its node waited forever.
#[test]
fn a_dead_session_that_a_rollback_revives_keeps_no_node_out() {
    let script = vec![
        (15, Fault::Upgrade { slot: 2, after: 3 * SECOND }),
        (40, Fault::RolledBack { by: 25 * SECOND }),
    ];
    for store in [StoreKind::Etcd, StoreKind::Kubernetes, StoreKind::Postgres] {
        holds(store, script.clone());
    }
}

/// Where listings lag, an emptied store was not noticed, and late news was taken for a rollback.
#[test]
fn late_listings_prove_nothing() {
    holds(StoreKind::Object, vec![(20, Fault::Emptied { generation: Generation::Kept })]);
    let stale = Fault::StaleLists { lasts: 40 * SECOND, lag: 25 * SECOND };
    holds(StoreKind::Object, vec![(5, stale.clone()), (11, vanish(Target::Node(2)))]);
    holds(StoreKind::Object, vec![(5, stale), (12, Fault::Emptied { generation: Generation::Kept })]);
}

/// A slot retired under epoch 43 was claimed under 42 right after the store was emptied.
#[test]
fn epochs_rise_over_retired_slots_of_an_emptied_store() {
    let script =
        vec![(20, Fault::Resize { shards: 8 }), (30, Fault::Emptied { generation: Generation::Kept })];
    for store in [StoreKind::Redis, StoreKind::Etcd, StoreKind::Memory] {
        holds(store, script.clone());
    }
}

/// A damaged record counts as held until no node can be holding the shard, and is then repaired.
#[test]
fn damage_is_mended() {
    for how in [Damage::Noise, Damage::Cut, Damage::Usurped] {
        for what in [Target::Shard(3), Target::Node(1), Target::Group(GroupKind::Numbered), Target::Control] {
            holds(StoreKind::Etcd, vec![(20, Fault::Corrupt { what, how })]);
        }
    }
}

/// If `meta` is deleted, all nodes stop; if the operators' commands are, all nodes forget them. Both recover. A damaged `meta`
/// is written again by a node that knows what it said.
#[test]
fn shared_records_can_be_lost() {
    for store in [StoreKind::Etcd, StoreKind::Object] {
        holds(store, vec![(20, vanish(Target::Meta)), (50, vanish(Target::Meta))]);
        holds(store, vec![(20, Fault::Drain { slot: 1, lasts: 30 * SECOND }), (25, vanish(Target::Control))]);
        for how in [Damage::Noise, Damage::Cut, Damage::TooNew] {
            holds(store, vec![(20, Fault::Corrupt { what: Target::Meta, how })]);
        }
    }
}

/// A group remembered which slots have had a record only once all of them had one. Before that, a newcomer took a deleted
/// record for one that never was, and claimed the shard at once, next to a holder that stood still, and under its epoch.
#[test]
fn a_deleted_record_of_a_group_that_is_not_full_is_not_taken_for_new() {
    let room = (0..5).map(|slot| (3, Fault::Capacity { slot, capacity: Some(4) }));
    let larger = [(3, Fault::Resize { shards: 24 })];
    let pause = |slot| (9, Fault::Pause { slot, lasts: 2 * SECOND, point: PausePoint::Anywhere });
    let then = Restart::NewName { after: SECOND / 10 };
    let newcomer = [(9, vanish(Target::Shards)), (9, Fault::Crash { slot: 4, then })];
    let script: Vec<_> = room.chain(larger).chain((0..4).map(pause)).chain(newcomer).collect();
    for store in [StoreKind::Etcd, StoreKind::Redis, StoreKind::Local] {
        holds(store, script.clone());
    }
}

/// A newcomer that could not read the record of the group took it for one that remembers nothing, with the same end.
#[test]
fn a_node_that_cannot_read_what_a_group_remembers_waits() {
    let newer = [(9, Fault::Corrupt { what: Target::Group(GroupKind::Numbered), how: Damage::TooNew })];
    let pause = |slot| (15, Fault::Pause { slot, lasts: 2 * SECOND, point: PausePoint::Anywhere });
    let then = Restart::NewName { after: SECOND / 10 };
    let newcomer = [(15, vanish(Target::Shards)), (15, Fault::Crash { slot: 4, then })];
    let script: Vec<_> = newer.into_iter().chain((0..4).map(pause)).chain(newcomer).collect();
    for store in [StoreKind::Etcd, StoreKind::Redis, StoreKind::Local] {
        holds(store, script.clone());
    }
}

/// Nodes wrote a deleted record of a group again without the floor of epochs that they had known, and a named shard whose
/// record had been removed long ago began again with an epoch that it had had.
#[test]
fn a_deleted_group_keeps_its_floor_of_epochs() {
    let away = (5, Fault::Disengage { shard: 0, slot: None, lasts: 45 * SECOND });
    for store in [StoreKind::Etcd, StoreKind::Redis, StoreKind::Local] {
        holds(store, vec![away.clone(), (47, vanish(Target::Group(GroupKind::Named)))]);
    }
}

/// A node saw that records were gone, and then nothing for a long time, in which their holders wrote them again and lost them once
/// more. It counted its wait from the first loss, and took at once what they were running.
#[test]
fn missed_reads_restart_the_waiting_period() {
    let others_stand_still = |second| {
        [0, 2, 3, 4]
            .map(|slot| (second, Fault::Pause { slot, lasts: 3 * SECOND, point: PausePoint::Anywhere }))
    };
    let lost = |second| others_stand_still(second).into_iter().chain([(second, vanish(Target::Shards))]);
    // It sees the first loss, and not that the others write their records again.
    let blind = (7, Fault::Cut { slot: 1, lasts: 45 * SECOND, traffic: Traffic::Work });
    let script: Vec<_> = lost(5).chain([blind]).chain(lost(52)).collect();
    for store in [StoreKind::Etcd, StoreKind::Redis, StoreKind::Postgres] {
        holds(store, script.clone());
    }
}

/// A shard had been repaired, with the time as its epoch, and restarted at once; then the store was emptied, and the node that
/// began the new incarnation knew nothing of that and counted from the same second.
#[test]
fn epochs_that_ran_ahead_of_time_are_not_used_again() {
    let (faults, faults_for) = (as_found(), Duration::from_secs(40));
    let options = Options { nodes: 3, shards: 6, faults, faults_for, ..Options::default() };
    let outcome = run(&options, 1_384_253);
    assert!(outcome.violation.is_none(), "{}", report::failure(&options, &outcome));
}

/// Two records were scribbled over with sessions of one name that no node has. The tombstone that freed the first shard was
/// removed, although the second one still waited for it.
#[test]
fn a_tombstone_stays_while_a_node_waits_for_its_name() {
    let options = Options { faults: as_found(), ..Options::default() };
    let outcome = run(&options, 1511);
    assert!(outcome.violation.is_none(), "{}", report::failure(&options, &outcome));
}

/// Renewals went through and nothing else did, so that a holder never saw that its shard's record was damaged, and
/// went on forever, while the others took the shard when no node could be holding it any more.
#[test]
fn a_node_that_cannot_list_does_not_hold_for_ever() {
    let cuts =
        (0..5).map(|slot| (15, Fault::Cut { slot, lasts: 60 * SECOND, traffic: Traffic::Work })).skip(1);
    let damage = (0..16).map(|shard| (20, Fault::Corrupt { what: Target::Shard(shard), how: Damage::Noise }));
    for store in [StoreKind::Etcd, StoreKind::Redis, StoreKind::Postgres] {
        holds(store, cuts.clone().chain(damage.clone()).collect());
    }
}

/// A record was scribbled over with a session that was known to be over. A node that saw that took the shard at once, while its
/// holder, whose watch had lost the change, went on until its next listing.
#[test]
fn a_record_that_names_an_ended_session_is_damaged() {
    let usurp = |second, shard| (second, Fault::Corrupt { what: Target::Shard(shard), how: Damage::Usurped });
    let deaf = (0..4).map(|slot| (54, Fault::WatchLoss { slot, lasts: 6 * SECOND }));
    // The first one is proved dead by the time of the others.
    let script: Vec<_> =
        [usurp(5, 0)].into_iter().chain(deaf).chain((1..16).map(|shard| usurp(55, shard))).collect();
    for store in [StoreKind::Etcd, StoreKind::Redis, StoreKind::Postgres] {
        holds(store, script.clone());
    }
}

/// A lone node waited for its own lost record first, and then once more as long for another's that a shard named.
#[test]
fn waits_for_lost_sessions_do_not_follow_each_other() {
    let (faults, store) = (as_found(), Some(StoreKind::Object));
    let options = Options { nodes: 1, shards: 3, store, faults, ..Options::default() };
    for seed in [51, 247, 544] {
        let outcome = run(&options, seed);
        assert!(outcome.violation.is_none(), "{}", report::failure(&options, &outcome));
    }
}

/// The clock of a node slowed down after its session was lost, while its work refused to stop. The simulator judged the
/// dead-man timer by the rate that the clock had had before.
#[test]
fn a_clock_that_slows_down_after_a_loss_moves_the_deadlines_with_it() {
    let refusing = (0..5).map(|slot| (5, Fault::Refuse { slot, lasts: 60 * SECOND }));
    let slower = (0..5).map(|slot| (22, Fault::ClockRate { slot, rate: 990_000 }));
    let script: Vec<_> =
        refusing.chain([(20, Fault::RolledBack { by: 10 * SECOND })]).chain(slower).collect();
    for store in [StoreKind::Kubernetes, StoreKind::Object] {
        holds(store, script.clone());
    }
}
