//! Leasehold's proof: the real core under virtual time, a simulated store, and every fault that we could think of.
//!
//! A run is a world of several nodes. Each node is the real [`leasehold_core::Node`] with its own clock, and all of them
//! share one simulated store that behaves like one of the real ones. One seed decides everything: the scenario, the
//! schedule of faults, and every random draw after that. The same seed gives the same run, byte for byte, because
//! nothing here reads a clock, a random source or an unordered map.
//!
//! User code is part of the world. The oracle sees in true time, which nobody inside the world can read, when user code
//! really ran and which epochs its writes carried, and the invariants judge that. First faults strike for a while. Then
//! everything heals, and the world must return to full ownership and to rest by itself.
//!
//! # Where a change goes
//!
//! - A new fault: `faults/`. The head of `faults/mod.rs` lists the steps.
//! - A new invariant: one file in `invariants/`, named after the promise. The head of `invariants/mod.rs` says where to
//!   call it.
//! - How a kind of store behaves: `store/shape.rs`.
//! - A safety rule that can be switched off: `sabotage/`.
//!
//! | folder | what it has |
//! | --- | --- |
//! | `world/` | the event loop, virtual time, machines, processes, the driver, the network, operators |
//! | `store/` | the simulated store, how it is read and watched, what makes it slow or unavailable |
//! | `workload/` | simulated user code, and the fenced sink that it writes to |
//! | `faults/` | the faults, their schedule, how they strike, and whether they took effect |
//! | `oracle/` | what really happened, and how the end of a run is judged |
//! | `invariants/` | one file for each promise |
//! | `runner/` | options, many seeds at once, the shortest schedule that still fails |
//! | `report/` | the result of a run, and its story in words |
//! | `sabotage/` | rules switched off, to show that the invariants notice |

#![cfg_attr(docsrs, feature(doc_cfg))]

mod faults;
mod invariants;
mod oracle;
pub mod report;
mod rng;
mod runner;
mod sabotage;
mod store;
mod workload;
mod world;

pub use faults::{
    Damage, Fault, FaultCoverage, FaultKind, Grace, GroupKind, PausePoint, Profile, Raise, Restart,
    ScheduledFault, Shutdown, Target, Traffic,
};
pub use invariants::Violation;
pub use oracle::{Fence, Observation, Oracle, ProcessNo, RunEnd, RunNo, SessionNo, ShardNo, State, Until};
pub use report::outcome::{Outcome, ProcessEvent, Stats};
pub use report::timeline::Timeline;
pub use report::trace::{TraceEntry, transcript};
pub use runner::options::{Circumstance, OptionError, Options, Tracing, parse_keep};
pub use runner::shrink::shrink;
pub use runner::{AfterFailure, Progress, Summary, run_many, run_until};
pub use sabotage::{Duty, Need, ReadOrder, Sabotage, needs_table, sabotage_table};
pub use store::Generation;
pub use store::shape::StoreKind;
pub use world::clock::{Instant, MS, SECOND};

/// Runs one seed to its end.
pub fn run(options: &Options, seed: u64) -> Outcome {
    world::World::new(options, seed).run()
}

/// The faults of one seed, as they would strike.
pub fn schedule(options: &Options, seed: u64) -> Vec<ScheduledFault> {
    faults::planned(options, seed, &world::scenario::Scenario::new(options, seed))
}
