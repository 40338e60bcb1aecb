//! A core that is called when it asked to be does not ask for the same moment again and again.

use crate::world::{Judged, World};

pub(crate) const NAME: &str = "no_busy_loop";

/// How many ticks a process may take within one millisecond of its own time.
const TICKS_MAX: u32 = 200;

/// How many events a process may cause per second of virtual time, averaged over the run so far.
const EVENTS_MAX: u64 = 2_000;

/// Whether the world is busier than any number of faults explains.
pub(crate) fn judge_world(world: &World) -> Judged {
    let seconds = world.at / crate::clock::SECOND + 10;
    if world.stats.events > EVENTS_MAX * seconds * world.slots.len() as u64 {
        let message = format!("{} events within {seconds} s", world.stats.events);
        return Err(world.violation(NAME, None, message));
    }
    Ok(())
}

pub(crate) fn judge(world: &mut World, process: usize) -> Judged {
    let ms = world.at / 1_000_000;
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
