//! The driver of the simulated world: it carries out what a core decides, with the same duties as the real one.

use leasehold_core::event::{Action, Event, Verdict};
use leasehold_core::notice::Notice;
use leasehold_core::record::{NodeRecord, NodeState, Record, ShardRecord, ShardState};
use leasehold_core::store::{Key, Op, Request, Swap};
use leasehold_core::{Deadlines, Now};

use crate::faults::{FaultKind, PausePoint};
use crate::invariants::{
    deadline_counts_from_sending, freezes_are_noticed, given_to_those_who_agree, no_busy_loop,
    store_changes_are_real, unspoken_protocol_is_refused,
};
use crate::oracle::{Observation, RunEnd, Until};
use crate::report::outcome::ProcessEvent;
use crate::runner::options::Circumstance;
use crate::sabotage::Duty;
use crate::world::clock::{Instant, MS};
use crate::world::process::Session;
use crate::world::{Judged, World, WorldEvent};

impl World {
    pub(crate) fn now_of(&self, process: usize) -> Now {
        self.slots[self.processes[process].slot].clock.now(self.at)
    }

    /// Passes an event to the core and carries out its actions.
    pub(crate) fn step(&mut self, process: usize, event: Event) -> Judged {
        let now = self.now_of(process);
        let node = &mut self.processes[process];
        if self.slots[node.slot].clock.stepped_at >= node.wall_step_seen_at {
            node.wall_step_seen_at = self.at;
        }
        let session = self.processes[process].session().filter(|it| it.no.is_some()).map(|it| it.number);
        let mut actions = std::mem::take(&mut self.scratch);
        self.processes[process].core.step(now, event, &mut actions);
        self.stats.steps += 1;
        let result = match self.processes[process].pause_at_step.take_if(|at| decisive(&actions, at.1)) {
            Some((lasts, _)) => {
                self.stats.fault_coverage.note(FaultKind::PauseAtStep);
                self.processes[process].undone.append(&mut actions);
                self.pause(process, lasts)
            }
            None => self.carry_out(process, &mut actions),
        };
        actions.clear();
        self.scratch = actions;
        result?;
        freezes_are_noticed::judge(self, process, session)?;
        self.hear_of_work(process)
    }

    /// Passes on what the driver learned while it carried out the core's actions, unless the process is paused; then schedules
    /// the next tick.
    fn hear_of_work(&mut self, process: usize) -> Judged {
        if self.processes[process].running()
            && let Some(event) = self.processes[process].heard.pop_front()
        {
            return self.step(process, event);
        }
        if self.processes[process].alive {
            self.plan_tick(process);
        }
        Ok(())
    }

    pub(crate) fn carry_out(&mut self, process: usize, actions: &mut Vec<Action>) -> Judged {
        for action in actions.drain(..) {
            match action {
                Action::OpenSession(id) => {
                    let number = self.oracle.state.sessions.len();
                    let deadlines = Deadlines::default();
                    let session = Session { number, id, deadlines, lost: false, no: None };
                    self.decide(process, |works, supervisor| works.open_session(supervisor))?;
                    self.processes[process].sessions.push(session);
                    self.healing.last_joined_at = self.at;
                    self.tell_of(process, || format!("opens session {id:?}"));
                    let stop_budget = self.processes[process].stop_budget;
                    unspoken_protocol_is_refused::judge(self, process)?;
                    self.names_collide(process);
                    self.observe(Observation::Opened { session: number, process, stop_budget })?;
                }
                Action::Ask(request) => self.ask(process, request)?,
                Action::Deadlines(deadlines) => self.set_deadlines(process, deadlines)?,
                Action::Lose => self.lose(process)?,
                Action::Start { shard, epoch } => self.start_work(process, shard, epoch)?,
                Action::Stop { shard, epoch, why, kill_at } => {
                    self.tell_of(process, || format!("tells {shard} (epoch {epoch}) to stop: {why}"));
                    self.stop_work(process, &shard, epoch, why, kill_at)?;
                }
                Action::AskGate(shard) => {
                    let rng = &mut self.processes[process].driver_rng;
                    let refuses = rng.permille(200) && !self.healing.began;
                    let verdict = if refuses { Verdict::Refuse } else { Verdict::Take };
                    let after = self.gate_takes(process);
                    self.put(after, WorldEvent::GateAnswers { process, shard, verdict });
                }
                Action::Tell(notice) => self.hear(process, &notice)?,
                Action::Done => return self.left(process),
            }
        }
        Ok(())
    }

