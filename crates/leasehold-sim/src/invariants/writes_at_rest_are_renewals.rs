//! At rest, the only writes are the nodes' renewals, one per node and renewal, however many shards there are.

use crate::heal::Census;
use crate::world::{Judged, World};

pub(crate) const NAME: &str = "writes_at_rest_are_renewals";

pub(crate) fn judge(world: &World, census: &Census) -> Judged {
    let healing = &world.healing;
    let others = healing.other_writes - healing.other_writes_before;
    if others > 0 {
        let message =
            format!("{others} writes at rest that are no renewals; the last one of {:?}", healing.last_other);
        return Err(world.violation(NAME, None, message));
    }
    // Renewals come up to a tenth early, on a clock that may be fast; and one more for the edges.
    let each = healing.bounds.quiet * 102 / 100 / (healing.bounds.renew_every * 89 / 100) + 2;
    let renewals = healing.node_writes - healing.node_writes_before;
    let most = each * census.alive.len() as u64;
    if renewals > most {
        let message =
            format!("{renewals} renewals at rest of {} nodes; {most} would be enough", census.alive.len());
        return Err(world.violation(NAME, None, message));
    }
    Ok(())
}
