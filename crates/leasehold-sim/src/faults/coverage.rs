//! How often each kind of fault took effect, and was not only scheduled. A fault without an effect tests nothing.

use serde::ser::{Serialize, SerializeMap, Serializer};

use leasehold_core::notice::SessionState;
use leasehold_core::store::{Key, Swap};
use leasehold_core::view::ShardView;

use crate::faults::{Fault, FaultKind, PausePoint};
use crate::oracle::records::RecordState;
use crate::world::World;
use crate::world::process::{Leaving, Process};

/// How often each kind of fault took effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultCoverage {
    counts: [u64; FaultKind::COUNT],
}

impl FaultCoverage {
    /// How often this kind took effect.
    pub fn of(&self, kind: FaultKind) -> u64 {
        self.counts[kind as usize]
    }

    /// Once more.
    pub(crate) fn note(&mut self, kind: FaultKind) {
        self.counts[kind as usize] += 1;
    }

    pub(crate) fn add(&mut self, other: &FaultCoverage) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
    }
}

impl Default for FaultCoverage {
    fn default() -> Self {
        FaultCoverage { counts: [0; FaultKind::COUNT] }
    }
}

impl Serialize for FaultCoverage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(FaultKind::COUNT))?;
        for kind in FaultKind::all() {
            map.serialize_entry(kind.as_str(), &self.of(kind))?;
        }
        map.end()
    }
}

impl World {
    /// Counts a fault that takes effect the moment it strikes. Others are counted where they take effect.
    pub(crate) fn note_effect(&mut self, index: usize, fault: &Fault) {
        if fault.kind_if_effective_later().is_some() {
            self.awaiting_effect.push(index);
        }
        if let Some(kind) = fault.kind_if_effective_at_once()
            && self.has_effect(fault)
        {
            self.stats.fault_coverage.note(kind);
        }
    }

    /// Whether there is anything for it to affect.
    fn has_effect(&self, fault: &Fault) -> bool {
        let runs = |slot: usize| self.slots[slot].process.is_some();
        match fault {
            Fault::Crash { slot, .. }
            | Fault::Upgrade { slot, .. }
            | Fault::Placement { slot, .. }
            | Fault::ClockRate { slot, .. } => runs(*slot),
            Fault::Weight { slot, weight } => runs(*slot) && self.slots[*slot].weight != Some(*weight),
            Fault::Capacity { slot, capacity } => {
                runs(*slot) && self.slots[*slot].capacity.flatten() != *capacity
            }
            Fault::NotAccepting { slot, .. } | Fault::WallStep { slot, .. } => runs(*slot),
            Fault::Leave { slot, .. } => {
                self.slots[*slot].process.is_some_and(|it| self.processes[it].leaving == Leaving::No)
            }
            Fault::Pause { slot, point: PausePoint::Anywhere, .. } | Fault::Frozen { slot, .. } => {
                self.slots[*slot].process.is_some_and(|it| self.processes[it].running())
            }
            Fault::MassLeave { slots, .. } => slots.iter().filter(|slot| runs(**slot)).count() > 1,
            Fault::WatchBreak { slot } => self
                .processes
                .iter()
                .any(|it| it.alive && it.watch.connected && slot.is_none_or(|slot| slot == it.slot)),
            Fault::Emptied { .. } => !self.store.records().is_empty(),
            Fault::RolledBack { by: since } | Fault::Failover { loses: since, .. } => {
                self.store.changed_since(self.at.saturating_sub(*since))
            }
            Fault::Resize { shards } => *shards as usize != self.slots_wanted(),
            _ => true,
        }
    }

    /// A process wrote a record: updates what the store says of the shard, and counts the faults that took effect by that.
    pub(crate) fn shard_written(&mut self, process: usize, swap: &Swap) {
        let shard = match &swap.key {
            Key::Shard(shard) if !self.awaiting_effect.is_empty() => Some(self.scenario.number_of(shard)),
            _ => None,
        };
        let before = shard.map(|shard| self.records.get(shard).state.clone());
        self.records.written(self.at, &self.scenario, &swap.key, swap.value.as_deref());
        let (Some(shard), Some(before)) = (shard, before) else { return };
        let had = self.is_holder(process, &before);
        let has = self.is_holder(process, &self.records.get(shard).state);
        if had != has {
            let slot = self.processes[process].slot;
            self.take_effect(|world, index, fault| match fault {
                // The node that the pin names takes the shard.
                Fault::Pin { shard: pinned, .. } => {
                    has && *pinned as usize == shard
                        && world.asked_for.get(&index) == Some(&world.processes[process].name)
                }
                // The node that is drained gives a shard up.
                Fault::Drain { .. } => {
                    had && world.asked_for.get(&index) == Some(&world.processes[process].name)
                }
                Fault::Release { shard: asked } => had && *asked as usize == shard,
                Fault::Disengage { shard: named, slot: at, .. } => {
                    had && world.scenario.first_named() + named == shard && at.is_none_or(|at| at == slot)
                }
                _ => false,
            });
        }
    }

