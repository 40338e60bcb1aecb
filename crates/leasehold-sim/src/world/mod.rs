//! The simulated world: virtual time, machines, processes and the network, and the event loop that drives them.
//!
//! [`World`] takes one [`Due`] after the other from its queue and carries it out. The other files here, and the other
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
pub(crate) use event::{Copy, Due};

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use leasehold_core::event::Event;
use leasehold_core::{NodeName, SessionId};

use crate::faults::{Planned, planned};
use crate::invariants::{Violation, no_busy_loop, no_panic};
use crate::oracle::records::Records;
use crate::oracle::{Happening, Healing, Oracle};
use crate::report::outcome::{Mark, Outcome, Stats};
use crate::report::trace::Trace;
use crate::rng::{Purpose, Rng, mix};
use crate::runner::options::Options;
use crate::sabotage::{Duty, Order, Sabotage};
use crate::store::SimStore;
use crate::store::impairment::Weather;
use crate::workload::{Sink, Worker};
use crate::world::clock::{Instant, SECOND};
use crate::world::process::{Process, Slot};
use crate::world::scenario::Setting;

/// Whether all is well so far.
pub(crate) type Judged = Result<(), Violation>;

/// One run.
pub(crate) struct World {
    pub(crate) setting: Setting,
    pub(crate) sabotage: Option<Sabotage>,
    pub(crate) at: Instant,
    queue: queue::Queue<Due>,
    pub(crate) slots: Vec<Slot>,
    pub(crate) processes: Vec<Process>,
    pub(crate) workers: Vec<Worker>,
    pub(crate) store: SimStore,
    pub(crate) records: Records,
    pub(crate) weather: Weather,
    pub(crate) sink: Sink,
    pub(crate) oracle: Oracle,
    pub(crate) faults: Vec<Planned>,
    /// Faults that are on and have to be ended.
    pub(crate) on: BTreeSet<usize>,
    /// Slots of second processes under a name in use, with the fault that they are from.
    pub(crate) twins: Vec<(usize, usize)>,
    /// Faults that struck and count as felt only when somebody has done what they ask for.
    pub(crate) unmet: Vec<usize>,
    /// Of what operators asked for and still want: which node it is about.
    pub(crate) asked_for: BTreeMap<usize, NodeName>,
    /// Whether `meta` has ever asked for what this version does not speak.
    pub(crate) raised: bool,
    /// Nodes whose records somebody deleted, and when.
    pub(crate) hidden: BTreeMap<NodeName, Instant>,
    pub(crate) healing: Healing,
    /// Sessions whose process is gone, where the kernel can tell.
    pub(crate) proved_gone: Vec<SessionId>,
    pub(crate) operator: Rng,
    /// How long operators take between reading and writing.
    pub(crate) hurry: Rng,
    pub(crate) store_dice: Rng,
    /// When the parts of an answer are read.
    pub(crate) apart: Rng,
    pub(crate) trace: Trace,
    pub(crate) marks: Vec<(Instant, usize, Mark)>,
    pub(crate) stats: Stats,
    pub(crate) scratch: Vec<leasehold_core::event::Action>,
    /// Whether a newer version has ever run.
    pub(crate) newer_about: bool,
    /// When the request that the store is serving was sent.
    pub(crate) served_from: Instant,
    digest: u64,
}

/// How often somebody looks at the world from outside.
pub(crate) const LOOK_EVERY: Instant = SECOND;

impl World {
    pub(crate) fn new(options: &Options, seed: u64) -> Self {
        let setting = Setting::new(options, seed);
        let faults = planned(options, seed, &setting);
        let slots = (0..setting.nodes).map(|slot| {
            let name = NodeName::new(format!("n{slot}")).expect("a valid name");
            Slot::new(name, setting.clock(slot))
        });
        let neighbours = setting.neighbours.then(|| Rng::new(seed, Purpose::Neighbours, 0));
        World {
            sabotage: options.sabotage,
            at: 0,
            queue: queue::Queue::new(),
            slots: slots.collect(),
            processes: Vec::new(),
            workers: Vec::new(),
            store: SimStore::new(setting.kind).with_neighbours(neighbours),
            records: Records::default(),
            weather: Weather::default(),
            sink: Sink::default(),
            oracle: Oracle::default(),
            on: BTreeSet::new(),
            twins: Vec::new(),
            unmet: Vec::new(),
            asked_for: BTreeMap::new(),
            raised: false,
            hidden: BTreeMap::new(),
            healing: Healing::new(&setting),
            faults,
            proved_gone: Vec::new(),
            operator: Rng::new(seed, Purpose::Operator, 0),
            hurry: Rng::new(seed, Purpose::Operator, 1),
            store_dice: Rng::new(seed, Purpose::Store, 0),
            apart: Rng::new(seed, Purpose::Reading, 0),
            trace: Trace::new(options.tracing),
            marks: Vec::new(),
            stats: Stats::default(),
            scratch: Vec::new(),
            newer_about: false,
            served_from: 0,
            digest: mix(seed),
            setting,
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
            let after = self.operator.below(SECOND / 2);
            self.put(after, Due::Spawn { slot });
        }
        for index in 0..self.faults.len() {
            self.queue.put(self.faults[index].at, Due::Strike(index));
        }
        self.put(LOOK_EVERY, Due::Look);
    }

