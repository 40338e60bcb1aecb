//! Once all faults are over, every node is attached within the stated bound, by itself.

use leasehold_core::notice::SessionState;

use crate::oracle::Census;
use crate::world::{Judged, World};

pub(crate) const NAME: &str = "nobody_stays_detached";

pub(crate) fn judge(world: &World, census: &Census) -> Judged {
    for process in &census.alive {
        let node = &world.processes[*process];
        if node.session_state != SessionState::Attached {
            let message = format!(
                "process {process} of {} is {}; {}",
                node.name,
                node.session_state,
                world.standings(census)
            );
            return Err(world.violation(NAME, None, message));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_detached_node_is_noticed() {
        let mut world = World::healed(2, 2);
        assert_eq!(judge(&world, &world.census()), Ok(()));
        let process = world.slots[1].process.unwrap();
        world.processes[process].session_state = SessionState::Detached;
        assert_eq!(judge(&world, &world.census()).unwrap_err().invariant, NAME);
    }
}
