//! The schedules that are made for a broken rule, where it takes several faults at once to show that it is broken.

use std::fmt;

use leasehold_core::rules::Rule;

use crate::clock::{Instant, MS, SECOND};
use crate::faults::{Damage, Fault, Going, Place, Target, Way};
use crate::sabotage::{Order, Sabotage};
use crate::shape::StoreKind;
use crate::store::Generation;

/// What provokes a broken rule.
pub(crate) struct Provocation {
    pub(crate) store: Option<StoreKind>,
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
        self.store.map_or(Ok(()), |store| write!(f, " on {store}"))
    }
}

fn drawn(store: Option<StoreKind>, faults: &'static str) -> Option<Provocation> {
    Some(Provocation { store, faults, script: None })
}

fn scripted(store: StoreKind, script: Vec<(Instant, Fault)>) -> Option<Provocation> {
    Some(Provocation { store: Some(store), faults: "none", script: Some(script) })
}

/// The runs that are made for this.
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
        Sabotage::Store(Order::MetaReadLast) => drawn(Some(StoreKind::Object), "emptied=6"),
        _ => None,
    }
}

/// The store is emptied and begins to settle; then `meta` is damaged. Whoever slept through that knows the one before, and
/// holders that are cut off run on.
fn old_meta_returns() -> Vec<(Instant, Fault)> {
    let at = 20 * SECOND;
    let cut = |slot| (at, Fault::Cut { slot, lasts: 12 * SECOND, way: Way::Both });
    let sleeper = Fault::Pause { slot: 2, lasts: SECOND, place: Place::Anywhere };
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
    let rolling = Fault::RollingTtl { gap: 60 * SECOND, how: Going::Told, ttl: longer };
    vec![
        (5 * SECOND, rolling),
        (28 * SECOND, Fault::Cut { slot: 0, lasts: 30 * SECOND, way: Way::Both }),
        (28 * SECOND + 100 * MS, Fault::Emptied { generation: Generation::Kept }),
    ]
}