    /// A world without faults, once it is where it should be.
    #[cfg(test)]
    pub(crate) fn healed(nodes: usize, shards: u32) -> World {
        let faults_for = std::time::Duration::from_secs(5);
        let (store, faults) = (Some(crate::StoreKind::Memory), crate::Profile::none());
        let mut world =
            World::new(&Options { nodes, shards, store, faults, faults_for, ..Options::default() }, 1);
        world.prepare();
        while world.healing.settled_at.is_none() {
            let (at, due) = world.queue.take().expect("somebody always looks");
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
    fn note(&mut self, due: &Due) {
        let (kind, who) = match due {
            Due::Tick { process, .. } => (1, *process),
            Due::Guard { process } => (2, *process),
            Due::DeadMan { process } => (21, *process),
            Due::Arrive { process, .. } => (3, *process),
            Due::Answer { process, .. } => (4, *process),
            Due::GiveUp { process, .. } => (5, *process),
            Due::Told { process, .. } => (6, *process),
            Due::Connect { process, .. } => (7, *process),
            Due::Gone { process, .. } => (8, *process),
            Due::Gate { process, .. } => (9, *process),
            Due::Ended { worker, .. } => (10, *worker),
            Due::Work { worker, .. } => (11, *worker),
            Due::Write { run, .. } => (12, *run),
            Due::Resume { process, .. } => (13, *process),
            Due::Spawn { slot } => (14, *slot),
            Due::Strike(fault) => (15, *fault),
            Due::Relent(fault) => (16, *fault),
            Due::Roll { slot, .. } => (17, *slot),
            Due::Look => (18, 0),
            Due::Command { process, .. } => (19, *process),
            Due::Echo { process, .. } => (20, *process),
            Due::Freeze { slot, .. } => (21, *slot),
            Due::Operator { .. } => (22, 0),
        };
        self.digest = mix(self.digest ^ self.at ^ (kind << 56) ^ ((who as u64) << 40));
    }

    fn happen(&mut self, due: Due) -> Judged {
        let Some(due) = self.defer(due) else { return Ok(()) };
        match due {
            Due::Tick { process, number } => self.tick(process, number),
            Due::Guard { process } => self.guard(process),
            Due::DeadMan { process } => self.dead_man(process),
            Due::Arrive { process, request, sent_at } => self.arrive(process, *request, sent_at),
            Due::Echo { process, echo } => self.echo(process, *echo),
            Due::Answer { process, id, answer, copy } => self.answered(process, id, *answer, copy),
            Due::GiveUp { process, id } => self.give_up(process, id),
            Due::Told { process, number } => self.watch_tells(process, number),
            Due::Connect { process, number } => self.watch_connects(process, number),
            Due::Gone { process, session } => self.process_gone(process, session),
            Due::Gate { process, shard, verdict } => self.step(process, Event::Gate { shard, verdict }),
            Due::Ended { process, worker } => self.work_ended(process, worker),
            Due::Work { worker, what } => self.work(worker, what),
            Due::Write { run, shard, epoch } => self.write_arrives(run, shard, epoch),
            Due::Resume { process, pause } => self.resume(process, pause),
            Due::Spawn { slot } => self.spawn(slot),
            Due::Strike(fault) => self.strike(fault),
            Due::Relent(fault) => self.relent(fault),
            Due::Roll { slot, fault } => self.roll(slot, fault),
            Due::Operator { swap } => {
                self.operator_writes(&swap);
                Ok(())
            }
            Due::Freeze { slot, times, fault } => self.freeze(slot, times, fault),
            Due::Command { process, command } => self.step(process, Event::Command(*command)),
            Due::Look => self.look(),
        }
    }

    /// Drops what a dead process no longer does, and keeps for later what one that stands still cannot do now.
    fn defer(&mut self, due: Due) -> Option<Due> {
        let process = match &due {
            Due::Tick { process, .. }
            | Due::Guard { process }
            | Due::Answer { process, .. }
            | Due::GiveUp { process, .. }
            | Due::Told { process, .. }
            | Due::Connect { process, .. }
            | Due::Gone { process, .. }
            | Due::Gate { process, .. }
            | Due::Command { process, .. }
            | Due::Ended { process, .. } => *process,
            Due::Work { worker, .. } => self.workers[*worker].process,
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

    /// Puts something so much later than now.
    pub(crate) fn put(&mut self, after: Instant, due: Due) {
        self.queue.put(self.at.saturating_add(after), due);
    }

    /// Puts something at that instant, or now if it has passed.
    pub(crate) fn put_at(&mut self, at: Instant, due: Due) {
        if at != Instant::MAX {
            self.queue.put(at.max(self.at), due);
        }
    }

    pub(crate) fn observe(&mut self, happening: Happening) -> Judged {
        self.oracle.observe(self.at, happening)
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

    pub(crate) fn misreads(&self, order: Order) -> bool {
        self.sabotage == Some(Sabotage::Store(order))
    }

    /// Adds a line to the story, if it is told.
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
