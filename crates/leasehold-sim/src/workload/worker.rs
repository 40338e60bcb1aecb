//! User code. It begins when its driver lets it, looks at its grant before each write to a fenced sink, stops some time
//! after it is told to, may refuse to, and may crash. Some of it has parts that its grant owns, which go on when the
//! handler is gone; some has parts that no driver knows of, which check the grant long after the work has ended.
//!
//! What counts as running: from when the driver has checked the deadline and let it begin, until nothing of it is left
//! that its grant owns, less the time in which its process stands still. A process that wakes up past its deadline first
//! runs user code, which looks at its grant; then the driver compares and ends the work. A write that was on its way at
//! that moment still arrives: it carries its epoch, and the sink refuses it.

use leasehold_core::event::{Ended, StopReason};
use leasehold_core::{Epoch, Moment, ShardId};

use crate::faults::FaultKind;
use crate::oracle::{Observation, RunEnd};
use crate::report::words;
use crate::sabotage::Duty;
use crate::world::clock::{Instant, MS, SECOND};
use crate::world::{Judged, World, WorldEvent};

/// User code for one shard, from the decision to start it until nothing of it is left.
#[derive(Clone, Debug)]
pub(crate) struct Worker {
    pub(crate) process: usize,
    pub(crate) shard: ShardId,
    pub(crate) epoch: Epoch,
    /// The number of the session that it belongs to.
    pub(crate) session: usize,
    /// Its run, once it has begun.
    pub(crate) run: Option<usize>,
    /// How many parts run that its grant owns.
    pub(crate) owned: u32,
    /// Its grant has ended.
    pub(crate) closed: bool,
    told: bool,
    /// How its handler ended, and whether the driver has heard of it.
    handler: Option<RunEnd>,
    reported: bool,
    /// Nothing of it is left.
    over: bool,
    /// What its grant owns goes on for a while when it is killed, like a thread.
    pub(crate) stubborn: bool,
    /// How often parts that no driver knows of check the grant after everything else has ended.
    pub(crate) strays: u32,
}

impl Worker {
    pub(crate) fn is(&self, shard: &ShardId, epoch: Epoch) -> bool {
        self.epoch == epoch && self.shard == *shard
    }

    /// Whether its handler has not ended.
    pub(crate) fn has_handler(&self) -> bool {
        self.handler.is_none()
    }
}

/// What user code does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkEvent {
    /// The driver lets it begin, if there is still time.
    Begin,
    /// It looks at its grant and writes.
    Act,
    /// Its handler stops, as it was told.
    Stop,
    /// A part of it stops that its grant owns.
    PartStop,
    /// It crashes.
    Crash,
    /// It is killed.
    Kill,
    /// A part that no driver knows of checks the grant.
    Stray,
}

impl World {
    pub(crate) fn start_work(&mut self, process: usize, shard: ShardId, epoch: Epoch) -> Judged {
        let session = self.processes[process].session().expect("work starts only in a session").number;
        self.tell_of(process, || format!("starts {shard} under epoch {epoch}"));
        let refused =
            self.decide(process, |works, supervisor| works.start(shard.clone(), epoch, supervisor))?;
        if let Some(event) = refused {
            self.processes[process].heard.push_back(event);
            return Ok(());
        }
        let worker = self.workers.len();
        self.workers.push(Worker {
            process,
            shard,
            epoch,
            session,
            run: None,
            owned: 0,
            closed: false,
            told: false,
            handler: None,
            reported: false,
            over: false,
            stubborn: false,
            strays: 0,
        });
        self.processes[process].workers.push(worker);
        let after = self.lag(process, 5 * MS);
        self.put(after, WorldEvent::Work { worker, what: WorkEvent::Begin });
        Ok(())
    }

    pub(crate) fn work(&mut self, worker: usize, what: WorkEvent) -> Judged {
        if what == WorkEvent::Stray {
            return self.stray(worker);
        }
        if self.workers[worker].over {
            return Ok(());
        }
        match what {
            WorkEvent::Begin => self.begin_work(worker),
            WorkEvent::Act => self.act(worker),
            WorkEvent::Stop => self.handler_over(worker, RunEnd::Stopped),
            WorkEvent::PartStop => self.part_over(worker),
            WorkEvent::Crash if self.workers[worker].handler.is_none() => {
                self.stats.fault_coverage.note(FaultKind::WorkCrash);
                self.handler_over(worker, RunEnd::Crashed)
            }
            WorkEvent::Kill => self.kill_work(worker, RunEnd::Killed),
            WorkEvent::Crash | WorkEvent::Stray => Ok(()),
        }
    }

