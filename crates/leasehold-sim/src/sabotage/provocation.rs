//! Schedules made for single rules, where only several faults together show that the rule is broken.

use std::fmt;

use leasehold_core::rules::Rule;

use crate::faults::{Damage, Fault, Grace, PausePoint, Restart, Shutdown, Target, Traffic};
use crate::sabotage::{ReadOrder, Sabotage};
use crate::store::Generation;
use crate::store::shape::StoreKind;
use crate::world::clock::{Instant, MS, SECOND};

/// What provokes a broken rule.
pub(crate) struct Provocation {
    pub(crate) store: Option<StoreKind>,
    /// How many nodes and shards, if not as many as usual.
    pub(crate) size: Option<(usize, u32)>,
    /// Which faults are drawn, and how often.
    pub(crate) faults: &'static str,
    /// What happens instead, where no faults that are drawn show it often enough.
    pub(crate) script: Option<Vec<(Instant, Fault)>>,
}

impl fmt::Display for Provocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.script {
            Some(_) => write!(f, "a script")?,
            None => write!(f, "`{}`", self.faults)?,
        }
        self.size.map_or(Ok(()), |(nodes, _)| write!(f, " of {nodes} nodes"))?;
        self.store.map_or(Ok(()), |store| write!(f, " on {store}"))
    }
}

fn drawn(store: Option<StoreKind>, faults: &'static str) -> Option<Provocation> {
    Some(Provocation { store, size: None, faults, script: None })
}

fn scripted(store: StoreKind, script: Vec<(Instant, Fault)>) -> Option<Provocation> {
    Some(Provocation { store: Some(store), size: None, faults: "none", script: Some(script) })
}

/// How many shards there are in scripts for few nodes.
const FEW_SHARDS: u32 = 6;

/// A script for so many nodes: with more of them, others would take what it is about.
fn among(nodes: usize, script: Vec<(Instant, Fault)>) -> Option<Provocation> {
    let size = Some((nodes, FEW_SHARDS));
    Some(Provocation { size, ..scripted(StoreKind::Etcd, script)? })
}

/// The runs made for this rule.
pub(crate) fn made_for_it(sabotage: Sabotage) -> Option<Provocation> {
    match sabotage {
        Sabotage::Core(Rule::ReturningCounts) => drawn(None, "crash=1"),
        Sabotage::Core(Rule::NodesBeforeStart) => {
            drawn(Some(StoreKind::Object), "emptied=4,pause=6,cut=4,vanish-shards=8,watch-lag=8")
        }
        Sabotage::Core(Rule::PublishBeforeStart) => drawn(None, "cut-renewals=16,crash=6,vanish-shards=12"),
        Sabotage::Core(Rule::PublishedIsHeld) => drawn(None, "corrupt=6,cut=4,pause=6"),
        Sabotage::Core(Rule::UnstartedIsNoRelease) => {
            drawn(None, "vanish-shards=10,pause=8,cut-work=6,cut=4,leave=4")
        }
        Sabotage::Core(Rule::MetaRestoredByTheLiving) => scripted(StoreKind::Etcd, old_meta_returns()),
        Sabotage::Core(Rule::TtlMaxIsHeard) => scripted(StoreKind::Etcd, longer_ttl_joins()),
        Sabotage::Core(Rule::NoBlindRetry | Rule::UnknownIsResolved) => among(3, claim_by_a_stale_plan()),
        Sabotage::Core(Rule::OwnRecordNotOlder) => scripted(StoreKind::Etcd, first_record_lands_again()),
        Sabotage::Core(Rule::PublishedBeforeTrust) => among(3, claimed_before_it_was_published()),
        Sabotage::Core(Rule::ClaimStillThere) => among(3, claim_is_lost_unseen()),
        Sabotage::Core(Rule::WatchSettlesNoClaim) => among(3, claim_is_answered_by_the_watch_alone()),
        Sabotage::Core(Rule::ViewsAgree) => among(2, other_placement_for_long()),
        Sabotage::Core(Rule::GroupWriteIsASwap) => drawn(None, "resize=60,slow-store=6,crash=4"),
        Sabotage::Core(Rule::RetiredSlotReturns) => drawn(None, "resize=8,crash=2"),
        Sabotage::Core(Rule::ProofAfterShard) => among(2, back_before_it_is_seen_gone()),
        Sabotage::Store(ReadOrder::MetaReadLast) => {
            Some(Provocation { store: Some(StoreKind::Object), ..among(3, emptied_between_two_parts())? })
        }
        _ => None,
    }
}

