//! The simulated world: virtual time, machines, processes and the network, and the event loop that drives them.
//!
//! [`World`] takes one [`WorldEvent`] after the other from its queue and carries it out. The other files here, and the other
//! folders, add methods to it.

pub(crate) mod clock;
mod driver;
mod event;
mod lifecycle;
mod machine;
pub(crate) mod network;
pub(crate) mod newer_version;
mod operator;
pub(crate) mod process;
mod queue;
pub(crate) mod scenario;
mod supervisor;

pub(crate) use driver::mentions;
pub(crate) use event::{AnswerCopy, WorldEvent};

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use leasehold_core::event::Event;
use leasehold_core::{NodeName, SessionId};

use crate::faults::{ScheduledFault, planned};
use crate::invariants::{Violation, no_busy_loop, no_panic};
use crate::oracle::records::Records;
use crate::oracle::{Healing, Observation, Oracle};
use crate::report::outcome::{Outcome, ProcessEvent, Stats};
use crate::report::trace::Trace;
use crate::rng::{Purpose, Rng, mix};
use crate::runner::options::Options;
use crate::sabotage::{Duty, ReadOrder, Sabotage};
use crate::store::SimStore;
use crate::store::impairment::Impairments;
use crate::workload::{Sink, Worker};
use crate::world::clock::{Instant, SECOND};
use crate::world::process::{Process, Slot};
use crate::world::scenario::Scenario;

/// Whether all is well so far.
pub(crate) type Judged = Result<(), Violation>;

/// One run.
pub(crate) struct World {
    pub(crate) scenario: Scenario,
    pub(crate) sabotage: Option<Sabotage>,
    pub(crate) at: Instant,
    queue: queue::Queue<WorldEvent>,
    pub(crate) slots: Vec<Slot>,
    pub(crate) processes: Vec<Process>,
    pub(crate) workers: Vec<Worker>,
    pub(crate) store: SimStore,
    pub(crate) records: Records,
    pub(crate) impairments: Impairments,
    pub(crate) sink: Sink,
    pub(crate) oracle: Oracle,
    pub(crate) faults: Vec<ScheduledFault>,
    /// Faults that are on and have to be ended.
    pub(crate) active_faults: BTreeSet<usize>,
    /// Slots of second processes under a name in use, with the fault that they are from.
    pub(crate) twins: Vec<(usize, usize)>,
    /// Faults that struck and take effect only when a node does what they ask for.
    pub(crate) awaiting_effect: Vec<usize>,
    /// Of active faults that are operators' commands: the node that each is about.
    pub(crate) asked_for: BTreeMap<usize, NodeName>,
    /// Whether a fault has done anything to the store itself.
    pub(crate) store_was_touched: bool,
    /// Whether `meta` has ever asked for what this version does not speak.
    pub(crate) raised: bool,
    /// Nodes whose records were deleted, and when.
    pub(crate) hidden: BTreeMap<NodeName, Instant>,
    pub(crate) healing: Healing,
    /// Sessions whose process is gone, where the kernel can tell.
    pub(crate) proved_gone: Vec<SessionId>,
    pub(crate) operator_rng: Rng,
    /// How long operators take between reading and writing.
    pub(crate) operator_delay_rng: Rng,
    pub(crate) store_rng: Rng,
    /// When the parts of an answer are read.
    pub(crate) reading_rng: Rng,
    pub(crate) trace: Trace,
    pub(crate) marks: Vec<(Instant, usize, ProcessEvent)>,
    pub(crate) stats: Stats,
    pub(crate) scratch: Vec<leasehold_core::event::Action>,
    /// Whether a newer version has ever run here.
    pub(crate) newer_about: bool,
    /// When the request that the store is serving was sent.
    pub(crate) served_from: Instant,
    digest: u64,
}

/// How often the oracle looks at the world.
pub(crate) const LOOK_EVERY: Instant = SECOND;

impl World {
    pub(crate) fn new(options: &Options, seed: u64) -> Self {
        let scenario = Scenario::new(options, seed);
        let faults = planned(options, seed, &scenario);
        let slots = (0..scenario.nodes).map(|slot| {
            let name = NodeName::new(format!("n{slot}")).expect("a valid name");
            Slot::new(name, scenario.clock(slot))
        });
        let neighbours = scenario.neighbours.then(|| Rng::new(seed, Purpose::Neighbours, 0));
        World {
            sabotage: options.sabotage,
            at: 0,
            queue: queue::Queue::new(),
            slots: slots.collect(),
            processes: Vec::new(),
            workers: Vec::new(),
            store: SimStore::new(scenario.kind).with_neighbours(neighbours),
            records: Records::default(),
            impairments: Impairments::default(),
            sink: Sink::default(),
            oracle: Oracle::default(),
            active_faults: BTreeSet::new(),
            twins: Vec::new(),
            awaiting_effect: Vec::new(),
            asked_for: BTreeMap::new(),
            store_was_touched: false,
            raised: false,
            hidden: BTreeMap::new(),
            healing: Healing::new(&scenario),
            faults,
            proved_gone: Vec::new(),
            operator_rng: Rng::new(seed, Purpose::Operator, 0),
            operator_delay_rng: Rng::new(seed, Purpose::Operator, 1),
            store_rng: Rng::new(seed, Purpose::Store, 0),
            reading_rng: Rng::new(seed, Purpose::Reading, 0),
            trace: Trace::new(options.tracing),
            marks: Vec::new(),
            stats: Stats::default(),
            scratch: Vec::new(),
            newer_about: false,
            served_from: 0,
            digest: mix(seed),
            scenario,
        }
    }