    fn set_deadlines(&mut self, process: usize, deadlines: Deadlines) -> Judged {
        let Some(session) = self.processes[process].session() else { return Ok(()) };
        let number = session.number;
        if self.decide(process, |works, supervisor| works.extend(deadlines, supervisor))?.is_err() {
            self.tell_of(process, || "finds its session lost before it could extend it".to_owned());
            self.processes[process].heard.push_back(Event::Lost);
            return self.observe(Observation::Lost { session: number });
        }
        deadline_counts_from_sending::judge(self, process, deadlines.valid_until)?;
        let until = self.until(process, deadlines);
        let node = &self.processes[process];
        let thawed = self.slots[node.slot].clock.moment(node.thawed_at).as_nanos() + node.valid_for;
        if deadlines.valid_until.as_nanos() >= thawed {
            self.observe(Observation::Thawed { session: number })?;
        }
        self.observe(Observation::Deadlines { session: number, until })
    }

    /// Deadlines of a process's own clock, in true time.
    pub(crate) fn until(&self, process: usize, deadlines: Deadlines) -> Until {
        let clock = &self.slots[self.processes[process].slot].clock;
        Until {
            stop_at: clock.when(deadlines.stop_at),
            kill_at: clock.when(deadlines.kill_at),
            valid_until: clock.when(deadlines.valid_until),
        }
    }

    fn lose(&mut self, process: usize) -> Judged {
        let Some(session) = self.processes[process].sessions.last_mut() else { return Ok(()) };
        session.lost = true;
        let number = session.number;
        self.decide(process, |works, supervisor| works.lose(supervisor))?;
        self.stats.detachments += 1;
        self.tell_of(process, || "loses all its grants".to_owned());
        self.observe(Observation::Lost { session: number })?;
        for worker in self.processes[process].workers.clone() {
            if self.workers[worker].session == number
                && let Some(run) = self.workers[worker].run
            {
                self.observe(Observation::Told { run })?;
            }
        }
        Ok(())
    }

    fn hear(&mut self, process: usize, notice: &Notice) -> Judged {
        store_changes_are_real::judge(self, process, notice)?;
        match notice {
            Notice::StateChanged { to, .. } => {
                let at = self.at;
                let node = &mut self.processes[process];
                (node.session_state, node.state_since) = (*to, at);
            }
            Notice::Fenced { .. } => self.stats.fenced += 1,
            Notice::Incarnation { .. } => self.stats.incarnations += 1,
            Notice::NameTaken { .. } => self.names_collide(process),
            Notice::Waiting { why, .. } if why.contains("upgrade") => {
                self.stats.fault_coverage.note(FaultKind::Protocol)
            }
            Notice::Renewed { .. } | Notice::Stopping { .. } => return Ok(()),
            _ => {}
        }
        self.tell_of(process, || notice.to_string());
        Ok(())
    }

    /// Sends a request, after a look at what it would give up.
    fn ask(&mut self, process: usize, request: Request) -> Judged {
        if let Op::Swap(swaps) = &request.op {
            for swap in swaps {
                self.look_at_swap(process, swap)?;
            }
        }
        self.send(process, request);
        Ok(())
    }

    fn look_at_swap(&mut self, process: usize, swap: &Swap) -> Judged {
        match &swap.key {
            Key::Shard(shard) => {
                let Some(session) = self.processes[process].session() else { return Ok(()) };
                let session = session.number;
                let record = swap.value.as_deref().map(ShardRecord::decode);
                if let Some(Ok(record)) = &record {
                    given_to_those_who_agree::judge(self, process, record)?;
                }
                let held =
                    matches!(&record, Some(Ok(record)) if matches!(record.state, ShardState::Held { .. }));
                if !held {
                    self.observe(Observation::ReleaseSent {
                        session,
                        shard: self.scenario.number_of(shard),
                    })?;
                }
            }
            Key::Node(_) => {
                let Some(value) = swap.value.as_deref().filter(|value| mentions(value, b"\"left\"")) else {
                    return Ok(());
                };
                let Ok(record) = NodeRecord::decode(value) else { return Ok(()) };
                let sessions = &self.processes[process].sessions;
                let mine = sessions.iter().find(|session| session.id == record.session);
                if let Some(session) = mine.filter(|_| record.state == NodeState::Left) {
                    let session = session.number;
                    self.observe(Observation::LeftSent { session })?;
                }
            }
            Key::Meta | Key::Control | Key::Group(_) => {}
        }
        Ok(())
    }

    /// The next time the core wants to be called. A tick that comes too early is put off, not taken.
    pub(crate) fn plan_tick(&mut self, process: usize) {
        let lag = self.lag(process, 2 * MS);
        let slot = &self.slots[self.processes[process].slot];
        let due = slot.clock.when(self.processes[process].core.deadline());
        let node = &mut self.processes[process];
        if due == Instant::MAX || (node.tick_at <= due.saturating_add(lag) && node.tick_at > self.at) {
            return;
        }
        node.ticks += 1;
        node.tick_at = due.max(self.at) + lag;
        let (at, number) = (node.tick_at, node.ticks);
        self.put_at(at, WorldEvent::Tick { process, number });
    }