/// The store is emptied and its new incarnation begins to settle; then `meta` is damaged. A node that was paused meanwhile knows the former one, and
/// holders that are cut off run on.
fn old_meta_returns() -> Vec<(Instant, Fault)> {
    let at = 20 * SECOND;
    let cut = |slot| (at, Fault::Cut { slot, lasts: 12 * SECOND, traffic: Traffic::All });
    let sleeper = Fault::Pause { slot: 2, lasts: SECOND, point: PausePoint::Anywhere };
    let damage = Fault::Corrupt { what: Target::Meta, how: Damage::Noise };
    vec![
        cut(0),
        cut(1),
        (at, sleeper),
        (at + 100 * MS, Fault::Emptied { generation: Generation::Kept }),
        (at + 990 * MS, damage),
    ]
}

/// A rolling restart gives nodes a longer ttl, one after the other. The first of them is cut off, and the store emptied while
/// others have their former ttl.
fn longer_ttl_joins() -> Vec<(Instant, Fault)> {
    let longer = 20 * SECOND;
    let rolling = Fault::RollingTtl { gap: 60 * SECOND, how: Shutdown::Graceful, ttl: longer };
    vec![
        (5 * SECOND, rolling),
        (28 * SECOND, Fault::Cut { slot: 0, lasts: 30 * SECOND, traffic: Traffic::All }),
        (28 * SECOND + 100 * MS, Fault::Emptied { generation: Generation::Kept }),
    ]
}

/// Pins of all shards to the node of a slot, from then on.
fn pins(at: Instant, slot: usize) -> impl Iterator<Item = (Instant, Fault)> {
    (0..FEW_SHARDS).map(move |shard| (at, Fault::Pin { shard, slot, lasts: 20 * SECOND }))
}

/// Work at node 0 is slow to stop. Meanwhile its shards are to go to node 1, and then to node 2, of which node 1 does not hear: it
/// claims what node 0 gives up, as node 2 does, and has no answer. The claims of node 2 land. It runs the shards and leaves, and
/// only then node 1 can look what became of its own claims.
fn claim_by_a_stale_plan() -> Vec<(Instant, Fault)> {
    let at = 20 * SECOND;
    let given_up = at + 3 * SECOND;
    let slow = Fault::Refuse { slot: 0, lasts: given_up - at };
    let deaf = Fault::WatchLag { slot: 1, lasts: 8 * SECOND, lag: 60 * SECOND };
    let stall = |slot, lasts| (given_up - 100 * MS, Fault::Stall { slot, lasts });
    let blind = Fault::Cut { slot: 1, lasts: 1150 * MS, traffic: Traffic::Work };
    let leave = Fault::Leave { slot: 2, within: SECOND, then: Restart::Never, grace: Grace::None };
    let rest = [
        (at, slow),
        (at + SECOND, deaf),
        stall(1, 2 * SECOND),
        stall(2, SECOND),
        (given_up + 850 * MS, blind),
        (given_up + 1190 * MS, Fault::NotAccepting { slot: 0, lasts: 10 * SECOND }),
        (given_up + 1200 * MS, leave),
    ];
    pins(at + 10 * MS, 1).chain(pins(at + 1100 * MS, 2)).chain(rest).collect()
}

/// Node 2 leaves, and node 1 claims some of its shards over the releases. Its renewals do not get through, so that no other node
/// knows. Then the records of all shards are deleted, which node 1 does not see, and node 0 takes them. Then a renewal of node 1
/// lands.
fn claimed_before_it_was_published() -> Vec<(Instant, Fault)> {
    let at = 20 * SECOND;
    let rest = [
        (at, Fault::Cut { slot: 1, lasts: 2200 * MS, traffic: Traffic::Renewals }),
        (at + 10 * MS, Fault::Leave { slot: 2, within: SECOND, then: Restart::Never, grace: Grace::None }),
        (at + 300 * MS, Fault::WatchLag { slot: 1, lasts: 5 * SECOND, lag: 60 * SECOND }),
        (at + 310 * MS, Fault::Vanish { what: Target::Shards }),
    ];
    pins(at + 320 * MS, 0).chain(rest).collect()
}

/// Node 2 leaves, and node 1 claims some of its shards. Its renewals do not get through, so that no other node knows. Then the records of
/// all shards are deleted, which node 1 does not see. Node 0 takes the shards, runs them and leaves. Then a renewal of node 1 lands,
/// and it looks at all nodes.
fn claim_is_lost_unseen() -> Vec<(Instant, Fault)> {
    let at = 20 * SECOND;
    let leave = |slot| Fault::Leave { slot, within: SECOND, then: Restart::Never, grace: Grace::None };
    let unheard = Fault::Cut { slot: 1, lasts: 2200 * MS, traffic: Traffic::Renewals };
    let deaf = Fault::WatchLag { slot: 1, lasts: 5 * SECOND, lag: 60 * SECOND };
    let rest = [
        (at, unheard),
        (at + 10 * MS, leave(2)),
        (at + 300 * MS, deaf),
        (at + 310 * MS, Fault::Vanish { what: Target::Shards }),
        (at + 1300 * MS, leave(0)),
    ];
    pins(at + 320 * MS, 0).chain(rest).collect()
}

