//! At rest, the only writes are the nodes' renewals, one per node and renewal, however many shards there are. Old records of
//! nodes that are gone may still be removed, each after at most one write per group that raises the group's epoch floor.

use crate::oracle::Census;
use crate::world::{Judged, World};

pub(crate) const NAME: &str = "writes_at_rest_are_renewals";

pub(crate) fn judge(world: &World, census: &Census) -> Judged {
    let healing = &world.healing;
    let others = healing.other_writes - healing.other_writes_before;
    if others > 0 {
        let last = healing.last_other.as_ref().map_or("nothing".to_owned(), ToString::to_string);
        let message = format!("{others} writes at rest that are not renewals; the last one was to {last}");
        return Err(world.violation(NAME, None, message));
    }
    let (raised, most) = (healing.floors_raised - healing.floors_raised_before, healing.floors_to_raise);
    if raised > most {
        let message = format!("floors of groups were raised {raised} times at rest; {most} would be enough");
        return Err(world.violation(NAME, None, message));
    }
    // Renewals come up to a tenth early, on a clock that may be fast; and one more for the edges.
    let each = healing.bounds.quiet * 102 / 100 / (healing.bounds.renew_every * 89 / 100) + 2;
    let renewals = healing.node_writes - healing.node_writes_before;
    let most = each * census.alive.len() as u64;
    if renewals > most {
        let message = format!(
            "{renewals} renewals at rest by {} nodes; at most {most} are expected",
            census.alive.len()
        );
        return Err(world.violation(NAME, None, message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_write_is_noticed_and_so_are_too_many_renewals() {
        let mut world = World::healed(2, 2);
        assert_eq!(judge(&world, &world.census()), Ok(()));
        world.healing.other_writes += 1;
        assert_eq!(judge(&world, &world.census()).unwrap_err().invariant, NAME);
        world.healing.other_writes -= 1;
        world.healing.floors_raised += 1;
        assert_eq!(judge(&world, &world.census()).unwrap_err().invariant, NAME);
        world.healing.floors_to_raise += 1;
        assert_eq!(judge(&world, &world.census()), Ok(()));
        let bounds = &world.healing.bounds;
        // One every half of the usual time.
        world.healing.node_writes += 2 * 2 * bounds.quiet / bounds.renew_every;
        assert_eq!(judge(&world, &world.census()).unwrap_err().invariant, NAME);
    }
}
