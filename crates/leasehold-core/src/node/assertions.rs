//! What must never be, checked in release builds as well.
//!
//! A failed assertion means that this code is wrong, so nothing that it believes about ownership counts any more. The node
//! detaches: its work stops before the session ends, others take over, and people are told. It never aborts the process,
//! which may run other things.

use super::Node;
use super::hold::Hold;
use crate::name::{Epoch, ShardId};
use crate::notice::{Cause, Notice};

/// What must never be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Never {
    /// Only `consider` starts work, and it returns at once without a session.
    StartWithoutSession,
    /// Every start follows a claim, and a claim's epoch is above that of the record that it replaces.
    EpochDidNotRise,
    /// A release begins only when work has ended, or before it started.
    ReleaseWhileWorkRuns,
    /// Only a shard that is not held, and whose earlier work has ended, is claimed or written.
    TwoHolds,
}

impl Never {
    fn as_str(self) -> &'static str {
        match self {
            Never::StartWithoutSession => "tried to start work without a session",
            Never::EpochDidNotRise => "tried to start work at an epoch that is not above the last one",
            Never::ReleaseWhileWorkRuns => "tried to release a shard while its work runs",
            Never::TwoHolds => "tried to hold a shard twice",
        }
    }
}

impl Node {
    /// Detaches unless this is true. The caller goes on only with `true`.
    #[must_use]
    pub(super) fn assert_that(&mut self, is_so: bool, never: Never) -> bool {
        // A sabotaged node is meant to do wrong: the simulator's invariants must notice that, not this.
        if is_so || !self.ctx.rules.all_hold() {
            return true;
        }
        let cause = Cause::Impossible(never.as_str());
        match self.session.is_some() {
            true => self.detach(cause),
            false => {
                let (state, after) = (self.life.state(), self.ctx.now.at.since(self.life.since()));
                self.ctx.tell(Notice::StateChanged { from: state, to: state, cause, after });
            }
        }
        false
    }

    /// A shard is here from now on; `false` if it is already.
    #[must_use]
    pub(super) fn hold(&mut self, shard: &ShardId, hold: Hold) -> bool {
        let first = !self.holds.contains(shard) && !self.holds.is_orphaned(shard);
        let fine = self.assert_that(first, Never::TwoHolds);
        if fine {
            self.holds.insert(shard, hold);
        }
        fine
    }

