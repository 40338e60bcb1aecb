//! In calm times, a shard whose record says that nobody holds it is taken within the stated bound, whatever the
//! stabilisers of voluntary moves say.

use leasehold_core::notice::Standing;

use crate::clock::SECOND;
use crate::process::Leaving;
use crate::records::RecordState;
use crate::world::{Judged, World};

pub(crate) const NAME: &str = "no_stabiliser_delays_unowned";

pub(crate) fn judge(world: &World) -> Judged {
    let bound = world.healing.bounds.unowned;
    if world.at < world.healing.calm_from + bound {
        return Ok(());
    }
    for shard in 0..world.slots_wanted() {
        let told = world.records.get(shard);
        let unowned = matches!(told.state, RecordState::Vacant { .. } | RecordState::Missing);
        let since = told.since.max(world.healing.calm_from).max(world.healing.resized_at);
        if unowned && world.at > since + bound && somebody_has_room(world) {
            let message = format!(
                "nobody took shard {shard} for {} s, although all was calm; the bound is {} s",
                (world.at - since) / SECOND,
                bound / SECOND
            );
            return Err(world.violation(NAME, Some(shard), message));
        }
    }
    Ok(())
}

/// Whether all live nodes are plain: attached, accepting, without limits. Otherwise room is not for us to judge.
fn somebody_has_room(world: &World) -> bool {
    let mut any = false;
    for node in world.processes.iter().filter(|node| node.alive) {
        let place = &world.slots[node.slot];
        let plain = node.standing == Standing::Attached
            && node.leaving == Leaving::No
            && node.paused.is_none()
            && place.not_accepting == 0
            && place.capacity.is_none_or(|capacity| capacity.is_none());
        any |= plain && place.weight != Some(0);
        if !plain {
            return false;
        }
    }
    any && world.gate_is_open()
}