/// As in [`claim_is_lost_unseen`], and the answers to the claims of node 1 are lost: only its watch shows them, before the records are
/// deleted.
fn claim_is_answered_by_the_watch_alone() -> Vec<(Instant, Fault)> {
    let at = 20 * SECOND;
    let leave = |slot| Fault::Leave { slot, within: SECOND, then: Restart::Never, grace: Grace::None };
    let rest = [
        (at, Fault::Cut { slot: 1, lasts: 2400 * MS, traffic: Traffic::Renewals }),
        (at + 5 * MS, Fault::LostAnswers { lasts: 290 * MS, permille: 1000 }),
        (at + 10 * MS, leave(2)),
        (at + 300 * MS, Fault::WatchLag { slot: 1, lasts: 5 * SECOND, lag: 60 * SECOND }),
        (at + 310 * MS, Fault::Vanish { what: Target::Shards }),
        (at + 1700 * MS, leave(0)),
    ];
    pins(at + 320 * MS, 0).chain(rest).collect()
}

/// Node 1 plans without weights, which are very different, and so gives itself less than node 0 gives it.
fn other_placement_for_long() -> Vec<(Instant, Fault)> {
    vec![
        (5 * SECOND, Fault::Weight { slot: 1, weight: 400 }),
        (10 * SECOND, Fault::Placement { slot: 1, lasts: 105 * SECOND }),
    ]
}

/// Node 0 leaves, comes back at once and takes its shards again. Node 1 sees all of that late: it claims what was released, loses,
/// and so sees records of a session before it sees that session. Node 0 is cut off, and its record is deleted: the read of all
/// nodes does not show it.
fn back_before_it_is_seen_gone() -> Vec<(Instant, Fault)> {
    let at = 20 * SECOND;
    let late = Fault::WatchLag { slot: 1, lasts: 4 * SECOND, lag: 2500 * MS };
    let then = Restart::SameName { after: 100 * MS };
    let leave = Fault::Leave { slot: 0, within: SECOND, then, grace: Grace::None };
    vec![
        (at, late),
        (at + 10 * MS, leave),
        (at + 2300 * MS, Fault::Cut { slot: 0, lasts: 4 * SECOND, traffic: Traffic::All }),
        (at + 2400 * MS, Fault::Vanish { what: Target::Node(0) }),
    ]
}

/// Node 2 joins under a new name, and the network repeats its first record for as long as that is refused. The store is
/// emptied while node 2 is paused, and the record lands again. Then the `meta` that the others began is damaged: node 2 knows
/// the one before, and is the first whose renewals get through. Holders that are cut off run on.
fn first_record_lands_again() -> Vec<(Instant, Fault)> {
    let joins = 12 * SECOND;
    let emptied = joins + 2500 * MS;
    let awake = emptied + 1900 * MS;
    let cut_off = |slot| Fault::Cut { slot, lasts: 12 * SECOND, traffic: Traffic::All };
    let unheard = |slot| Fault::Cut { slot, lasts: 2 * SECOND, traffic: Traffic::Renewals };
    let sleep = Fault::Pause { slot: 2, lasts: 2 * SECOND, point: PausePoint::Anywhere };
    vec![
        (joins, Fault::Crash { slot: 2, then: Restart::NewName { after: 100 * MS } }),
        // Else its watch would have shown it renewals that are newer than its first record.
        (joins + 50 * MS, Fault::WatchLag { slot: 2, lasts: 20 * SECOND, lag: 60 * SECOND }),
        (joins + 50 * MS, Fault::DoubledWrites { lasts: 600 * MS, permille: 1000 }),
        (emptied - 100 * MS, cut_off(0)),
        (emptied - 100 * MS, cut_off(1)),
        (emptied - 100 * MS, sleep),
        (emptied, Fault::Emptied { generation: Generation::Kept }),
        (awake - 30 * MS, unheard(3)),
        (awake - 30 * MS, unheard(4)),
        (awake - 10 * MS, Fault::Corrupt { what: Target::Meta, how: Damage::Noise }),
    ]
}

/// Listings show only `meta`, as it was long ago. The nodes that hold the shards are cut off and keep running, and the
/// records of all shards are deleted. A newcomer knows no other node, so it claims the shards; then it reads all nodes, and
/// meanwhile the store is emptied.
fn emptied_between_two_parts() -> Vec<(Instant, Fault)> {
    let at = 60 * SECOND;
    let cut_off = |slot| (at, Fault::Cut { slot, lasts: 12 * SECOND, traffic: Traffic::All });
    vec![
        (0, Fault::StaleLists { lasts: at + 5 * SECOND, lag: 1_000_000 * SECOND }),
        cut_off(0),
        cut_off(1),
        (at + 10 * MS, Fault::Crash { slot: 2, then: Restart::NewName { after: 100 * MS } }),
        (at + 20 * MS, Fault::Vanish { what: Target::Shards }),
        (at + 1050 * MS, Fault::Emptied { generation: Generation::Kept }),
    ]
}
