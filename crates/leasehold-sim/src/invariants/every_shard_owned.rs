//! Once all faults are over, every shard is owned within the stated bound.

use crate::oracle::Census;
use crate::world::clock::SECOND;
use crate::world::{Judged, World};

pub(crate) const NAME: &str = "every_shard_owned";

pub(crate) fn judge(world: &World, census: &Census) -> Judged {
    let healing = &world.healing;
    let late =
        |index: &usize| world.at > healing.owned_last[*index] + world.owned_within(healing.losses[*index]);
    let Some(index) = (0..healing.owned_last.len()).find(late) else { return Ok(()) };
    let shard = census.shards[index].shard;
    let status = world.records.get(shard);
    let message = format!(
        "no node owns shard {shard}, {} s after all faults were over and {} s after it was last owned; its record is {} since {}.{:03}s; {}",
        (world.at - healing.began_at) / SECOND,
        (world.at - healing.owned_last[index]) / SECOND,
        status.state,
        status.since / SECOND,
        status.since / 1_000_000 % 1000,
        world.standings(census)
    );
    Err(world.violation(NAME, Some(shard), message))
}

#[cfg(test)]
mod tests {
    use leasehold_core::ShardId;
    use leasehold_core::store::Key;

    use super::*;
    use crate::oracle::records::Loss;

    #[test]
    fn a_shard_that_no_node_takes_is_noticed_and_what_was_lost_may_take_longer() {
        let mut world = World::healed(2, 3);
        assert_eq!(judge(&world, &world.census()), Ok(()));
        let since = world.at;
        let key = Key::Shard(ShardId::slot(&world.scenario.group, 1));
        let look = |world: &mut World, at| {
            world.at = at;
            let census = world.census();
            world.note_owned(&census);
            judge(world, &census)
        };
        assert_eq!(look(&mut world, since), Ok(()));
        world.records.changed(since, &world.scenario, &key, None);
        let within = since + world.owned_within(Loss::Nothing);
        assert_eq!(look(&mut world, within), Ok(()));
        let violation = look(&mut world, within + 1).unwrap_err();
        assert_eq!((violation.invariant, violation.shard), (NAME, Some(1)));
        world.records.tampered(&world.scenario, &key, Loss::Lost);
        let within = since + world.owned_within(Loss::Lost);
        assert_eq!(look(&mut world, within), Ok(()), "its record was lost");
        assert_eq!(look(&mut world, within + 1).unwrap_err().shard, Some(1));
    }
}
