//! Where settings in the store override this node's own settings, and telling people so, once for every change.

use std::collections::BTreeSet;

use super::context::Context;
use super::holds::Holds;
use super::offer::Offer;
use super::planner::Planner;
use super::reported::Reported;
use crate::config::GroupConfig;
use crate::mirror::Mirror;
use crate::name::{GroupName, NodeName, ShardId, WriteId};
use crate::notice::{Differing, Notice, OperatorCommand};
use crate::placement::WrongAnswer;
use crate::record::{Control, GroupRecord, ShardSet, group_settings};
use crate::warning::Warning;

impl Offer {
    /// Whether this node takes shards of the group.
    pub(super) fn serves(&self, group: &GroupName, mirror: &Mirror) -> bool {
        self.served().contains_key(group) && self.kind_otherwise(group, mirror).is_none()
    }

    /// The groups that the others may plan us for.
    pub(super) fn offered(&self, mirror: &Mirror) -> impl Iterator<Item = (&GroupName, &GroupConfig)> {
        self.served().iter().filter(|(group, _)| self.kind_otherwise(group, mirror).is_none())
    }

    /// What the store has of a group, if that is of the other kind than we were set up for. Numbers and policies in
    /// the store override ours, but a node that serves names cannot run slots, nor the other way round: the work would be given
    /// shards that it never offered to run.
    pub(super) fn kind_otherwise(&self, group: &GroupName, mirror: &Mirror) -> Option<ShardSet> {
        let ours = self.served().get(group)?.shards;
        let stored = group_in_store(group, mirror)?.shards;
        (ours.kind() != stored.kind()).then_some(stored)
    }

    /// The groups that we take nothing of although we were set up for them, and why.
    pub(super) fn unserved(&self, mirror: &Mirror) -> impl Iterator<Item = (GroupName, String)> {
        self.served().iter().filter_map(|(group, ours)| {
            let stored = self.kind_otherwise(group, mirror)?;
            let why = format!(
                "it serves {} shards, but the group in the store has {} ones",
                ours.shards.kind(),
                stored.kind()
            );
            Some((group.clone(), why))
        })
    }

    /// The settings that differ from those in the store: an operator who starts a node with another number should learn why
    /// nothing happens.
    fn differing(&self, group: &GroupName, mirror: &Mirror) -> Vec<Differing> {
        let (Some(ours), Some(stored)) = (self.served().get(group), group_in_store(group, mirror)) else {
            return Vec::new();
        };
        if self.kind_otherwise(group, mirror).is_some() {
            return Vec::new();
        }
        let ours = group_settings(ours.shards, &ours.policy);
        let stored = group_settings(stored.shards, &stored.policy);
        (ours.into_iter().zip(stored))
            .filter(|((_, ours), (_, stored))| ours != stored)
            .map(|((name, ours), (_, stored))| Differing { name, ours, stored })
            .collect()
    }
}

impl Reported {
    /// After a new plan: where settings in the store and commands of operators override our own settings, if that is new.
    pub(super) fn tell_overrides(
        &mut self,
        offer: &Offer,
        holds: &Holds,
        mirror: &Mirror,
        ctx: &mut Context,
    ) {
        let control = mirror.control().cloned().unwrap_or_else(|| Control::empty(WriteId::from_bits(0)));
        if let Some(before) = self.commands(&control) {
            for command in commands_since(&before, &control, &ctx.config.node, holds) {
                ctx.tell(Notice::OperatorCommand(command));
            }
        }
        for (group, config) in offer.served() {
            self.tell_kind(group, config.shards, offer.kind_otherwise(group, mirror), ctx);
            self.tell_differing(group, offer.differing(group, mirror), ctx);
        }
    }

    fn tell_kind(
        &mut self,
        group: &GroupName,
        ours: ShardSet,
        otherwise: Option<ShardSet>,
        ctx: &mut Context,
    ) {
        let notice = match otherwise {
            Some(stored) if self.other_kind(group) => {
                Notice::OtherKind { group: group.clone(), ours, stored }
            }
            None if self.kind_agrees(group) => Notice::KindAgrees { group: group.clone() },
            _ => return,
        };
        // What we offer is in our record.
        ctx.record_changed();
        ctx.tell(notice);
    }

    fn tell_differing(&mut self, group: &GroupName, settings: Vec<Differing>, ctx: &mut Context) {
        if self.differing(group, &settings) {
            ctx.tell(Notice::SettingsDiffer { group: group.clone(), settings });
        }
    }
}

impl Planner {
    /// Settings and plug-ins that do not fit together.
    pub(super) fn warnings(&self, mirror: &Mirror, ctx: &Context) -> BTreeSet<Warning> {
        let wrong_answers = self.plan().groups.iter().filter_map(|(group, plan)| {
            let (group, asked) = (group.clone(), plan.question.shards.len());
            Some(match plan.wrong_answer.clone()? {
                WrongAnswer::Panicked(panic) => Warning::PlacementPanicked { group, panic },
                WrongAnswer::Length(answered) => Warning::PlacementLength { group, answered, asked },
            })
        });
        let mut now: BTreeSet<Warning> = wrong_answers.collect();
        now.extend(Warning::of_placements(mirror));
        let max_ttl_ms = ctx.config.ttl_max.as_millis() as u64;
        for (name, member) in self.roster().iter().filter(|(_, member)| member.ttl_ms > max_ttl_ms) {
            now.insert(Warning::TtlAboveMax { node: name.clone(), ttl_ms: member.ttl_ms, max_ttl_ms });
        }
        now
    }
}

fn group_in_store<'a>(group: &GroupName, mirror: &'a Mirror) -> Option<&'a GroupRecord> {
    mirror.groups().get(group).and_then(|seen| seen.best())
}

/// What operators ask of this node, or of all, that they did not ask before. Of pins only those of shards that come or go
/// here.
fn commands_since(before: &Control, now: &Control, me: &NodeName, holds: &Holds) -> Vec<OperatorCommand> {
    let mut commands = Vec::new();
    let (drains, drained) = (now.drain.get(me), before.drain.get(me));
    if drains != drained {
        commands.push(drains.map_or(OperatorCommand::Undrain, |command| OperatorCommand::Drain {
            note: command.note.clone(),
        }));
    }
    let (weight, weighed) = (now.weights.get(me), before.weights.get(me));
    if weight != weighed {
        commands.push(weight.map_or(OperatorCommand::OwnWeight, |weight| OperatorCommand::Weight(*weight)));
    }
    if now.freeze != before.freeze {
        commands.push(
            now.freeze.clone().map_or(OperatorCommand::Unfreeze, |note| OperatorCommand::Freeze { note }),
        );
    }
    let groups: BTreeSet<&GroupName> = now.freeze_groups.keys().chain(before.freeze_groups.keys()).collect();
    for group in groups {
        let (note, was) = (now.freeze_groups.get(group), before.freeze_groups.get(group));
        if note == was {
            continue;
        }
        let group = group.clone();
        commands.push(match note.cloned() {
            Some(note) => OperatorCommand::FreezeGroup { group, note },
            None => OperatorCommand::UnfreezeGroup { group },
        });
    }
    let shards: BTreeSet<&ShardId> = now.pins.keys().chain(before.pins.keys()).collect();
    for shard in shards {
        let (to, was) = (now.pins.get(shard), before.pins.get(shard));
        if to == was || !(to == Some(me) || was == Some(me) || holds.contains(shard)) {
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
