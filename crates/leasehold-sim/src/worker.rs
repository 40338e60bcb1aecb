//! User code. It begins when its driver lets it, looks at its grant before each write to a fenced sink, stops some time
//! after it is told to, may refuse to, and may crash.
//!
//! What counts as running: from when the driver has checked the deadline and let it begin, until nothing of it is left,
//! less the time in which its process stands still. A process that wakes up past its deadline ends the work before
//! anything else happens (the real driver compares before it acts; code that does not ask is cut off by the kernel's
//! timer). A write that was on its way at that moment still arrives: it carries its epoch, and the sink refuses it.

use leasehold_core::event::{Ended, Event};
use leasehold_core::{Epoch, Moment, ShardId};

use crate::clock::{Instant, MS, SECOND};
use crate::oracle::{Happening, RunEnd};
use crate::profile::Peril;
use crate::sabotage::Duty;
use crate::words;
use crate::world::{Due, Judged, World};

/// User code for one shard, from the wish to start it until nothing of it is left.
#[derive(Clone, Debug)]
pub(crate) struct Worker {
    pub(crate) process: usize,
    pub(crate) shard: ShardId,
    pub(crate) epoch: Epoch,
    /// The number of the session that it belongs to.
    pub(crate) session: usize,
    /// Its run, once it has begun.
    pub(crate) run: Option<usize>,
    told: bool,
    over: bool,
    how: RunEnd,
}

/// What user code does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkDue {
    /// The driver lets it begin, if there is still time.
    Begin,
    /// It looks at its grant and writes.
    Act,
    /// It stops, as it was told.
    Stop,
    /// It crashes.
    Crash,
    /// It is killed.
    Kill,
}

impl World {
    pub(crate) fn start_work(&mut self, process: usize, shard: ShardId, epoch: Epoch) {
        let session = self.processes[process].session().expect("work starts only in a session").number;
        let worker = self.workers.len();
        self.tell_of(process, || format!("starts {shard} under epoch {epoch}"));
        self.workers.push(Worker {
            process,
            shard,
            epoch,
            session,
            run: None,
            told: false,
            over: false,
            how: RunEnd::Stopped,
        });
        self.processes[process].workers.push(worker);
        let after = self.lag(process, 5 * MS);
        self.put(after, Due::Work { worker, what: WorkDue::Begin });
    }

    pub(crate) fn work(&mut self, worker: usize, what: WorkDue) -> Judged {
        if self.workers[worker].over {
            return Ok(());
        }
        match what {
            WorkDue::Begin => self.begin_work(worker),
            WorkDue::Act => self.act(worker),
            WorkDue::Stop => self.end_work(worker, RunEnd::Stopped),
            WorkDue::Crash => {
                self.stats.felt.note(Peril::WorkCrash);
                self.end_work(worker, RunEnd::Crashed)
            }
            WorkDue::Kill => self.end_work(worker, RunEnd::Killed),
        }
    }

    /// The driver looks at the deadline once more, and lets user code begin.
    fn begin_work(&mut self, worker: usize) -> Judged {
        let Worker { process, session, epoch, told, .. } = self.workers[worker];
        if let Some(lasts) = self.processes[process].pause_at_begin.take() {
            self.stats.felt.note(Peril::PauseAtStep);
            let lasts = self.where_it_matters(process, session, lasts);
            self.pause(process, lasts)?;
            // The first thing that happens when it goes on.
            self.put(lasts, Due::Work { worker, what: WorkDue::Begin });
            return Ok(());
        }
        let now = self.now_of(process).at;
        let sessions = &self.processes[process].sessions;
        let session_now = sessions.iter().find(|it| it.number == session).expect("sessions stay");
        let late = session_now.lost || now >= session_now.deadlines.stop_at;
        if told || (late && !self.broken(Duty::CheckBeforeStart)) {
            return self.end_work(worker, RunEnd::Stopped);
        }
        let shard = self.setting.number_of(&self.workers[worker].shard);
        self.workers[worker].run = Some(self.oracle.state.runs.len());
        self.observe(Happening::Began { session, shard, epoch })?;
        let crashing = self.slots[self.processes[process].slot].crashing > 0;
        let dice = &mut self.processes[process].work;
        let first = dice.below(300 * MS);
        if crashing && dice.permille(800) {
            let after = dice.below(SECOND);
            self.put(after, Due::Work { worker, what: WorkDue::Crash });
        }
        self.put(first, Due::Work { worker, what: WorkDue::Act });
        Ok(())
    }

    /// A long pause before work begins ends where it matters most: when work may no longer begin, and is not yet killed.
    fn where_it_matters(&self, process: usize, session: usize, lasts: Instant) -> Instant {
        let sessions = &self.processes[process].sessions;
        let deadlines = sessions.iter().find(|it| it.number == session).expect("sessions stay").deadlines;
        let until = self.until(process, deadlines);
        if lasts < self.setting.ttl / 5 || until.stop_at < self.at {
            return lasts;
        }
        until.stop_at - self.at + lasts % (until.kill_at - until.stop_at).max(1)
    }

