//! Once all faults are over, every shard is owned within the stated bound.

use crate::clock::SECOND;
use crate::heal::Census;
use crate::world::{Judged, World};

pub(crate) const NAME: &str = "every_shard_owned";

pub(crate) fn judge(world: &World, census: &Census) -> Judged {
    let Some(shard) = census.shards.iter().position(|owned| owned.holder.is_none()) else { return Ok(()) };
    let told = world.records.get(shard);
    let message = format!(
        "nobody owns shard {shard}, {} s after all faults were over; its record is {:?} since {}.{:03}s; {}",
        (world.at - world.healing.began_at) / SECOND,
        told.state,
        told.since / SECOND,
        told.since / 1_000_000 % 1000,
        world.standings(census)
    );
    Err(world.violation(NAME, Some(shard), message))
}
