//! What people were already told, so that everything is told once, and again only when it has changed.

use std::collections::{BTreeMap, BTreeSet};

use crate::name::{GroupName, WriteId};
use crate::notice::{Differing, Notice};
use crate::record::Control;
use crate::warning::Warning;

/// What people were already told.
#[derive(Debug)]
pub(super) struct Reported {
    name_taken: bool,
    no_receiver: bool,
    /// Shards of each group that have room nowhere.
    no_room: BTreeMap<GroupName, usize>,
    warnings: BTreeSet<Warning>,
    /// Groups that the store has of the other kind than this node was set up for.
    other_kind: BTreeSet<GroupName>,
    /// Settings that differ between the store and this node.
    differing: BTreeMap<GroupName, Vec<Differing>>,
    /// What operators ask for.
    commands: Control,
}

impl Default for Reported {
    fn default() -> Self {
        Reported {
            name_taken: false,
            no_receiver: false,
            no_room: BTreeMap::new(),
            warnings: BTreeSet::new(),
            other_kind: BTreeSet::new(),
            differing: BTreeMap::new(),
            commands: Control::empty(WriteId::from_bits(0)),
        }
    }
}

impl Reported {
    /// Another live process uses our name; `true` the first time.
    pub(super) fn name_taken(&mut self) -> bool {
        !std::mem::replace(&mut self.name_taken, true)
    }

    /// Whether people were told that another live process uses our name.
    pub(super) fn was_name_taken(&self) -> bool {
        self.name_taken
    }

    /// Nobody can receive what is handed over; `true` the first time since the last plan.
    pub(super) fn no_receiver(&mut self) -> bool {
        !std::mem::replace(&mut self.no_receiver, true)
    }

    /// There is a new plan: shards without a receiver are reported again.
    pub(super) fn forget_no_receiver(&mut self) {
        self.no_receiver = false;
    }

    /// How many shards of each group have room nowhere. Says what is new of that.
    pub(super) fn room(&mut self, homeless: Vec<(GroupName, usize)>) -> Vec<Notice> {
        let mut fresh = Vec::new();
        for (group, shards) in &homeless {
            let (group, shards) = (group.clone(), *shards);
            match (shards, self.no_room.get(&group)) {
                (0, Some(_)) => fresh.push(Notice::RoomAgain { group }),
                (0, None) => {}
                (now, Some(before)) if now == *before => {}
                (_, _) => fresh.push(Notice::NoRoom { group, shards }),
            }
        }
        self.no_room = homeless.into_iter().filter(|(_, shards)| *shards > 0).collect();
        fresh
    }

    /// A warning outside a new plan; `true` if it is new.
    pub(super) fn warning(&mut self, warning: &Warning) -> bool {
        self.warnings.insert(warning.clone())
    }

    /// The warnings that hold with a new plan. Says which are new.
    pub(super) fn warnings_now(&mut self, mut now: BTreeSet<Warning>) -> Vec<Warning> {
        // It holds until an operator sets the group again.
        let lasting = |warning: &&Warning| matches!(warning, Warning::GroupRecreated(_));
        now.extend(self.warnings.iter().filter(lasting).cloned());
        let fresh = now.difference(&self.warnings).cloned().collect();
        self.warnings = now;
        fresh
    }

    /// The warnings that hold.
    pub(super) fn warnings(&self) -> impl Iterator<Item = &Warning> {
        self.warnings.iter()
    }

    /// The store has a group of the other kind; `true` if that is new.
    pub(super) fn other_kind(&mut self, group: &GroupName) -> bool {
        self.other_kind.insert(group.clone())
    }

    /// The store has a group of our kind; `true` if it was told otherwise.
    pub(super) fn kind_agrees(&mut self, group: &GroupName) -> bool {
        self.other_kind.remove(group)
    }

    /// The settings that the store has otherwise; `true` if they are new and there are any.
    pub(super) fn differing(&mut self, group: &GroupName, settings: &[Differing]) -> bool {
        if settings.is_empty() {
            self.differing.remove(group);
            return false;
        }
        if self.differing.get(group).is_some_and(|told| told == settings) {
            return false;
        }
        self.differing.insert(group.clone(), settings.to_vec());
        true
    }

    /// What operators ask for now; what they asked for before, if that was something else.
    pub(super) fn commands(&mut self, now: &Control) -> Option<Control> {
        (*now != self.commands).then(|| std::mem::replace(&mut self.commands, now.clone()))
    }
}
