//! The groups' settings in the store: written where they are missing or damaged, with what was once true of a group and
//! must stay so.

use super::Node;
use super::context::Context;
use super::requests::{Ask, Purpose};
use super::timers::Timer;
use crate::mirror::{Lasting, Seen};
use crate::name::{ShardId, WriteId};
use crate::notice::Notice;
use crate::record::{FORMAT, GroupRecord, Record, ShardSet};
use crate::store::{Key, Lane, Swap, Version};
use crate::warning::Warning;

impl Node {
    /// Writes our groups' settings where the store has none or a damaged record, and which slots have had a record.
    pub(super) fn mend_groups(&mut self) {
        if self.ctx.now.at >= self.ctx.timers.at(Timer::Fill) {
            self.ctx.timers.stop(Timer::Fill);
        }
        if self.session.is_none() || self.requests.any(|purpose| matches!(purpose, Purpose::Group)) {
            return;
        }
        let served: Vec<_> = self.offer.served().values().cloned().collect();
        for group in served {
            let lasting = self.mirror.lasting.get(&group.group).cloned().unwrap_or_default();
            let (record, expect) = match self.mirror.groups.get(&group.group) {
                None => {
                    // It was there before: whatever operators had set in it is lost.
                    let recreated = Warning::GroupRecreated(group.group.clone());
                    if self.mirror.lasting.contains_key(&group.group) && self.reported.warning(&recreated) {
                        self.ctx.tell(Notice::Warning(recreated));
                    }
                    let fresh = GroupRecord {
                        format: FORMAT,
                        write: WriteId::from_bits(0),
                        group: group.group.clone(),
                        shards: group.shards,
                        policy: group.policy.clone(),
                        epoch_floor: lasting.epoch_floor,
                        filled: lasting.filled,
                        written_unix_ms: 0,
                        extra: Default::default(),
                    };
                    (fresh, None)
                }
                Some(Seen { record: Err(error), before: Some(before), version, .. })
                    if !error.is_too_new() =>
                {
                    (before.clone(), Some(version.clone()))
                }
                Some(Seen { record: Ok(record), version, .. }) => match self.says_more(record, lasting) {
                    Some(more) => {
                        let version = version.clone();
                        self.pace.filled(self.ctx.now.at + self.ctx.config.renew_every);
                        (more, Some(version))
                    }
                    None => continue,
                },
                Some(_) => continue,
            };
            let ask = Ask::write_group(record, expect, &mut self.ctx);
            return self.ask(ask);
        }
    }

    /// A slot's record that is missing was lost if there was one before: one node keeps that in the group's record, and
    /// restores what was removed from it.
    fn says_more(&self, record: &GroupRecord, lasting: Lasting) -> Option<GroupRecord> {
        let plan = self.planner.plan().groups.get(&record.group)?;
        let first = plan.answer.to.iter().find_map(|to| *to)?;
        if plan.question.nodes.get(first as usize)?.name != self.ctx.config.node {
            return None;
        }
        let filled = match record.shards {
            // Not with every record that comes, in a group whose slots are taken one after the other.
            ShardSet::Numbered(slots)
                if !lasting.filled.covers(slots) && self.ctx.now.at >= self.pace.fill_next_at() =>
            {
                let there = |slot: &u32| {
                    let shard = ShardId::slot(&record.group, *slot);
                    !lasting.filled.contains(*slot) && self.mirror.shards.contains_key(&shard)
                };
                lasting.filled.union(&(0..slots).filter(there).collect())
            }
            _ => lasting.filled,
        };
        let more = GroupRecord { filled, epoch_floor: lasting.epoch_floor, ..record.clone() };
        (more != *record).then_some(more)
    }
}

impl Ask {
    /// Writes a group's settings.
    pub(super) fn write_group(mut record: GroupRecord, expect: Option<Version>, ctx: &mut Context) -> Self {
        record.write = ctx.write_id();
        record.written_unix_ms = ctx.now.unix_ms;
        let value = Some(record.encode().into());
        let swap = Swap { key: Key::Group(record.group.clone()), expect, value };
        Ask::swap(Lane::Work, swap, Purpose::Group)
    }
}