    fn is_holder(&self, process: usize, state: &RecordState) -> bool {
        let RecordState::Held { session, .. } = state else { return false };
        self.processes[process].sessions.iter().any(|mine| mine.id == *session)
    }

    /// A process opened a session or refused to run: if another process of its name lives, the two have met.
    pub(crate) fn names_collide(&mut self, process: usize) {
        if self.awaiting_effect.is_empty() {
            return;
        }
        let name = self.processes[process].name.clone();
        let lives = |(other, node): (usize, &Process)| {
            other != process && node.alive && node.name == name && !node.sessions.is_empty()
        };
        if self.processes.iter().enumerate().any(lives) {
            self.take_effect(|world, _, fault| {
                matches!(fault, Fault::Twin { slot, .. } if world.slots[*slot].name == name)
            });
        }
    }

    /// Finds out whether, while moves are frozen, a node holds a shard that the plan wants elsewhere.
    pub(crate) fn look_for_frozen(&mut self) {
        let freezes = |index: &usize| matches!(self.faults[*index].fault, Fault::Freeze { .. });
        if !self.awaiting_effect.iter().any(freezes) {
            return;
        }
        let attached = |process: &usize| {
            let node = &self.processes[*process];
            node.running() && node.session_state == SessionState::Attached
        };
        let Some(process) = (0..self.processes.len()).find(attached) else { return };
        let view = self.processes[process].core.view(self.now_of(process));
        let kept = |shard: &ShardView| {
            shard.holder.is_some() && shard.wanted.is_some() && shard.wanted != shard.holder
        };
        if view.frozen.is_some() && view.shards.iter().any(kept) {
            self.take_effect(|_, _, fault| matches!(fault, Fault::Freeze { .. }));
        }
    }

    /// Counts those waiting faults for which this is the effect.
    fn take_effect(&mut self, met: impl Fn(&World, usize, &Fault) -> bool) {
        let awaiting_effect = std::mem::take(&mut self.awaiting_effect);
        let (now, later): (Vec<_>, Vec<_>) =
            awaiting_effect.into_iter().partition(|index| met(self, *index, &self.faults[*index].fault));
        self.awaiting_effect = later;
        for index in now {
            if let Some(kind) = self.faults[index].fault.kind_if_effective_later() {
                self.stats.fault_coverage.note(kind);
            }
        }
    }
}

impl Fault {
    /// Its kind, if it takes effect the moment it strikes.
    fn kind_if_effective_at_once(&self) -> Option<FaultKind> {
        Some(match self {
            Fault::Crash { .. } => FaultKind::Crash,
            Fault::Leave { .. } => FaultKind::Leave,
            Fault::Pause { point: PausePoint::Anywhere, .. } => FaultKind::Pause,
            Fault::Frozen { .. } => FaultKind::Frozen,
            Fault::WatchBreak { .. } => FaultKind::WatchBreak,
            Fault::Failover { .. } => FaultKind::Failover,
            Fault::Emptied { .. } => FaultKind::Emptied,
            Fault::RolledBack { .. } => FaultKind::RolledBack,
            Fault::MassLeave { .. } => FaultKind::MassLeave,
            Fault::Weight { .. } => FaultKind::Weight,
            Fault::Capacity { .. } => FaultKind::Capacity,
            Fault::NotAccepting { .. } => FaultKind::Accepting,
            Fault::Resize { .. } => FaultKind::Resize,
            Fault::Upgrade { .. } => FaultKind::Upgrade,
            Fault::WallStep { .. } => FaultKind::WallStep,
            Fault::ClockRate { .. } => FaultKind::ClockRate,
            Fault::Placement { .. } => FaultKind::Placement,
            _ => return None,
        })
    }

    /// Its kind, if it takes effect only when a node does what it asks for.
    fn kind_if_effective_later(&self) -> Option<FaultKind> {
        Some(match self {
            Fault::Pin { .. } => FaultKind::Pin,
            Fault::Drain { .. } => FaultKind::Drain,
            Fault::Freeze { .. } => FaultKind::Freeze,
            Fault::Release { .. } => FaultKind::Release,
            Fault::Disengage { .. } => FaultKind::Disengage,
            Fault::Twin { .. } => FaultKind::Twin,
            _ => return None,
        })
    }
}
