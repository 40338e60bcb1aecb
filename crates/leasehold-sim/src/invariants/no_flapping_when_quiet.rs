//! Once the plan is reached and nothing happens, nothing moves.

use crate::oracle::Census;
use crate::world::{Judged, World};

pub(crate) const NAME: &str = "no_flapping_when_quiet";

pub(crate) fn judge(world: &World, census: &Census) -> Judged {
    let begun = world.oracle.state.runs.len() - world.healing.runs_at_converged;
    let idle = census.shards.iter().find(|owned| !owned.running).map(|owned| owned.shard);
    if begun == 0 && idle.is_none() {
        return Ok(());
    }
    let idle_shard = idle.map_or(String::new(), |shard| format!("; shard {shard} does not run"));
    let message = format!("{begun} starts while all was quiet{idle_shard}; {}", world.standings(census));
    Err(world.violation(NAME, idle, message))
}

#[cfg(test)]
mod tests {
    use leasehold_core::ShardId;
    use leasehold_core::store::Key;

    use super::*;

    #[test]
    fn a_start_is_noticed_and_so_is_what_does_not_run() {
        let mut world = World::healed(2, 3);
        assert_eq!(judge(&world, &world.census()), Ok(()));
        world.healing.runs_at_converged -= 1;
        assert_eq!(judge(&world, &world.census()).unwrap_err().invariant, NAME);
        world.healing.runs_at_converged += 1;
        let key = Key::Shard(ShardId::slot(&world.scenario.group, 2));
        world.records.changed(world.at, &world.scenario, &key, None);
        assert_eq!(judge(&world, &world.census()).unwrap_err().shard, Some(2));
    }
}