    /// Work starts at this epoch; `false` if it must not.
    #[must_use]
    pub(super) fn assert_may_start(&mut self, shard: &ShardId, epoch: Epoch) -> bool {
        let rises = self.holds.last_epoch(shard).is_none_or(|last| epoch > last);
        self.assert_that(self.session.is_some(), Never::StartWithoutSession)
            && self.assert_that(rises, Never::EpochDidNotRise)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::*;
    use crate::config::{Config, GroupConfig, Namespace};
    use crate::event::{Action, Event, StopReason};
    use crate::name::{GroupName, NodeName};
    use crate::notice::SessionState;
    use crate::record::{MoveReason, Policy, ShardSet};
    use crate::store::{Answer, Facts, Freshness, Key, Listing, Op, Safety, Stored, Swapped, Version};
    use crate::time::{Moment, Now};

    const FACTS: Facts = Facts {
        kind: "test",
        watch: true,
        poll_every: Duration::from_secs(1),
        write_every_min: Duration::ZERO,
        swaps_max: 16,
        reads: Freshness::Newest,
        removes: true,
        safety: Safety::Strict,
        ttl_default: Duration::from_secs(10),
    };

    /// One node on a store that answers at once.
    struct World {
        node: Node,
        at: Moment,
        records: BTreeMap<Key, Stored>,
        written: u64,
        told: Vec<Action>,
    }

    impl World {
        /// With the only shard of the only group running.
        fn running() -> (Self, ShardId) {
            let group = GroupName::new("orders").expect("a plain name");
            let mut config = Config::new(NodeName::new("a").expect("a plain name"), &FACTS);
            config.namespace = Namespace::New;
            config.groups = vec![GroupConfig {
                group: group.clone(),
                shards: ShardSet::Numbered(1),
                policy: Policy::default(),
                capacity: None,
            }];
            let node = Node::new(config, FACTS, [7; 32]);
            let (records, at) = (BTreeMap::new(), Moment::ZERO);
            let mut world = World { node, at, records, written: 0, told: Vec::new() };
            let shard = ShardId::slot(&group, 0);
            for _ in 0..200 {
                world.tick();
                if world.node.owns(&shard).is_some() {
                    return (world, shard);
                }
            }
            panic!("the shard never started");
        }

        fn tick(&mut self) {
            self.at = self.at + Duration::from_millis(50);
            let mut events = vec![Event::Tick];
            while let Some(event) = events.pop() {
                let mut actions = Vec::new();
                let unix_ms = 1_000_000 + self.at.since(Moment::ZERO).as_millis() as u64;
                self.node.step(Now { at: self.at, unix_ms }, event, &mut actions);
                for action in actions {
                    match action {
                        Action::Ask(request) => {
                            let answer = self.answer(request.op);
                            events.push(Event::Answered(request.id, answer));
                        }
                        other => self.told.push(other),
                    }
                }
            }
        }

        fn answer(&mut self, op: Op) -> Answer {
            let generation = String::new();
            match op {
                Op::List | Op::ListNodes => Answer::Listed(Listing {
                    entries: self.records.clone().into_iter().collect(),
                    foreign: Vec::new(),
                    unreadable: Vec::new(),
                    generation,
                    revision: None,
                    newest: true,
                }),
                Op::Read(keys) => {
                    let found = keys.iter().map(|key| self.records.get(key).cloned()).collect();
                    Answer::Read { found, generation }
                }
                Op::Swap(swaps) => {
                    let mut outcomes = Vec::new();
                    for swap in swaps {
                        let current = self.records.get(&swap.key).cloned();
                        if current.as_ref().map(|stored| &stored.version) != swap.expect.as_ref() {
                            outcomes.push(Swapped::Lost(current));
                            continue;
                        }
                        self.written += 1;
                        let version = Version::new(self.written.to_string());
                        match swap.value {
                            Some(value) => {
                                self.records.insert(swap.key, Stored { version: version.clone(), value })
                            }
                            None => self.records.remove(&swap.key),
                        };
                        outcomes.push(Swapped::Applied(version));
                    }
                    Answer::Swapped { outcomes, generation }
                }
            }
        }

        /// What became of the node by what was done to it outside a step.
        fn cause(&mut self) -> Option<Cause> {
            self.told.clear();
            self.tick();
            let changed = |action: &Action| match action {
                Action::Tell(Notice::StateChanged { to: SessionState::Detached, cause, .. }) => {
                    Some(cause.clone())
                }
                _ => None,
            };
            self.told.iter().find_map(changed)
        }
    }

    #[test]
    fn a_release_while_work_runs_detaches_and_stops_the_work() {
        let (mut world, shard) = World::running();
        world.node.begin_release(&shard, None);
        assert_eq!(world.cause(), Some(Cause::Impossible(Never::ReleaseWhileWorkRuns.as_str())));
        let stops = |action: &Action| matches!(action, Action::Stop { why: StopReason::Detached, shard: stopped, .. } if *stopped == shard);
        assert!(world.told.iter().any(stops), "its work is told to stop");
        assert!(world.told.contains(&Action::Lose), "its grants are lost");
    }

    #[test]
    fn a_second_hold_of_a_shard_detaches() {
        let (mut world, shard) = World::running();
        world.node.claim(&shard, None, Epoch(0), MoveReason::Planned);
        assert_eq!(world.cause(), Some(Cause::Impossible(Never::TwoHolds.as_str())));
    }

    #[test]
    fn a_start_at_an_epoch_that_did_not_rise_detaches() {
        let (mut world, shard) = World::running();
        world.node.start(&shard, MoveReason::Planned);
        assert_eq!(world.cause(), Some(Cause::Impossible(Never::EpochDidNotRise.as_str())));
    }

    #[test]
    fn a_start_without_a_session_starts_nothing_and_is_told() {
        let (mut world, shard) = World::running();
        let hold = world.node.holds.remove(&shard).expect("it is held");
        world.node.detach(Cause::Fenced);
        world.node.holds.insert(&shard, hold);
        world.node.ctx.out.clear();
        world.node.start(&shard, MoveReason::Planned);
        assert_eq!(world.cause(), Some(Cause::Impossible(Never::StartWithoutSession.as_str())));
        assert!(!world.told.iter().any(|action| matches!(action, Action::Start { .. })));
    }

    #[test]
    fn a_node_that_detached_for_that_joins_again() {
        let (mut world, shard) = World::running();
        let Some(epoch) = world.node.owns(&shard) else { panic!("it runs") };
        world.node.begin_release(&shard, None);
        world.tick();
        let ended = Event::Ended { shard: shard.clone(), epoch, how: crate::event::Ended::Finished };
        world.node.step(Now { at: world.at, unix_ms: 1_000_000 }, ended, &mut Vec::new());
        for _ in 0..2000 {
            world.tick();
            if world.node.owns(&shard).is_some_and(|again| again > epoch) {
                return;
            }
        }
        panic!("the shard never started again");
    }
}