    /// How late a process does something.
    pub(crate) fn lag(&mut self, process: usize, usual: Instant) -> Instant {
        let sluggish = self.slots[self.processes[process].slot].sluggish.worst();
        if sluggish > usual {
            self.stats.fault_coverage.note(FaultKind::Sluggish);
        }
        self.processes[process].driver_rng.below(usual.max(sluggish)) + 1
    }

    pub(crate) fn tick(&mut self, process: usize, number: u64) -> Judged {
        let now = self.now_of(process).at;
        let node = &mut self.processes[process];
        if number != node.ticks {
            return Ok(());
        }
        node.tick_at = 0;
        if node.core.deadline() > now {
            self.plan_tick(process);
            return Ok(());
        }
        self.stats.ticks += 1;
        self.step(process, Event::Tick)?;
        no_busy_loop::judge(self, process)
    }

    pub(crate) fn pause(&mut self, process: usize, lasts: Instant) -> Judged {
        if !self.processes[process].running() {
            return Ok(());
        }
        self.processes[process].pauses += 1;
        let pause = self.processes[process].pauses;
        self.processes[process].paused = Some(pause);
        self.marks.push((self.at, process, ProcessEvent::Paused));
        self.tell_of(process, || "is paused".to_owned());
        self.observe(Observation::Paused { process })?;
        if self.broken(Duty::ClockCountsSleep) {
            self.processes[process].slept_at = self.at;
        }
        self.put(lasts, WorldEvent::Resume { process, pause });
        Ok(())
    }

    pub(crate) fn resume(&mut self, process: usize, pause: u32) -> Judged {
        if !self.processes[process].alive || self.processes[process].paused != Some(pause) {
            return Ok(());
        }
        self.marks.push((self.at, process, ProcessEvent::Resumed));
        self.tell_of(process, || "resumes".to_owned());
        if self.broken(Duty::ClockCountsSleep) {
            self.forget_sleep(process)?;
        }
        self.thaw(process)?;
        self.compare_on_waking(process)?;
        self.processes[process].paused = None;
        self.observe(Observation::Resumed { process })?;
        for due in std::mem::take(&mut self.processes[process].deferred) {
            let after = match due {
                // What its user wanted reaches it in order.
                WorldEvent::Command { .. } => 0,
                // The kernel's timer is never starved, however late the process itself is.
                WorldEvent::Watchdog { .. } => self.processes[process].driver_rng.below(2 * MS),
                // Everything else comes in any order.
                _ => self.lag(process, 2 * MS),
            };
            self.put(after, due);
        }
        let mut undone = std::mem::take(&mut self.processes[process].undone);
        self.carry_out(process, &mut undone)?;
        self.hear_of_work(process)
    }

    /// After every waking, compare before acting: what is past its deadline is over before anything else happens, but for
    /// user code on its way to its next check.
    fn compare_on_waking(&mut self, process: usize) -> Judged {
        let now = self.now_of(process).at;
        for worker in self.processes[process].workers.clone() {
            let session = self.workers[worker].session;
            let sessions = &self.processes[process].sessions;
            let Some(it) = sessions.iter().find(|it| it.number == session) else { continue };
            let (stopped, over) = (now >= it.deadlines.stop_at, now >= it.deadlines.kill_at);
            // User code may come first, and must not get past its check.
            if stopped && self.scenario.has(Circumstance::FirstOnWaking) {
                self.check(worker)?;
            }
            if over && !self.broken(Duty::KillAtDeadline) {
                self.kill_work(worker, RunEnd::KilledOnWaking)?;
            }
        }
        Ok(())
    }

    /// A clock that stops while the machine is suspended: the sabotage of the boot clock.
    fn forget_sleep(&mut self, process: usize) -> Judged {
        let slept = self.at - self.processes[process].slept_at;
        let slot = self.processes[process].slot;
        let clock = &mut self.slots[slot].clock;
        clock.stood_still += slept * clock.rate / 1_000_000;
        for session in self.processes[process].sessions.clone() {
            let until = self.until(process, session.deadlines);
            self.observe(Observation::Deadlines { session: session.number, until })?;
        }
        Ok(())
    }
}

/// Whether a pause between these and their being carried out could matter.
fn decisive(actions: &[Action], point: PausePoint) -> bool {
    actions.iter().any(|action| match action {
        Action::Start { .. } => true,
        _ if point == PausePoint::BeforeStart => false,
        Action::Stop { .. } | Action::OpenSession(_) => true,
        Action::Ask(request) => matches!(request.op, Op::Swap(_)),
        _ => false,
    })
}

/// Whether a record contains these bytes.
pub(crate) fn mentions(text: &[u8], word: &[u8]) -> bool {
    memchr::memmem::find(text, word).is_some()
}