    /// The driver looks at the deadline once more, and lets user code begin.
    fn begin_work(&mut self, worker: usize) -> Judged {
        let Worker { process, session, epoch, told, handler, .. } = self.workers[worker];
        if handler.is_some() {
            return Ok(());
        }
        if let Some(lasts) = self.processes[process].pause_at_begin.take() {
            self.stats.fault_coverage.note(FaultKind::PauseAtStep);
            let lasts = self.where_it_matters(process, session, lasts);
            self.pause(process, lasts)?;
            // The first thing that happens when it goes on.
            self.put(lasts, WorldEvent::Work { worker, what: WorkEvent::Begin });
            return Ok(());
        }
        let now = self.now_of(process).at;
        let sessions = &self.processes[process].sessions;
        let late = !sessions.iter().find(|it| it.number == session).expect("sessions stay").good_at(now);
        if told || (late && !self.broken(Duty::CheckBeforeStart)) {
            return self.handler_over(worker, RunEnd::Stopped);
        }
        let shard = self.scenario.number_of(&self.workers[worker].shard);
        self.workers[worker].run = Some(self.oracle.state.runs.len());
        self.observe(Observation::Began { session, shard, epoch })?;
        self.draw_parts(worker);
        let crashing = self.slots[self.processes[process].slot].crashing > 0;
        let rng = &mut self.processes[process].work_rng;
        let first = rng.below(300 * MS);
        if crashing && rng.permille(800) {
            let after = rng.below(SECOND);
            self.put(after, WorldEvent::Work { worker, what: WorkEvent::Crash });
        }
        self.put(first, WorldEvent::Work { worker, what: WorkEvent::Act });
        Ok(())
    }

    /// A long pause before work begins ends where it matters most: when work may no longer begin, and is not yet killed.
    fn where_it_matters(&self, process: usize, session: usize, lasts: Instant) -> Instant {
        let sessions = &self.processes[process].sessions;
        let deadlines = sessions.iter().find(|it| it.number == session).expect("sessions stay").deadlines;
        let until = self.until(process, deadlines);
        if lasts < self.scenario.ttl / 5 || until.stop_at < self.at {
            return lasts;
        }
        until.stop_at - self.at + lasts % (until.kill_at - until.stop_at).max(1)
    }

    /// The worker looks at its grant, and writes if it is good.
    fn act(&mut self, worker: usize) -> Judged {
        let Worker { process, epoch, run, .. } = self.workers[worker];
        let Some(run) = run else { return Ok(()) };
        let shard = self.scenario.number_of(&self.workers[worker].shard);
        let rng = &mut self.processes[process].work_rng;
        let next = rng.between(SECOND, 3 * SECOND);
        self.put(next, WorldEvent::Work { worker, what: WorkEvent::Act });
        if !self.check(worker)? {
            return Ok(());
        }
        let rng = &mut self.processes[process].work_rng;
        let under_way = match rng.below(100) {
            0 => rng.below(20 * SECOND),
            _ => rng.below(10 * MS),
        };
        let pause = self.processes[process].pause_at_check.take();
        self.put(pause.unwrap_or(0) + under_way, WorldEvent::SinkWrite { run, shard, epoch });
        match pause {
            Some(lasts) => {
                self.stats.fault_coverage.note(FaultKind::PauseAtCheck);
                self.pause(process, lasts)
            }
            None => Ok(()),
        }
    }

    /// User code looks at its grant.
    pub(crate) fn check(&mut self, worker: usize) -> Result<bool, crate::invariants::Violation> {
        let Worker { process, session, run, closed, .. } = self.workers[worker];
        let Some(run) = run else { return Ok(false) };
        let now = self.now_of(process).at;
        let sessions = &self.processes[process].sessions;
        let it = sessions.iter().find(|it| it.number == session).expect("sessions stay");
        let session_good = if self.broken(Duty::CheckComparesClock) { !it.lost } else { it.good_at(now) };
        let good = session_good && (!closed || self.broken(Duty::EndedGrantIsOver));
        if good {
            self.observe(Observation::Passed { run })?;
        }
        Ok(good)
    }

    pub(crate) fn stop_work(
        &mut self,
        process: usize,
        shard: &ShardId,
        epoch: Epoch,
        why: StopReason,
        kill_at: Option<Moment>,
    ) -> Judged {
        let ended =
            self.decide(process, |works, supervisor| works.stop(shard, epoch, why, kill_at, supervisor))?;
        self.processes[process].heard.extend(ended);
        Ok(())
    }

    /// Work is told to stop.
    pub(crate) fn tell_worker(&mut self, worker: usize) -> Judged {
        let process = self.workers[worker].process;
        if self.workers[worker].over || std::mem::replace(&mut self.workers[worker].told, true) {
            return Ok(());
        }
        if let Some(run) = self.workers[worker].run {
            self.observe(Observation::Told { run })?;
        }
        if self.broken(Duty::EndedMeansEnded) {
            self.put(MS, WorldEvent::WorkEnded { process, worker });
        }
        if self.slots[self.processes[process].slot].refusing == 0 {
            self.stop_soon(worker);
        } else {
            self.stats.fault_coverage.note(FaultKind::Refuse);
        }
        Ok(())
    }

