//! What goes wrong, or is asked for, while a run lasts.
//!
//! To add a fault:
//! 1. [`kind`]: a kind with its name and class for `--faults`, and how often it is drawn.
//! 2. [`fault`]: a variant of [`Fault`] with what it needs to know, and for how long it is on.
//! 3. [`schedule`]: `draw` makes one from the seed. [`words`]: how a schedule prints it.
//! 4. [`strike`]: how it begins and how it ends. [`damage`] does the same for single records.
//! 5. [`coverage`]: when it counts as having taken effect. `tests/faults.rs` fails for a kind that never does.
//! 6. `oracle/healing.rs`: whether it `disturbs` the balance of shards; `world/scenario.rs`: where it is not possible; and
//!    `as_found` in `tests/regressions.rs`: without it there, the seeds of earlier findings become other schedules.

mod coverage;
mod damage;
mod fault;
mod kind;
mod profile;
mod schedule;
mod strike;
mod words;

pub use coverage::FaultCoverage;
pub use fault::{Damage, Fault, Grace, GroupKind, PausePoint, Raise, Restart, Shutdown, Target, Traffic};
pub use kind::FaultKind;
pub use profile::Profile;
pub use schedule::ScheduledFault;
pub(crate) use schedule::planned;
