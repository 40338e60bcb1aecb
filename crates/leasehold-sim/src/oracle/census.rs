//! A snapshot of the world from outside: which processes live, what they hold, and whether everything has converged.

use leasehold_core::notice::SessionState;
use leasehold_core::{SessionId, View};

use crate::oracle::records::RecordState;
use crate::world::World;
use crate::world::process::Leaving;

/// A snapshot of the world.
pub(crate) struct Census {
    /// The live processes.
    pub(crate) alive: Vec<usize>,
    /// For each shard that should be held: whether a live process holds it, and where its work runs.
    pub(crate) shards: Vec<Owned>,
}

/// How one shard is owned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owned {
    pub(crate) shard: usize,
    pub(crate) holder: Option<usize>,
    pub(crate) running: bool,
}

impl World {
    /// What a process knows. Not cheap.
    fn view(&self, process: usize) -> View {
        self.processes[process].core.view(self.now_of(process))
    }

    pub(crate) fn census(&self) -> Census {
        let alive = (0..self.processes.len()).filter(|process| self.processes[*process].alive);
        let alive: Vec<usize> = alive.collect();
        let shards = self.shards_wanted().map(|shard| {
            let RecordState::Held { session, .. } = self.records.get(shard).state else {
                return Owned { shard, holder: None, running: false };
            };
            let holder = alive.iter().copied().find(|process| {
                let last = self.processes[*process].sessions.last();
                last.is_some_and(|last| last.id == session && !last.lost)
            });
            let open = &self.oracle.state.shard(shard).open;
            let running = open
                .iter()
                .any(|run| Some(self.oracle.state.process_of(&self.oracle.state.runs[*run])) == holder);
            Owned { shard, holder, running }
        });
        Census { shards: shards.collect(), alive }
    }

    /// Whether any work was told to stop and still runs, or has ended in a slot that the group no longer has and that its
    /// holder has yet to retire. Stubborn work can take long, and starts again when it has ended.
    fn is_stopping_work(&self) -> bool {
        let state = &self.oracle.state;
        let is_told =
            |shard: usize| state.shard(shard).open.iter().any(|run| state.runs[*run].told_at.is_some());
        let is_live = |id: SessionId| {
            let mut alive = self.processes.iter().filter(|node| node.alive);
            alive.any(|node| node.session().is_some_and(|session| !session.lost && session.id == id))
        };
        let is_held = |slot: usize| matches!(self.records.get(slot).state, RecordState::Held { session, .. } if is_live(session));
        let mut gone = self.slots_wanted()..self.scenario.first_named();
        self.shards_wanted().any(is_told) || gone.any(|slot| is_told(slot) || is_held(slot))
    }

    /// The state of every node, for people.
    pub(crate) fn standings(&self, census: &Census) -> String {
        let each = census.alive.iter().map(|process| {
            let (node, view) = (&self.processes[*process], self.view(*process));
            let (held, wanted) = view.me.as_ref().map_or((0, 0), |me| (me.held, me.wanted));
            let waiting = view.me.as_ref().and_then(|me| me.waiting_for.as_deref()).unwrap_or("");
            let frozen = if view.frozen.is_some() { ", frozen" } else { "" };
            format!(
                "{} p{process} {} holds {held} of {wanted}{frozen} {waiting}",
                node.name, node.session_state
            )
        });
        each.collect::<Vec<_>>().join("; ")
    }
}

impl Census {
    pub(crate) fn all_owned(&self) -> bool {
        self.shards.iter().all(|shard| shard.holder.is_some())
    }

    /// Every node is attached, holds exactly what the plan gives it, and runs all of that.
    pub(crate) fn has_converged(&self, world: &World) -> bool {
        // The cheap checks come first.
        let leaving = self.alive.iter().any(|process| world.processes[*process].leaving != Leaving::No);
        if leaving || !self.shards.iter().all(|shard| shard.running) || world.is_stopping_work() {
            return false;
        }
        let in_place = |process: usize, view: &View| {
            let me = view.me.as_ref();
            let calm =
                view.frozen.is_none() && world.processes[process].session_state == SessionState::Attached;
            let placed =
                view.shards.iter().all(|shard| shard.wanted.is_none() || shard.wanted == shard.holder);
            calm && placed && me.is_some_and(|me| me.held == me.wanted)
        };
        let drained = |process: usize| Some(&world.processes[process].name) == world.healing.drained.as_ref();
        let any_other = self.alive.iter().any(|process| !drained(*process));
        let handed_over = |process: usize, view: &View| {
            !drained(process) || !any_other || view.me.as_ref().is_some_and(|me| me.held + me.wanted == 0)
        };
        // Every node knows of all others, and plans with the same view.
        let agrees = |view: &View| {
            let alive = view.nodes.iter().filter(|node| node.state.is_alive());
            alive.clone().count() == self.alive.len() && alive.clone().all(|node| node.agrees)
        };
        // One by one, because views are not cheap: most of the time the first one says no.
        self.alive.iter().all(|process| {
            let view = world.view(*process);
            handed_over(*process, &view) && agrees(&view) && in_place(*process, &view)
        })
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::record::{GroupRecord, Record, ShardSet};
    use leasehold_core::store::Key;

    use super::*;

    #[test]
    fn the_world_has_not_converged_while_work_is_stopping() {
        let mut world = World::healed(2, 3);
        assert!(world.census().has_converged(&world));
        let run = world.oracle.state.shard(2).open[0];
        world.oracle.state.runs[run].told_at = Some(world.at);
        assert!(!world.census().has_converged(&world));
    }

    #[test]
    fn nor_while_a_slot_that_the_group_lost_is_still_held() {
        let mut world = World::healed(2, 3);
        let groups = world.store.records().iter().filter(|(key, _)| matches!(key, Key::Group(_)));
        let mut groups =
            groups.filter_map(|(key, stored)| Some((key, GroupRecord::decode(&stored.value).ok()?)));
        let numbered = groups.find(|(_, group)| matches!(group.shards, ShardSet::Numbered(3)));
        let (key, mut group) = numbered.map(|(key, group)| (key.clone(), group)).expect("a group of slots");
        group.shards = ShardSet::Numbered(2);
        let (at, scenario) = (world.at, world.scenario.clone());
        world.records.changed(at, &scenario, &key, Some(&group.encode()));
        assert_eq!(world.slots_wanted(), 2);
        assert!(!world.census().has_converged(&world), "its holder will write its record once more");
    }
}
