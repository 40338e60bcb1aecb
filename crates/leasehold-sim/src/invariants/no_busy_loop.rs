//! No core spins: when called at the moment it asked for, it does not ask for that moment again and again. The world is not
//! busier than any number of faults explains. A run that would go on forever ends here.

use crate::world::clock::{MS, SECOND};
use crate::world::{Judged, World};

pub(crate) const NAME: &str = "no_busy_loop";

/// How many ticks a process may take within one millisecond of its own time.
const TICKS_MAX: u32 = 200;

/// How many events a run may have, whatever its length, and how many more per machine and second of virtual time.
const EVENTS_MAX: u64 = 100_000;
const EVENTS_PER_SECOND_MAX: u64 = 200;

/// How often the whole world is looked at, in events.
const LOOK_EVERY: u64 = 256;

/// Whether the world is busier than any number of faults explains.
pub(crate) fn judge_world(world: &World) -> Judged {
    let events = world.stats.events;
    if !events.is_multiple_of(LOOK_EVERY) {
        return Ok(());
    }
    let machines = world.slots.len() as u64;
    let allowed = EVENTS_MAX + world.at * machines / SECOND * EVENTS_PER_SECOND_MAX;
    if events <= allowed {
        return Ok(());
    }
    let message = format!(
        "{events} events within {} s on {machines} machines, where {allowed} are the limit; the run is cut off",
        world.at / SECOND
    );
    Err(world.violation(NAME, None, message))
}

pub(crate) fn judge(world: &mut World, process: usize) -> Judged {
    let ms = world.at / MS;
    let node = &mut world.processes[process];
    if node.busy.0 != ms {
        node.busy = (ms, 0);
    }
    node.busy.1 += 1;
    if node.busy.1 > TICKS_MAX {
        let message = format!("process {process} asked to be called {TICKS_MAX} times within a millisecond");
        return Err(world.violation(NAME, None, message));
    }
    Ok(())
}
