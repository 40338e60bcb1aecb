//! A shard is given up voluntarily only for a node that has the same placement. Another one plans otherwise and would not take it.

use leasehold_core::record::{MoveReason, ShardRecord, ShardState};

use crate::world::{Judged, World};

pub(crate) const NAME: &str = "given_to_those_who_agree";

/// For how many ttls a process must have run before all others know its placement, whatever was wrong with the store.
const KNOWN_AFTER_TTLS: u64 = 6;

/// A process sends this record of a shard.
pub(crate) fn judge(world: &World, process: usize, record: &ShardRecord) -> Judged {
    let ShardState::Vacant { successor: Some(to), .. } = &record.state else { return Ok(()) };
    let mine = &world.processes[process];
    let known = |began_at| world.at > began_at + KNOWN_AFTER_TTLS * world.scenario.ttl_longest;
    let other = world.processes.iter().find(|other| other.alive && other.name == *to);
    let disagrees = other.is_some_and(|other| {
        known(mine.began_at) && known(other.began_at) && other.contrary != mine.contrary
    });
    if record.why != MoveReason::Rebalance || !disagrees {
        return Ok(());
    }
    let shard = world.scenario.number_of(&record.shard);
    let message = format!("{} gives shard {shard} up for {to}, which has another placement", mine.name);
    Err(world.violation(NAME, Some(shard), message))
}

#[cfg(test)]
mod tests {
    use leasehold_core::ShardId;
    use leasehold_core::record::Record;
    use leasehold_core::store::Key;

    use super::*;
    use crate::world::clock::SECOND;

    #[test]
    fn a_gift_to_a_node_with_another_placement_is_noticed() {
        let mut world = World::healed(2, 3);
        let key = Key::Shard(ShardId::slot(&world.scenario.group, 1));
        let mut record = ShardRecord::decode(&world.store.get(&key).unwrap().value).unwrap();
        record.why = MoveReason::Rebalance;
        record.state =
            ShardState::Vacant { successor: Some(world.processes[1].name.clone()), reserved_ms: None };
        world.at += 1000 * SECOND;
        assert_eq!(judge(&world, 0, &record), Ok(()));
        world.processes[1].contrary = true;
        assert_eq!(judge(&world, 0, &record).unwrap_err().invariant, NAME);
        world.processes[1].began_at = world.at;
        assert_eq!(judge(&world, 0, &record), Ok(()), "nobody can know yet");
    }
}
