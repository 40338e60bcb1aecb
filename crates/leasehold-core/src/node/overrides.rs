//! Where settings in the store override this node's own settings, and telling people so, once for every change.

use std::collections::BTreeSet;

use super::Node;
use crate::config::GroupConfig;
use crate::name::{GroupName, ShardId, WriteId};
use crate::notice::{Differing, Notice, OperatorCommand};
use crate::placement::Fault;
use crate::record::{Control, GroupRecord, ShardSet, group_settings};
use crate::warning::Warning;

impl Node {
    /// Whether this node takes shards of the group.
    pub(super) fn serves(&self, group: &GroupName) -> bool {
        self.offer.served().contains_key(group) && self.kind_otherwise(group).is_none()
    }

    /// The groups that the others may plan us for.
    pub(super) fn offered(&self) -> impl Iterator<Item = (&GroupName, &GroupConfig)> {
        self.offer.served().iter().filter(|(group, _)| self.kind_otherwise(group).is_none())
    }

    /// What the store has of a group, if that is of the other kind than we were set up for. Numbers and policies in
    /// the store override ours, but a node that serves names cannot run slots, nor the other way round: the work would be given
    /// shards that it never offered to run.
    pub(super) fn kind_otherwise(&self, group: &GroupName) -> Option<ShardSet> {
        let ours = self.offer.served().get(group)?.shards;
        let stored = self.group_in_store(group)?.shards;
        (ours.kind() != stored.kind()).then_some(stored)
    }

    fn group_in_store(&self, group: &GroupName) -> Option<&GroupRecord> {
        self.mirror.groups.get(group).and_then(|seen| seen.best())
    }

    /// The groups that we take nothing of although we were set up for them, and why.
    pub(super) fn unserved(&self) -> impl Iterator<Item = (GroupName, String)> {
        self.offer.served().iter().filter_map(|(group, ours)| {
            let stored = self.kind_otherwise(group)?;
            let why = format!(
                "it serves {} shards, but the group in the store has {} ones",
                ours.shards.kind(),
                stored.kind()
            );
            Some((group.clone(), why))
        })
    }

    /// After a new plan: where settings in the store and commands of operators override our own settings, if that is new.
    pub(super) fn tell_overrides(&mut self) {
        let control = self.mirror.control().cloned().unwrap_or_else(|| Control::empty(WriteId::from_bits(0)));
        if let Some(before) = self.reported.commands(&control) {
            for command in self.commands_since(&before, &control) {
                self.ctx.tell(Notice::OperatorCommand(command));
            }
        }
        let groups: Vec<GroupName> = self.offer.served().keys().cloned().collect();
        for group in groups {
            self.tell_kind(&group);
            self.tell_differing(&group);
        }
    }

    fn tell_kind(&mut self, group: &GroupName) {
        let Some(ours) = self.offer.served().get(group).map(|config| config.shards) else { return };
        let notice = match self.kind_otherwise(group) {
            Some(stored) if self.reported.other_kind(group) => {
                Notice::OtherKind { group: group.clone(), ours, stored }
            }
            None if self.reported.kind_agrees(group) => Notice::KindAgrees { group: group.clone() },
            _ => return,
        };
        // What we offer is in our record.
        self.ctx.record_changed();
        self.ctx.tell(notice);
    }

    fn tell_differing(&mut self, group: &GroupName) {
        let settings = self.differing(group);
        if self.reported.differing(group, &settings) {
            self.ctx.tell(Notice::SettingsDiffer { group: group.clone(), settings });
        }
    }

    /// The settings that differ from those in the store: an operator who starts a node with another number should learn why
    /// nothing happens.
    fn differing(&self, group: &GroupName) -> Vec<Differing> {
        let (Some(ours), Some(stored)) = (self.offer.served().get(group), self.group_in_store(group)) else {
            return Vec::new();
        };
        if self.kind_otherwise(group).is_some() {
            return Vec::new();
        }
        let ours = group_settings(ours.shards, &ours.policy);
        let stored = group_settings(stored.shards, &stored.policy);
        (ours.into_iter().zip(stored))
            .filter(|((_, ours), (_, stored))| ours != stored)
            .map(|((name, ours), (_, stored))| Differing { name, ours, stored })
            .collect()
    }

    /// What operators ask of this node, or of all, that they did not ask before. Of pins only those of shards that come or go
    /// here.
    fn commands_since(&self, before: &Control, now: &Control) -> Vec<OperatorCommand> {
        let me = &self.ctx.config.node;
        let mut commands = Vec::new();
        let (drains, drained) = (now.drain.get(me), before.drain.get(me));
        if drains != drained {
            commands.push(drains.map_or(OperatorCommand::Undrain, |command| OperatorCommand::Drain {
                note: command.note.clone(),
            }));
        }
        let (weight, weighed) = (now.weights.get(me), before.weights.get(me));
        if weight != weighed {
            commands
                .push(weight.map_or(OperatorCommand::OwnWeight, |weight| OperatorCommand::Weight(*weight)));
        }
        if now.freeze != before.freeze {
            commands.push(
                now.freeze.clone().map_or(OperatorCommand::Unfreeze, |note| OperatorCommand::Freeze { note }),
            );
        }
        let shards: BTreeSet<&ShardId> = now.pins.keys().chain(before.pins.keys()).collect();
        for shard in shards {
            let (to, was) = (now.pins.get(shard), before.pins.get(shard));
            if to == was || !(to == Some(me) || was == Some(me) || self.holds.contains(shard)) {
                continue;
            }
            let shard = shard.clone();
            commands.push(match to {
                Some(to) => OperatorCommand::Pin { shard, to: to.clone() },
                None => OperatorCommand::Unpin { shard },
            });
        }
        commands
    }

    /// Settings and plug-ins that do not fit together.
    pub(super) fn warnings(&self) -> BTreeSet<Warning> {
        let faults = self.planner.plan().groups.iter().filter_map(|(group, plan)| {
            let (group, asked) = (group.clone(), plan.question.shards.len());
            Some(match plan.fault.clone()? {
                Fault::Panicked(panic) => Warning::PlacementPanicked { group, panic },
                Fault::Length(answered) => Warning::PlacementLength { group, answered, asked },
            })
        });
        let mut now: BTreeSet<Warning> = faults.collect();
        now.extend(Warning::of_placements(&self.mirror));
        let max_ttl_ms = self.ctx.config.ttl_max.as_millis() as u64;
        for (name, member) in self.planner.roster().iter().filter(|(_, member)| member.ttl_ms > max_ttl_ms) {
            now.insert(Warning::TtlAboveMax { node: name.clone(), ttl_ms: member.ttl_ms, max_ttl_ms });
        }
        now
    }
}