    /// Runs until all is judged.
    pub(crate) fn run(mut self) -> Outcome {
        self.prepare();
        // A panic inside the core is a broken promise like any other.
        let violation = match catch_unwind(AssertUnwindSafe(|| self.run_on())) {
            Ok(judged) => judged.err(),
            Err(panic) => Some(self.violation(no_panic::NAME, None, no_panic::words_of(&*panic))),
        };
        if let Some(violation) = &violation {
            let text = violation.to_string();
            self.tell("VIOLATION", || text);
        }
        self.stats.virtual_ns = self.at;
        self.stats.digest = self.digest;
        self.stats.busiest = self.stats.events;
        self.stats.starts = self.oracle.state.runs.len() as u64;
        Outcome::new(self, violation)
    }

    fn prepare(&mut self) {
        self.open_namespace();
        for slot in 0..self.slots.len() {
            let after = self.operator_rng.below(SECOND / 2);
            self.put(after, WorldEvent::Spawn { slot });
        }
        for index in 0..self.faults.len() {
            self.queue.put(self.faults[index].at, WorldEvent::FaultBegins(index));
        }
        self.put(LOOK_EVERY, WorldEvent::Look);
    }

    /// A world without faults, after the plan was reached.
    #[cfg(test)]
    pub(crate) fn healed(nodes: usize, shards: u32) -> World {
        let faults_for = std::time::Duration::from_secs(5);
        let (store, faults) = (Some(crate::StoreKind::Memory), crate::Profile::none());
        let mut world =
            World::new(&Options { nodes, shards, store, faults, faults_for, ..Options::default() }, 1);
        world.prepare();
        while world.healing.converged_at.is_none() {
            let (at, due) = world.queue.take().expect("the oracle always looks");
            world.at = at;
            world.happen(due).unwrap();
        }
        world
    }

