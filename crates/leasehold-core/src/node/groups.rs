//! The groups' settings in the store: written where they are missing or damaged, with what was once true of a group and
//! must stay so.

use super::Node;
use super::context::Context;
use super::planner::Planner;
use super::requests::{Ask, Purpose};
use super::timers::Timer;
use crate::mirror::{Lasting, Mirror, Seen};
use crate::name::{GroupName, NodeName, ShardId, WriteId};
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
            let lasting = self.mirror.lasting(&group.group).cloned().unwrap_or_default();
            let (record, expect) = match self.mirror.groups().get(&group.group) {
                // It was deleted, or is not here yet.
                None if self.offer.is_stored(&group.group) => continue,
                None => {
                    // It was there before: whatever operators had set in it is lost.
                    let recreated = Warning::GroupRecreated(group.group.clone());
                    if self.mirror.lasting(&group.group).is_some() && self.reported.warning(&recreated) {
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
                Some(Seen { record: Ok(record), version, .. })
                    if self.planner.is_first_of(&record.group, &self.ctx.config.node) =>
                {
                    let may_fill = self.ctx.now.at >= self.pace.fill_next_at();
                    let Some(more) = says_more(record, lasting, may_fill, &self.mirror) else { continue };
                    let version = version.clone();
                    self.pace.filled(self.ctx.now.at + self.ctx.config.renew_every);
                    (more, Some(version))
                }
                Some(_) => continue,
            };
            let ask = Ask::write_group(record, expect, &mut self.ctx);
            return self.ask(ask);
        }
    }
}

/// A group's record with more than it says, if there is more. A slot's record that is missing was lost if there was one before:
/// the group's record keeps that, and what was removed from it is restored. `may_fill`: slots that have a record are added.
fn says_more(record: &GroupRecord, lasting: Lasting, may_fill: bool, mirror: &Mirror) -> Option<GroupRecord> {
    let filled = match record.shards {
        // Not with every record that comes, in a group whose slots are taken one after the other.
        ShardSet::Numbered(slots) if !lasting.filled.covers(slots) && may_fill => {
            let there = |slot: &u32| {
                let shard = ShardId::slot(&record.group, *slot);
                !lasting.filled.contains(*slot) && mirror.shards().contains_key(&shard)
            };
            lasting.filled.union(&(0..slots).filter(there).collect())
        }
        _ => lasting.filled,
    };
    let more = GroupRecord { filled, epoch_floor: lasting.epoch_floor, ..record.clone() };
    (more != *record).then_some(more)
}

impl Planner {
    /// Whether a node is the first that the plan gives a shard of this group: one node keeps the group's record.
    fn is_first_of(&self, group: &GroupName, node: &NodeName) -> bool {
        let Some(plan) = self.plan().groups.get(group) else { return false };
        let first = plan.answer.to.iter().find_map(|to| *to);
        let first = first.and_then(|first| plan.question.nodes.get(first as usize));
        first.is_some_and(|first| first.name == *node)
    }
}

impl Ask {
    /// Writes a group's settings.
    pub(super) fn write_group(mut record: GroupRecord, expect: Option<Version>, ctx: &mut Context) -> Self {
        record.write = ctx.write_id();
        record.written_unix_ms = ctx.now.unix_ms;
        #[cfg(feature = "sabotage")]
        ctx.memory.note_group(&record);
        let value = Some(record.encode().into());
        let swap = Swap { key: Key::Group(record.group.clone()), expect, value };
        Ask::swap(Lane::Work, swap, Purpose::Group)
    }
}
