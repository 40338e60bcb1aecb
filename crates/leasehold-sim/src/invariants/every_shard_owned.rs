//! Once all faults are over, every shard is owned within the stated bound.

use crate::clock::SECOND;
use crate::heal::Census;
use crate::world::{Judged, World};

pub(crate) const NAME: &str = "every_shard_owned";

pub(crate) fn judge(world: &World, census: &Census) -> Judged {
    let healing = &world.healing;
    let late = |last: &crate::clock::Instant| world.at > last + healing.bounds.owned;
    let Some(index) = healing.owned_last.iter().position(late) else { return Ok(()) };
    let shard = census.shards[index].shard;
    let told = world.records.get(shard);
    let message = format!(
        "nobody owns shard {shard}, {} s after all faults were over and {} s since it was last; its record is {:?} since {}.{:03}s; {}",
        (world.at - healing.began_at) / SECOND,
        (world.at - healing.owned_last[index]) / SECOND,
        told.state,
        told.since / SECOND,
        told.since / 1_000_000 % 1000,
        world.standings(census)
    );
    Err(world.violation(NAME, Some(shard), message))
}
