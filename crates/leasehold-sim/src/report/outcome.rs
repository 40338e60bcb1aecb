//! The result of one run.

use serde::Serialize;

use crate::faults::{FaultCoverage, ScheduledFault};
use crate::invariants::Violation;
use crate::report::timeline::Timeline;
use crate::report::trace::TraceEntry;
use crate::store::shape::StoreKind;
use crate::world::World;
use crate::world::clock::Instant;

/// The result of one run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Its seed.
    pub seed: u64,
    /// Which kind of store was simulated.
    pub store: StoreKind,
    /// The first promise that was broken.
    pub violation: Option<Violation>,
    /// The faults of the run.
    pub faults: Vec<ScheduledFault>,
    /// What happened, in numbers.
    pub stats: Stats,
    /// The trace, if the run was traced.
    pub trace: Vec<TraceEntry>,
    /// Which process ran what when.
    pub timeline: Timeline,
}

/// What happened in one run, or in many, in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stats {
    /// Events of the world.
    pub events: u64,
    /// Steps of cores.
    pub steps: u64,
    /// Of these, ticks.
    pub ticks: u64,
    /// Virtual time, in nanoseconds.
    pub virtual_ns: u64,
    /// Faults that struck.
    pub faults: u64,
    /// Runs of user code that began.
    pub starts: u64,
    /// Sessions that were lost.
    pub detachments: u64,
    /// Sessions that another node fenced.
    pub fenced: u64,
    /// New incarnations.
    pub incarnations: u64,
    /// Processes that left as they were told.
    pub left: u64,
    /// Writes that the store applied.
    pub writes: u64,
    /// Reads that it served.
    pub reads: u64,
    /// Listings that it served.
    pub lists: u64,
    /// Requests that were given up.
    pub gave_up: u64,
    /// Writes that arrived at the sink.
    pub sink_writes: u64,
    /// Of these, those that it refused.
    pub sink_rejected: u64,
    /// From when all faults were over until every shard was owned, in nanoseconds; of many runs, the longest.
    pub owned_after: u64,
    /// Until the plan was reached.
    pub converged_after: u64,
    /// Events of the busiest run.
    pub busiest: u64,
    /// How often each kind of fault took effect.
    pub fault_coverage: FaultCoverage,
    /// A digest of everything that happened: two runs with the same one did the same.
    pub digest: u64,
}

impl Stats {
    /// Adds those of another run.
    pub fn add(&mut self, other: &Stats) {
        self.events += other.events;
        self.steps += other.steps;
        self.ticks += other.ticks;
        self.virtual_ns += other.virtual_ns;
        self.faults += other.faults;
        self.starts += other.starts;
        self.detachments += other.detachments;
        self.fenced += other.fenced;
        self.incarnations += other.incarnations;
        self.left += other.left;
        self.writes += other.writes;
        self.reads += other.reads;
        self.lists += other.lists;
        self.gave_up += other.gave_up;
        self.sink_writes += other.sink_writes;
        self.sink_rejected += other.sink_rejected;
        self.owned_after = self.owned_after.max(other.owned_after);
        self.converged_after = self.converged_after.max(other.converged_after);
        self.busiest = self.busiest.max(other.busiest);
        self.fault_coverage.add(&other.fault_coverage);
        // The order in which runs are added must not matter.
        self.digest ^= other.digest;
    }
}

/// Something in the life of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessEvent {
    /// It began.
    Began,
    /// It was paused.
    Paused,
    /// It resumed.
    Resumed,
    /// It was over.
    Ended,
}

impl Outcome {
    pub(crate) fn new(world: World, violation: Option<Violation>) -> Self {
        let timeline = Timeline::of(&world);
        Outcome {
            seed: world.scenario.seed,
            store: world.scenario.kind,
            violation,
            timeline,
            faults: world.faults,
            stats: world.stats,
            trace: world.trace.into_entries(),
        }
    }

    /// When the run ended, in true time.
    pub fn ended_at(&self) -> Instant {
        self.stats.virtual_ns
    }
}
