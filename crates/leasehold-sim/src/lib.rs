//! Leasehold's proof: the real core under virtual time, a simulated store, and every fault that we could think of.
//!
//! A run is a world of several nodes, each the real [`leasehold_core::Node`] with a clock of its own, on one simulated
//! store shaped like one of the real ones. One seed decides everything: the settings, the schedule of faults, and
//! every draw of chance after that. The same seed gives the same run, byte for byte, because nothing in here reads a
//! clock, a random source, or a map without order.
//!
//! Workers are part of the world. The oracle sees when user code really ran and which epoch its writes carried, in
//! true time that nobody inside the world can read, and judges that by the invariants. First faults strike for a
//! while, then everything heals, and the world must come back to full ownership and to rest by itself.

mod bounds;
mod clock;
mod driver;
mod fault_coverage;
mod fault_words;
mod faults;
mod hands;
mod heal;
mod inflict;
mod invariants;
mod lifecycle;
mod machine;
mod network;
mod operator;
mod options;
mod oracle;
mod outcome;
mod parts;
mod process;
mod profile;
mod provocation;
mod queue;
mod reading;
mod records;
pub mod report;
mod rng;
mod runner;
mod sabotage;
mod setting;
mod shape;
mod shrink;
mod sink;
mod store;
mod timeline;
mod trace;
mod watch;
mod weather;
mod words;
mod worker;
mod world;

pub use clock::{Instant, MS, SECOND};
pub use fault_coverage::FaultCoverage;
pub use faults::{Comeback, Damage, Fault, Going, Grace, Kind, Place, Planned, Raise, Target, Way};
pub use invariants::Violation;
pub use options::{Mistake, Options, Tracing, parse_keep};
pub use oracle::{Fence, Happening, Oracle, ProcessNo, RunEnd, RunNo, SessionNo, ShardNo, State, Until};
pub use outcome::{Mark, Outcome, Stats};
pub use profile::{FaultKind, Profile};
pub use runner::{AfterFailure, Progress, Summary, run_many, run_until};
pub use sabotage::{Duty, Order, Sabotage, sabotage_table};
pub use shape::StoreKind;
pub use shrink::shrink;
pub use store::Generation;
pub use timeline::Timeline;
pub use trace::{Line, transcript};

/// Runs one seed to its end.
pub fn run(options: &Options, seed: u64) -> Outcome {
    world::World::new(options, seed).run()
}

/// The faults of one seed, as they would strike.
pub fn schedule(options: &Options, seed: u64) -> Vec<Planned> {
    faults::planned(options, seed, &setting::Setting::new(options, seed))
}
