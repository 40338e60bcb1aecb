//! A process that starts in a namespace with a newer protocol or format opens no session there.

use crate::faults::Fault;
use crate::world::clock::{Instant, SECOND};
use crate::world::process::Version;
use crate::world::{Judged, World};

pub(crate) const NAME: &str = "unspoken_protocol_is_refused";

/// A process opens a session.
pub(crate) fn judge(world: &World, process: usize) -> Judged {
    let Some(since) = world.records.refuses_since() else { return Ok(()) };
    let node = &world.processes[process];
    if node.version == Version::Newer || node.began_at <= since + stale_by(world) {
        return Ok(());
    }
    let message = format!(
        "process {process} opens a session, although the namespace has required a newer version since {} s",
        since / SECOND
    );
    Err(world.violation(NAME, None, message))
}

/// How old a listing can be at worst.
fn stale_by(world: &World) -> Instant {
    let faults = world.faults.iter().map(|planned| match planned.fault {
        Fault::StaleLists { lag, .. } => lag,
        _ => 0,
    });
    faults.max().unwrap_or(0).max(world.scenario.shape.stale_by())
}

#[cfg(test)]
mod tests {
    use leasehold_core::store::Key;

    use super::*;

    #[test]
    fn a_session_of_an_older_version_is_noticed() {
        let mut world = World::healed(2, 2);
        let process = world.slots[0].process.unwrap();
        assert_eq!(judge(&world, process), Ok(()));
        let raised = br#"{"protocol":[2,2]}"#;
        world.records.changed(world.at, &world.scenario, &Key::Meta, Some(raised));
        assert_eq!(judge(&world, process), Ok(()), "it was there before");
        world.processes[process].began_at = world.at + 1;
        assert_eq!(judge(&world, process).unwrap_err().invariant, NAME);
        world.processes[process].version = Version::Newer;
        assert_eq!(judge(&world, process), Ok(()));
    }
}
