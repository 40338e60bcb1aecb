//! What a driver decides about the work that it runs: whether it may start, who is told to stop, when it is cut off,
//! when nothing of it is left, and when the kernel must have killed the process.
//!
//! ```text
//!   core's actions ──┐                         ┌─> Hands   run, tell, cut off, extend, arm the timer
//!                    ├─> Works (driver thread) ┤
//!   ends of work ────┘                         └─> Event   what the core must hear at once
//!
//!   clock ───────────> Watch (its own thread)  ──> WatchdogAction   lose, kill, cut off: needs nobody's answer
//! ```
//!
//! There is no clock and no task in here. The library and the simulator both run this code; each brings its own
//! [`Hands`]. GUARANTEES, "Stop before loss".

#[cfg(test)]
mod tests;
mod timer;
mod watch;
mod works;

pub use watch::{SessionStatus, Watch, WatchdogAction};
pub use works::{SessionLost, Works};

use crate::event::{Deadlines, StopReason};
use crate::name::{Epoch, ShardId};
use crate::time::Moment;

/// A session of this process, numbered in the order in which they were opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionNo(pub u32);

/// What carries out the decisions of [`Works`]. Nothing of it may wait.
pub trait Hands {
    /// Lets the kernel kill the process at this moment, or never. Fails with a reason.
    fn arm(&mut self, at: Option<Moment>) -> Result<(), String>;
    /// A session has its first deadlines: from now on it is watched.
    fn open(&mut self, session: SessionNo, deadlines: Deadlines);
    /// A session's deadlines moved forward. Fails if it was lost before it could be told.
    fn extend(&mut self, session: SessionNo, deadlines: Deadlines) -> Result<(), SessionLost>;
    /// A session is lost for good: everything under it is told.
    fn lose(&mut self, session: SessionNo);
    /// Whether a session is good right now, by the clock.
    fn holds(&mut self, session: SessionNo) -> bool;
    /// Starts the handlers of a shard, and says how many there are.
    fn run(&mut self, session: SessionNo, shard: &ShardId, epoch: Epoch) -> usize;
    /// Tells all that runs for a shard to stop, and why.
    fn tell(&mut self, shard: &ShardId, epoch: Epoch, why: StopReason);
    /// Cuts off all that runs for a shard at this moment.
    fn cut_off_at(&mut self, shard: &ShardId, epoch: Epoch, at: Moment);
    /// No handler of the shard is left: ends its grant for good, unless something runs on that the grant owns. True if
    /// the grant has ended; then nothing can begin under it any more.
    fn close(&mut self, shard: &ShardId, epoch: Epoch) -> bool;
}
