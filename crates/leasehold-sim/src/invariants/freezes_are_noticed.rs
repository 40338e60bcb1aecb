//! A machine that was frozen, at once or little by little, for more than the margin since its session was last renewed is noticed
//! at the first instruction after that: the wall clock ran on and the boot clock did not, so that all grants are lost.

use crate::oracle::SessionNo;
use crate::world::clock::MS;
use crate::world::{Judged, World};

pub(crate) const NAME: &str = "freezes_are_noticed";

/// Wall clocks count in milliseconds.
const ROUNDING: u64 = 2 * MS;

/// Judged when the core of a process has taken in an event, for the session that it had before. One that has just begun is
/// compared next time, before anything can start in it.
pub(crate) fn judge(world: &World, process: usize, before: Option<SessionNo>) -> Judged {
    let node = &world.processes[process];
    if node.thawed_at == 0 || !node.running() {
        return Ok(());
    }
    let good = node.session().filter(|session| !session.lost);
    let Some(session) = good.filter(|session| Some(session.number) == before) else { return Ok(()) };
    let clock = &world.slots[node.slot].clock;
    let renewed = session.deadlines.valid_until.as_nanos() - node.valid_for;
    let renewed_at = clock.when(leasehold_core::Moment::from_nanos(renewed));
    // A step back of the wall clock may hide a freeze before it, and until the core has looked at the clocks again.
    let (since, shown) = match clock.stepped_at >= renewed_at {
        true => (node.wall_step_seen_at, clock.moment(node.wall_step_seen_at).as_nanos()),
        false => (renewed_at, renewed),
    };
    let wall = world.at - since;
    let boot = clock.moment(world.at).as_nanos() - shown;
    if wall <= boot + node.margin + ROUNDING {
        return Ok(());
    }
    let message = format!(
        "process {process} goes on, although its clock stood still for {} ms since its last renewal",
        (wall - boot) / MS
    );
    Err(world.violation(NAME, None, message))
}
