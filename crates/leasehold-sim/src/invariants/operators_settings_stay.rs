//! Nodes keep in a group's record what operators set: the number of its shards, and its policy.

use leasehold_core::record::{GroupRecord, Record};
use leasehold_core::store::{Key, Stored, Swap};

use crate::world::{Judged, World};

pub(crate) const NAME: &str = "operators_settings_stay";

/// `before` was there when the swap of a node was applied.
pub(crate) fn judge(world: &World, before: Option<&Stored>, swap: &Swap) -> Judged {
    let Key::Group(group) = &swap.key else { return Ok(()) };
    let decode = |value: &[u8]| GroupRecord::decode(value).ok();
    let before = before.and_then(|stored| decode(&stored.value));
    let (Some(before), Some(after)) = (before, swap.value.as_deref().and_then(decode)) else { return Ok(()) };
    // A version may come again after a restore, so that a swap lands on another record than the one that was read.
    if world.store_was_touched || (before.shards == after.shards && before.policy == after.policy) {
        return Ok(());
    }
    let message = format!("a node changed the settings of group {group}, which only operators change");
    Err(world.violation(NAME, None, message))
}

#[cfg(test)]
mod tests {
    use leasehold_core::record::ShardSet;

    use super::*;

    #[test]
    fn a_node_that_undoes_a_resize_is_noticed() {
        let world = World::healed(2, 3);
        let key = Key::Group(world.scenario.group.clone());
        let before = world.store.get(&key).expect("nodes wrote it");
        let mut record = GroupRecord::decode(&before.value).expect("it can be read");
        let swap = |record: &GroupRecord| {
            let value = Some(record.encode().into());
            Swap { key: key.clone(), expect: Some(before.version.clone()), value }
        };
        record.epoch_floor = record.epoch_floor.next();
        assert_eq!(judge(&world, Some(before), &swap(&record)), Ok(()));
        record.shards = ShardSet::Numbered(2);
        assert_eq!(judge(&world, Some(before), &swap(&record)).unwrap_err().invariant, NAME);
    }
}
