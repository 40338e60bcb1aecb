//! Once all faults are over, a node that an operator drains holds nothing within the stated bound, if there is another
//! node.

use crate::oracle::Census;
use crate::world::{Judged, World};

pub(crate) const NAME: &str = "drains_finish";

pub(crate) fn judge(world: &World, census: &Census) -> Judged {
    let Some(drained) = &world.healing.drained else { return Ok(()) };
    if census.alive.len() < 2 {
        return Ok(());
    }
    for process in &census.alive {
        let held = census.shards.iter().filter(|owned| owned.holder == Some(*process)).count();
        if world.processes[*process].name == *drained && held > 0 {
            let message =
                format!("{drained} is drained and still holds {held} shards; {}", world.standings(census));
            return Err(world.violation(NAME, None, message));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drained_node_that_holds_something_is_noticed() {
        let mut world = World::healed(2, 4);
        assert_eq!(judge(&world, &world.census()), Ok(()));
        world.healing.drained = Some(world.slots[1].name.clone());
        assert_eq!(judge(&world, &world.census()).unwrap_err().invariant, NAME);
        let mut census = world.census();
        let other = world.slots[0].process;
        census.shards.iter_mut().for_each(|owned| owned.holder = other);
        assert_eq!(judge(&world, &census), Ok(()));
    }
}