    /// The worker looks at its grant, and writes if it is good.
    fn act(&mut self, worker: usize) -> Judged {
        let Worker { process, session, epoch, run, .. } = self.workers[worker];
        let Some(run) = run else { return Ok(()) };
        let now = self.now_of(process).at;
        let node = &self.processes[process];
        let grant = node.sessions.iter().find(|it| it.number == session).expect("sessions stay");
        let good = !grant.lost && now < grant.deadlines.stop_at;
        let shard = self.setting.number_of(&self.workers[worker].shard);
        let dice = &mut self.processes[process].work;
        let next = dice.between(SECOND, 3 * SECOND);
        self.put(next, Due::Work { worker, what: WorkDue::Act });
        if !good {
            return Ok(());
        }
        let dice = &mut self.processes[process].work;
        let under_way = match dice.below(100) {
            0 => dice.below(20 * SECOND),
            _ => dice.below(10 * MS),
        };
        let pause = self.processes[process].pause_at_check.take();
        self.put(pause.unwrap_or(0) + under_way, Due::Write { run, shard, epoch });
        match pause {
            Some(lasts) => {
                self.stats.felt.note(Peril::PauseAtCheck);
                self.pause(process, lasts)
            }
            None => Ok(()),
        }
    }

    pub(crate) fn stop_work(
        &mut self,
        process: usize,
        shard: &ShardId,
        epoch: Epoch,
        kill_at: Option<Moment>,
    ) -> Judged {
        let workers = &self.processes[process].workers;
        let mine =
            |worker: &usize| self.workers[*worker].shard == *shard && self.workers[*worker].epoch == epoch;
        let Some(worker) = workers.iter().copied().find(mine) else {
            // Nothing of it runs: the core hears so, once more if need be.
            let before = self
                .workers
                .iter()
                .rposition(|it| it.process == process && it.shard == *shard && it.epoch == epoch);
            if let Some(worker) = before {
                self.put(MS, Due::Ended { process, worker });
            }
            return Ok(());
        };
        if let Some(kill_at) = kill_at {
            let at = self.slots[self.processes[process].slot].clock.when(kill_at);
            self.put_at(at, Due::Work { worker, what: WorkDue::Kill });
        }
        if std::mem::replace(&mut self.workers[worker].told, true) {
            return Ok(());
        }
        if let Some(run) = self.workers[worker].run {
            self.observe(Happening::Told { run })?;
        }
        if self.broken(Duty::EndedMeansEnded) {
            self.put(MS, Due::Ended { process, worker });
        }
        if self.slots[self.processes[process].slot].refusing == 0 {
            let after = self.setting.stops_in(&mut self.processes[process].work);
            self.put(after, Due::Work { worker, what: WorkDue::Stop });
        } else {
            self.stats.felt.note(Peril::Refuse);
        }
        Ok(())
    }

    /// Work that refused to stop gives in, because the fault that made it refuse is over.
    pub(crate) fn give_in(&mut self, slot: usize) {
        let Some(process) = self.slots[slot].process else { return };
        for worker in self.processes[process].workers.clone() {
            if self.workers[worker].told {
                let after = self.setting.stops_in(&mut self.processes[process].work);
                self.put(after, Due::Work { worker, what: WorkDue::Stop });
            }
        }
    }

    pub(crate) fn kill_after(&mut self, worker: usize, after: Instant) {
        self.put(after, Due::Work { worker, what: WorkDue::Kill });
    }

    /// Nothing of the work is left; its core will hear of it.
    pub(crate) fn end_work(&mut self, worker: usize, how: RunEnd) -> Judged {
        let Worker { process, run, over, .. } = self.workers[worker];
        if over {
            return Ok(());
        }
        self.workers[worker].over = true;
        self.workers[worker].how = how;
        self.processes[process].workers.retain(|it| *it != worker);
        if let Some(run) = run {
            self.observe(Happening::Ended { run, how })?;
        }
        if self.trace.on() {
            let Worker { shard, epoch, .. } = self.workers[worker].clone();
            self.tell_of(process, || {
                format!("work of {shard} (epoch {epoch}) is over: {}", words::of_end(how))
            });
        }
        if self.processes[process].alive {
            let after = self.lag(process, 2 * MS);
            self.put(after, Due::Ended { process, worker });
        }
        Ok(())
    }

    pub(crate) fn work_ended(&mut self, process: usize, worker: usize) -> Judged {
        let Worker { shard, epoch, how, .. } = self.workers[worker].clone();
        let how = match how {
            RunEnd::Crashed => Ended::Failed("it crashed".to_owned()),
            _ => Ended::Finished,
        };
        self.step(process, Event::Ended { shard, epoch, how })
    }
}
