//! While the world heals, no shard starts more often than there are reasons for it.

use crate::world::{Judged, World};

pub(crate) const NAME: &str = "moves_within_bound";

/// A shard may have to start because its holder was lost, once more because the plan
/// wants another node than the first one that took it, and once more when the last node has come back.
const STARTS_MAX: usize = 5;

pub(crate) fn judge(world: &World) -> Judged {
    let healed = &world.oracle.state.runs[world.healing.runs_at_began..];
    for shard in world.shards_wanted() {
        let starts = healed.iter().filter(|run| run.shard == shard).count();
        if starts > STARTS_MAX {
            let message = format!("shard {shard} started {starts} times while the world healed");
            return Err(world.violation(NAME, Some(shard), message));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_start_too_many_is_noticed() {
        let mut world = World::healed(2, 3);
        assert_eq!(judge(&world), Ok(()));
        world.healing.runs_at_began = world.oracle.state.runs.len();
        let again = world.oracle.state.runs.iter().find(|run| run.shard == 1).cloned().unwrap();
        for _ in 0..STARTS_MAX {
            world.oracle.state.runs.push(again.clone());
        }
        assert_eq!(judge(&world), Ok(()));
        world.oracle.state.runs.push(again);
        assert_eq!(judge(&world).unwrap_err().shard, Some(1));
    }
}