    /// All parts of the work stop, each in its own time.
    fn stop_soon(&mut self, worker: usize) {
        let Worker { process, owned, stubborn, .. } = self.workers[worker];
        let after = self.scenario.stops_in(&mut self.processes[process].work_rng);
        self.put(after, WorldEvent::Work { worker, what: WorkEvent::Stop });
        for _ in 0..if stubborn { 0 } else { owned } {
            let after = self.scenario.stops_in(&mut self.processes[process].parts_rng);
            self.put(after, WorldEvent::Work { worker, what: WorkEvent::PartStop });
        }
        if stubborn {
            self.outlast(worker);
        }
    }

    /// Work that refused to stop gives in, because the fault that made it refuse is over.
    pub(crate) fn give_in(&mut self, slot: usize) {
        let Some(process) = self.slots[slot].process else { return };
        for worker in self.processes[process].workers.clone() {
            if self.workers[worker].told {
                self.stop_soon(worker);
            }
        }
    }

    pub(crate) fn kill_after(&mut self, worker: usize, after: Instant) {
        self.put(after, WorldEvent::Work { worker, what: WorkEvent::Kill });
    }

    /// The work is killed from inside: its handler is gone, and so is all that looks at its grant in time.
    pub(crate) fn kill_work(&mut self, worker: usize, how: RunEnd) -> Judged {
        if !self.workers[worker].stubborn {
            return self.end_work(worker, how);
        }
        if self.workers[worker].handler.is_none() {
            self.outlast(worker);
        }
        self.handler_over(worker, how)
    }

    /// The handler is gone.
    fn handler_over(&mut self, worker: usize, how: RunEnd) -> Judged {
        if self.workers[worker].handler.is_some() {
            return Ok(());
        }
        self.workers[worker].handler = Some(how);
        self.report(worker);
        self.over_if_nothing_is_left(worker)
    }

    /// Something that the grant owned is gone.
    fn part_over(&mut self, worker: usize) -> Judged {
        let it = &mut self.workers[worker];
        if it.owned == 0 {
            return Ok(());
        }
        it.owned -= 1;
        if it.owned == 0 {
            self.report(worker);
        }
        self.over_if_nothing_is_left(worker)
    }

    /// Nothing of the work is left, at one blow.
    pub(crate) fn end_work(&mut self, worker: usize, how: RunEnd) -> Judged {
        if std::mem::replace(&mut self.workers[worker].owned, 0) > 0 && self.workers[worker].handler.is_some()
        {
            self.report(worker);
        }
        let handler = self.workers[worker].handler;
        self.workers[worker].handler = handler.or(Some(how));
        if handler.is_none() {
            self.report(worker);
        }
        self.over(worker, how)
    }

    fn over_if_nothing_is_left(&mut self, worker: usize) -> Judged {
        match self.workers[worker] {
            Worker { owned: 0, handler: Some(how), .. } => self.over(worker, how),
            _ => Ok(()),
        }
    }

    fn over(&mut self, worker: usize, how: RunEnd) -> Judged {
        let Worker { process, run, over, strays, .. } = self.workers[worker];
        if over {
            return Ok(());
        }
        self.workers[worker].over = true;
        self.processes[process].workers.retain(|it| *it != worker);
        if let Some(run) = run {
            self.observe(Observation::Ended { run, how })?;
        }
        if self.trace.on() {
            let Worker { shard, epoch, .. } = self.workers[worker].clone();
            self.tell_of(process, || {
                format!("work of {shard} (epoch {epoch}) is over: {}", words::of_end(how))
            });
        }
        if strays > 0 {
            self.plan_stray(worker);
        }
        Ok(())
    }

    /// The driver will hear that something of the work is gone.
    fn report(&mut self, worker: usize) {
        let process = self.workers[worker].process;
        if self.processes[process].alive {
            let after = self.lag(process, 2 * MS);
            self.put(after, WorldEvent::WorkEnded { process, worker });
        }
    }

    pub(crate) fn work_ended(&mut self, process: usize, worker: usize) -> Judged {
        let Worker { shard, epoch, handler, reported, .. } = self.workers[worker].clone();
        let now = self.now_of(process).at;
        let how = match handler {
            Some(RunEnd::Crashed) => Ended::Failed("it crashed".to_owned()),
            _ => Ended::Finished,
        };
        let lies = self.broken(Duty::EndedMeansEnded);
        let event = if !reported && (handler.is_some() || lies) {
            self.workers[worker].reported = true;
            self.decide(process, |works, supervisor| {
                works.handler_ended(now, &shard, epoch, how, supervisor)
            })?
        } else {
            self.decide(process, |works, supervisor| {
                works.owned_ended(now, &shard, epoch, Ended::Finished, supervisor)
            })?
        };
        event.map_or(Ok(()), |event| self.step(process, event))
    }
}
