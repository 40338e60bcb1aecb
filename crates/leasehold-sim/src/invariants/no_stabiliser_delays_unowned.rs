//! In calm times, a shard without a holder in its record is taken within the stated bound, whatever the
//! stabilisers of voluntary moves say.

use leasehold_core::notice::SessionState;
use leasehold_core::record::{GroupRecord, Record};
use leasehold_core::store::Key;

use crate::oracle::records::RecordState;
use crate::world::clock::{Instant, SECOND};
use crate::world::process::Leaving;
use crate::world::{Judged, World};

pub(crate) const NAME: &str = "no_stabiliser_delays_unowned";

pub(crate) fn judge(world: &World) -> Judged {
    let bound = world.healing.bounds.unowned;
    let Some(room_since) = room_since(world) else { return Ok(()) };
    let calm_from = world.healing.calm_from.max(room_since);
    if world.at < calm_from + bound {
        return Ok(());
    }
    for shard in 0..world.slots_wanted() {
        let status = world.records.get(shard);
        let unowned = matches!(status.state, RecordState::Vacant { .. } | RecordState::Missing);
        let since = status.since.max(calm_from).max(world.healing.resized_at);
        let bound = bound + world.healing.bounds.longer(world.records.loss(shard));
        if unowned && world.at > since + bound && !needs_upgrade(world) {
            let message = format!(
                "no node took shard {shard} for {} s without any fault; the bound is {} s",
                (world.at - since) / SECOND,
                bound / SECOND
            );
            return Err(world.violation(NAME, Some(shard), message));
        }
    }
    Ok(())
}

/// Whether the group's record is of a newer version: then no node takes shards of the group until it is upgraded.
fn needs_upgrade(world: &World) -> bool {
    let stored = world.store.get(&Key::Group(world.scenario.group.clone()));
    stored.is_some_and(|stored| GroupRecord::decode(&stored.value).is_err_and(|error| error.is_too_new()))
}

/// Since when a node has had room, if all live nodes are plain: attached, accepting, without limits. Otherwise `None`:
/// room cannot be judged here.
fn room_since(world: &World) -> Option<Instant> {
    let mut since = None;
    for node in world.processes.iter().filter(|node| node.alive) {
        let slot_state = &world.slots[node.slot];
        let plain = node.session_state == SessionState::Attached
            && node.leaving == Leaving::No
            && node.paused.is_none()
            && slot_state.not_accepting == 0
            && slot_state.capacity.is_none_or(|capacity| capacity.is_none());
        if !plain {
            return None;
        }
        if slot_state.weight != Some(0) {
            since = Some(since.map_or(node.state_since, |at: Instant| at.min(node.state_since)));
        }
    }
    since.filter(|_| world.gate_is_open())
}

#[cfg(test)]
mod tests {
    use leasehold_core::ShardId;

    use super::*;
    use crate::oracle::records::Loss;

    #[test]
    fn a_shard_that_is_left_vacant_in_calm_times_is_noticed() {
        let mut world = World::healed(2, 3);
        world.at = world.at.max(world.healing.calm_from);
        let key = Key::Shard(ShardId::slot(&world.scenario.group, 1));
        world.records.changed(world.at, &world.scenario, &key, None);
        world.at += world.healing.bounds.unowned;
        assert_eq!(judge(&world), Ok(()));
        world.at += 1;
        assert_eq!(judge(&world).unwrap_err().shard, Some(1));
        world.records.tampered(&world.scenario, &key, Loss::Lost);
        assert_eq!(judge(&world), Ok(()), "its record was lost");
    }
}
