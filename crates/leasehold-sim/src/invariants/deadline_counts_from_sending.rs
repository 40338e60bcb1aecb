//! A grant is valid no longer than `ttl × (1 − drift)` after the newest renewal that is in the store was sent, on the
//! clock of the sender. What counts here is what the store has, not what the node believes.

use leasehold_core::Moment;

use crate::world::clock::MS;
use crate::world::{Judged, World};

pub(crate) const NAME: &str = "deadline_counts_from_sending";

pub(crate) fn judge(world: &World, process: usize, valid_until: Moment) -> Judged {
    let node = &world.processes[process];
    let sent_at = world.slots[node.slot].clock.moment(node.proved_from);
    let proved_until = sent_at.as_nanos() + node.valid_for;
    let too_long = valid_until.as_nanos().saturating_sub(proved_until);
    if too_long == 0 {
        return Ok(());
    }
    let message = format!(
        "process {process} treats its grants as valid for {} ms longer than its newest renewal in the store allows",
        too_long.div_ceil(MS)
    );
    Err(world.violation(NAME, None, message))
}