    fn run_on(&mut self) -> Judged {
        while let Some((at, due)) = self.queue.take() {
            debug_assert!(at >= self.at, "time never goes back");
            self.at = at;
            self.stats.events += 1;
            self.note(&due);
            self.happen(due)?;
            no_busy_loop::judge_world(self)?;
            if self.healing.done {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Makes what happens part of the digest: two runs with the same digest did the same.
    fn note(&mut self, due: &WorldEvent) {
        let (kind, who) = match due {
            WorldEvent::Tick { process, .. } => (1, *process),
            WorldEvent::Watchdog { process } => (2, *process),
            WorldEvent::DeadManTimer { process } => (21, *process),
            WorldEvent::RequestArrives { process, .. } => (3, *process),
            WorldEvent::AnswerArrives { process, .. } => (4, *process),
            WorldEvent::GiveUp { process, .. } => (5, *process),
            WorldEvent::WatchDelivery { process, .. } => (6, *process),
            WorldEvent::WatchConnect { process, .. } => (7, *process),
            WorldEvent::ProcessGone { process, .. } => (8, *process),
            WorldEvent::GateAnswers { process, .. } => (9, *process),
            WorldEvent::WorkEnded { worker, .. } => (10, *worker),
            WorldEvent::Work { worker, .. } => (11, *worker),
            WorldEvent::SinkWrite { run, .. } => (12, *run),
            WorldEvent::Resume { process, .. } => (13, *process),
            WorldEvent::Spawn { slot } => (14, *slot),
            WorldEvent::FaultBegins(fault) => (15, *fault),
            WorldEvent::FaultEnds(fault) => (16, *fault),
            WorldEvent::RollingStep { slot, .. } => (17, *slot),
            WorldEvent::Look => (18, 0),
            WorldEvent::Command { process, .. } => (19, *process),
            WorldEvent::RepeatedWrite { process, .. } => (20, *process),
            WorldEvent::FreezeMachine { slot, .. } => (21, *slot),
            WorldEvent::OperatorWrite { .. } => (22, 0),
        };
        self.digest = mix(self.digest ^ self.at ^ (kind << 56) ^ ((who as u64) << 40));
    }

    fn happen(&mut self, due: WorldEvent) -> Judged {
        let Some(due) = self.defer(due) else { return Ok(()) };
        match due {
            WorldEvent::Tick { process, number } => self.tick(process, number),
            WorldEvent::Watchdog { process } => self.guard(process),
            WorldEvent::DeadManTimer { process } => self.dead_man(process),
            WorldEvent::RequestArrives { process, request, sent_at } => {
                self.arrive(process, *request, sent_at)
            }
            WorldEvent::RepeatedWrite { process, repeated } => self.repeated_write(process, *repeated),
            WorldEvent::AnswerArrives { process, id, answer, copy } => {
                self.answered(process, id, *answer, copy)
            }
            WorldEvent::GiveUp { process, id } => self.give_up(process, id),
            WorldEvent::WatchDelivery { process, number } => self.watch_tells(process, number),
            WorldEvent::WatchConnect { process, number } => self.watch_connects(process, number),
            WorldEvent::ProcessGone { process, session } => self.process_gone(process, session),
            WorldEvent::GateAnswers { process, shard, verdict } => {
                self.step(process, Event::Gate { shard, verdict })
            }
            WorldEvent::WorkEnded { process, worker } => self.work_ended(process, worker),
            WorldEvent::Work { worker, what } => self.work(worker, what),
            WorldEvent::SinkWrite { run, shard, epoch } => self.write_arrives(run, shard, epoch),
            WorldEvent::Resume { process, pause } => self.resume(process, pause),
            WorldEvent::Spawn { slot } => self.spawn(slot),
            WorldEvent::FaultBegins(fault) => self.begin_fault(fault),
            WorldEvent::FaultEnds(fault) => self.end_fault(fault),
            WorldEvent::RollingStep { slot, fault } => self.roll(slot, fault),
            WorldEvent::OperatorWrite { swap } => {
                self.operator_writes(&swap);
                Ok(())
            }
            WorldEvent::FreezeMachine { slot, times, fault } => self.freeze(slot, times, fault),
            WorldEvent::Command { process, command } => self.step(process, Event::Command(*command)),
            WorldEvent::Look => self.look(),
        }
    }

    /// Drops events of dead processes, and keeps those of paused processes for later.
    fn defer(&mut self, due: WorldEvent) -> Option<WorldEvent> {
        let process = match &due {
            WorldEvent::Tick { process, .. }
            | WorldEvent::Watchdog { process }
            | WorldEvent::AnswerArrives { process, .. }
            | WorldEvent::GiveUp { process, .. }
            | WorldEvent::WatchDelivery { process, .. }
            | WorldEvent::WatchConnect { process, .. }
            | WorldEvent::ProcessGone { process, .. }
            | WorldEvent::GateAnswers { process, .. }
            | WorldEvent::Command { process, .. }
            | WorldEvent::WorkEnded { process, .. } => *process,
            WorldEvent::Work { worker, .. } => self.workers[*worker].process,
            _ => return Some(due),
        };
        if !self.processes[process].alive {
            return None;
        }
        if self.processes[process].paused.is_none() {
            return Some(due);
        }
        self.processes[process].deferred.push(due);
        None
    }

    /// Schedules an event this long from now.
    pub(crate) fn put(&mut self, after: Instant, due: WorldEvent) {
        self.queue.put(self.at.saturating_add(after), due);
    }

    /// Schedules an event at that instant, or now if it has passed.
    pub(crate) fn put_at(&mut self, at: Instant, due: WorldEvent) {
        if at != Instant::MAX {
            self.queue.put(at.max(self.at), due);
        }
    }

    pub(crate) fn observe(&mut self, observation: Observation) -> Judged {
        self.oracle.observe(self.at, observation)
    }

    pub(crate) fn violation(
        &self,
        invariant: &'static str,
        shard: Option<usize>,
        message: String,
    ) -> Violation {
        Violation { invariant, at: self.at, shard, message }
    }

    pub(crate) fn broken(&self, duty: Duty) -> bool {
        self.sabotage == Some(Sabotage::Driver(duty))
    }

    pub(crate) fn misreads(&self, order: ReadOrder) -> bool {
        self.sabotage == Some(Sabotage::Store(order))
    }

    /// Adds a line to the trace, if the run is traced.
    pub(crate) fn tell(&mut self, who: &str, what: impl FnOnce() -> String) {
        if self.trace.on() {
            let what = what();
            self.trace.tell(self.at, who, what);
        }
    }

    /// Adds a line about a process.
    pub(crate) fn tell_of(&mut self, process: usize, what: impl FnOnce() -> String) {
        if self.trace.on() {
            let who = format!("{} p{process}", self.processes[process].name);
            let what = what();
            self.trace.tell(self.at, who, what);
        }
    }
}
