//! A node believes that its store was emptied, replaced or rolled back only if something happened to the store. A false alarm
//! costs every node its session.

use leasehold_core::notice::{Cause, Notice};

use crate::faults::Fault;
use crate::world::{Judged, World};

pub(crate) const NAME: &str = "store_changes_are_real";

/// Judged when a core tells people something.
pub(crate) fn judge(world: &World, process: usize, notice: &Notice) -> Judged {
    let Notice::StateChanged { cause: Cause::StoreChanged(what), .. } = notice else { return Ok(()) };
    if world.store_was_touched {
        return Ok(());
    }
    let message =
        format!("process {process} detaches because of its store ({what}), to which nothing happened");
    Err(world.violation(NAME, None, message))
}

/// Whether a fault makes the store lose or change what was written, or lets others write into it.
pub(crate) fn touches_the_store(fault: &Fault) -> bool {
    matches!(
        fault,
        Fault::Emptied { .. }
            | Fault::RolledBack { .. }
            | Fault::Failover { .. }
            | Fault::StoreRestart { .. }
            | Fault::Corrupt { .. }
            | Fault::Vanish { .. }
            | Fault::Upgrade { .. }
            | Fault::Downgrade { .. }
            | Fault::Protocol { .. }
            | Fault::Twin { .. }
    )
}
