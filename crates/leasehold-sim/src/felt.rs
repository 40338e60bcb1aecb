//! How often each kind of fault was felt: not planned, but met by somebody. A fault that is never felt tests nothing.

use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::faults::{Fault, Place};
use crate::process::Leaving;
use crate::profile::Peril;
use crate::world::World;

/// How often each kind of fault was felt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Felt {
    counts: [u64; Peril::COUNT],
}

impl Felt {
    /// How often this kind was felt.
    pub fn of(&self, peril: Peril) -> u64 {
        self.counts[peril as usize]
    }

    /// Once more.
    pub(crate) fn note(&mut self, peril: Peril) {
        self.counts[peril as usize] += 1;
    }

    pub(crate) fn add(&mut self, other: &Felt) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
    }
}

impl Default for Felt {
    fn default() -> Self {
        Felt { counts: [0; Peril::COUNT] }
    }
}

impl Serialize for Felt {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(Peril::COUNT))?;
        for peril in Peril::all() {
            map.serialize_entry(peril.as_str(), &self.of(peril))?;
        }
        map.end()
    }
}

impl World {
    /// Counts a fault that somebody meets the moment it strikes. Others are counted where they are met.
    pub(crate) fn note_felt(&mut self, fault: &Fault) {
        if let Some(peril) = fault.met_at_once()
            && self.is_met(fault)
        {
            self.stats.felt.note(peril);
        }
    }

    /// Whether there is somebody to meet it.
    fn is_met(&self, fault: &Fault) -> bool {
        let runs = |slot: usize| self.slots[slot].process.is_some();
        match fault {
            Fault::Crash { slot, .. } | Fault::Upgrade { slot, .. } | Fault::Weight { slot, .. } => {
                runs(*slot)
            }
            Fault::Capacity { slot, .. }
            | Fault::NotAccepting { slot, .. }
            | Fault::WallStep { slot, .. } => runs(*slot),
            Fault::Leave { slot, .. } => {
                self.slots[*slot].process.is_some_and(|it| self.processes[it].leaving == Leaving::No)
            }
            Fault::Pause { slot, place: Place::Anywhere, .. } => {
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
}

impl Fault {
    /// Which kind it is, if it is met the moment it strikes.
    fn met_at_once(&self) -> Option<Peril> {
        Some(match self {
            Fault::Crash { .. } => Peril::Crash,
            Fault::Leave { .. } => Peril::Leave,
            Fault::Pause { place: Place::Anywhere, .. } => Peril::Pause,
            Fault::WatchBreak { .. } => Peril::WatchBreak,
            Fault::Failover { .. } => Peril::Failover,
            Fault::Emptied { .. } => Peril::Emptied,
            Fault::RolledBack { .. } => Peril::RolledBack,
            Fault::MassLeave { .. } => Peril::MassLeave,
            Fault::Weight { .. } => Peril::Weight,
            Fault::Capacity { .. } => Peril::Capacity,
            Fault::NotAccepting { .. } => Peril::Accepting,
            Fault::Resize { .. } => Peril::Resize,
            Fault::Pin { .. } => Peril::Pin,
            Fault::Drain { .. } => Peril::Drain,
            Fault::Freeze { .. } => Peril::Freeze,
            Fault::Release { .. } => Peril::Release,
            Fault::Disengage { .. } => Peril::Disengage,
            Fault::Upgrade { .. } => Peril::Upgrade,
            Fault::Twin { .. } => Peril::Twin,
            Fault::WallStep { .. } => Peril::WallStep,
            _ => return None,
        })
    }
}
