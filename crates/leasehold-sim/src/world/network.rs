//! The way of a request to the store and of its answer back, with everything that can happen to them there.

use leasehold_core::event::Event;
use leasehold_core::store::{
    Answer, Key, Lane, Op, Request, RequestId, StoreError, StoreErrorKind, Swap, Swapped,
};

use crate::faults::FaultKind;
use crate::invariants::{operators_settings_stay, unknown_fields_survive};
use crate::report::words;
use crate::world::clock::{Instant, MS, SECOND};
use crate::world::newer_version::as_newer_version;
use crate::world::process::Version;
use crate::world::{AnswerCopy, Judged, World, WorldEvent};

/// However slow the store, nothing is under way for longer than this, be it a request, an answer or news for a watch.
pub(crate) const UNDER_WAY_MAX: Instant = 5 * SECOND;

/// A write that the network repeats.
#[derive(Debug)]
pub(crate) struct RepeatedWrite {
    request: Request,
    sent_at: Instant,
    /// Which store it was sent to.
    generation: u32,
    /// How often it will be repeated after this.
    more: u32,
}

impl World {
    pub(crate) fn latency(&mut self, process: usize) -> Instant {
        let once = self.scenario.shape.latency(&mut self.processes[process].network_rng);
        let times = self.impairments.slow();
        if times > 1 {
            self.stats.fault_coverage.note(FaultKind::SlowStore);
        }
        (once * times).min(UNDER_WAY_MAX)
    }

    /// A request leaves its process.
    pub(crate) fn send(&mut self, process: usize, mut request: Request) {
        let slot = self.processes[process].slot;
        let id = request.id;
        self.processes[process].waiting.insert(id);
        let give_up_at = self.slots[slot].clock.when(request.give_up_at);
        self.put_at(give_up_at, WorldEvent::GiveUp { process, id });
        if self.processes[process].version == Version::Newer
            && let Op::Swap(swaps) = &mut request.op
        {
            for swap in swaps {
                as_newer_version(swap);
                self.as_asked_for(swap);
            }
        }
        let mut latency = self.latency(process) + self.reads_longer(&request.op);
        if self.slots[slot].requests_cut > 0 {
            // Some of what was sent into a cut line is sent again by the network when the line is back.
            let rng = &mut self.processes[process].network_rng;
            if !rng.permille(250) {
                self.stats.fault_coverage.note(self.slots[slot].cut());
                return;
            }
            latency += rng.between(100 * MS, 15 * SECOND);
        }
        let doubled = self.impairments.doubled_writes();
        if doubled > 0 && matches!(request.op, Op::Swap(_)) {
            self.send_again(process, &request, doubled);
        }
        self.put(
            latency,
            WorldEvent::RequestArrives { process, request: Box::new(request), sent_at: self.at },
        );
    }

    /// The network may repeat a write, long after it was first sent, and more than once.
    fn send_again(&mut self, process: usize, request: &Request, permille: u32) {
        let rng = &mut self.processes[process].network_rng;
        let (doubled, more) = (rng.permille(permille), rng.pick(&[0, 0, 3, 20]));
        let after = rng.between(MS, if more > 0 { 2 * SECOND } else { 20 * SECOND });
        if doubled {
            let generation = self.store.generations();
            let repeated = RepeatedWrite { request: request.clone(), sent_at: self.at, generation, more };
            self.put(after, WorldEvent::RepeatedWrite { process, repeated: Box::new(repeated) });
        }
    }

    /// The repeated write arrives. Its outcome is not reported to any process.
    pub(crate) fn repeated_write(&mut self, process: usize, mut repeated: RepeatedWrite) -> Judged {
        if self.store.generations() != repeated.generation {
            return Ok(());
        }
        if !self.impairments.down() && !self.impairments.full() {
            self.stats.fault_coverage.note(FaultKind::DoubledWrites);
            self.served_from = repeated.sent_at;
            let answer = self.serve(process, &repeated.request.op)?;
            self.note_proof(process, repeated.sent_at, &repeated.request.op, &answer);
        }
        if repeated.more > 0 {
            repeated.more -= 1;
            let after = self.processes[process].network_rng.between(50 * MS, 2 * SECOND);
            self.put(after, WorldEvent::RepeatedWrite { process, repeated: Box::new(repeated) });
        }
        Ok(())
    }

    /// A request arrives at the store, whether or not its process still lives.
    pub(crate) fn arrive(&mut self, process: usize, request: Request, sent_at: Instant) -> Judged {
        let slot = self.processes[process].slot;
        // A client counts the listings that it asks for, whatever becomes of them.
        self.processes[process].lists += u32::from(request.op == Op::List);
        let rng = &mut self.processes[process].network_rng;
        if let Some(kind) = self.impairments.down_from() {
            self.stats.fault_coverage.note(kind);
            if rng.permille(500) {
                let failed = failed(StoreErrorKind::Unreachable, "connection refused");
                self.reply(process, request.id, failed);
            }
            return Ok(());
        }
        // What was under way when the line was cut is lost with it.
        if self.slots[slot].requests_cut > 0 {
            self.stats.fault_coverage.note(self.slots[slot].cut());
            return Ok(());
        }
        if self.slots[slot].work_cut > 0 && request.lane == Lane::Work {
            self.stats.fault_coverage.note(FaultKind::CutWork);
            return Ok(());
        }
        if self.slots[slot].renewals_cut > 0 && request.lane == Lane::Renewal {
            self.stats.fault_coverage.note(FaultKind::CutRenewals);
            return Ok(());
        }
        let stalled_until = self.slots[slot].stalled_until;
        if self.at < stalled_until && request.lane == Lane::Work && matches!(request.op, Op::Swap(_)) {
            self.stats.fault_coverage.note(FaultKind::Stall);
            self.put_at(
                stalled_until,
                WorldEvent::RequestArrives { process, request: Box::new(request), sent_at },
            );
            return Ok(());
        }
        if matches!(request.op, Op::Swap(_)) && self.impairments.full() {
            self.stats.fault_coverage.note(FaultKind::FullDisk);
            let failed = failed(StoreErrorKind::Refused, "no space left on device");
            self.reply(process, request.id, failed);
            return Ok(());
        }
        let errors = self.impairments.errors();
        if errors > 0 && self.processes[process].network_rng.permille(errors) {
            self.stats.fault_coverage.note(FaultKind::Errors);
            return self.fail(process, request, sent_at);
        }
        self.served_from = sent_at;
        let answer = self.serve(process, &request.op)?;
        self.note_proof(process, sent_at, &request.op, &answer);
        self.reply(process, request.id, answer);
        Ok(())
    }

    /// The store has a write of a process's own record: that is what its grants live by.
    fn note_proof(&mut self, process: usize, sent_at: Instant, op: &Op, answer: &Answer) {
        let (Op::Swap(swaps), Answer::Swapped { outcomes, .. }) = (op, answer) else { return };
        let node = &mut self.processes[process];
        for (swap, outcome) in swaps.iter().zip(outcomes) {
            if matches!(&swap.key, Key::Node(name) if *name == node.name)
                && matches!(outcome, Swapped::Applied(_))
            {
                node.proved_from = node.proved_from.max(sent_at);
            }
        }
    }

    /// The store fails: before it has done anything, or after it has done all or some of it.
    fn fail(&mut self, process: usize, request: Request, sent_at: Instant) -> Judged {
        self.served_from = sent_at;
        let rng = &mut self.processes[process].network_rng;
        let kind = rng.pick(&[StoreErrorKind::Busy, StoreErrorKind::Unreachable, StoreErrorKind::Refused]);
        let how = rng.below(3);
        let mut answer = failed(kind, "the store failed");
        match (&request.op, how) {
            (Op::Swap(_), 1) => {
                let done = self.serve(process, &request.op)?;
                self.note_proof(process, sent_at, &request.op, &done);
            }
            (Op::Swap(swaps), 2) => {
                let mut outcomes = Vec::with_capacity(swaps.len());
                let mut done = Vec::with_capacity(swaps.len());
                for swap in swaps {
                    let rng = &mut self.processes[process].network_rng;
                    let (applied, known) = (rng.permille(500), rng.permille(300));
                    let outcome = if applied { self.apply(process, swap)? } else { Swapped::Unknown };
                    done.push(outcome.clone());
                    outcomes.push(if known { outcome } else { Swapped::Unknown });
                }
                let done = Answer::Swapped { outcomes: done, generation: String::new() };
                self.note_proof(process, sent_at, &request.op, &done);
                answer = Answer::Swapped { outcomes, generation: self.store.generation().to_owned() };
            }
            _ => {}
        }
        self.reply(process, request.id, answer);
        Ok(())
    }

    fn serve(&mut self, process: usize, op: &Op) -> Result<Answer, crate::invariants::Violation> {
        Ok(match op {
            Op::Read(keys) => self.serve_read(process, keys),
            Op::List => self.serve_list(process),
            Op::ListNodes => self.serve_nodes(process),
            Op::Swap(swaps) => {
                let mut outcomes = Vec::with_capacity(swaps.len());
                for swap in swaps {
                    let mut outcome = self.apply(process, swap)?;
                    if let Swapped::Lost(there) = &mut outcome {
                        self.as_read(process, &swap.key, there.as_mut());
                    }
                    outcomes.push(outcome);
                }
                Answer::Swapped { outcomes, generation: self.store.generation().to_owned() }
            }
        })
    }

    fn apply(&mut self, process: usize, swap: &Swap) -> Result<Swapped, crate::invariants::Violation> {
        let before = self.newer_about.then(|| self.store.get(&swap.key).cloned()).flatten();
        let group_before =
            matches!(swap.key, Key::Group(_)).then(|| self.store.get(&swap.key).cloned()).flatten();
        let outcome = self.store.swap(self.at, swap);
        if matches!(outcome, Swapped::Applied(_)) {
            unknown_fields_survive::judge(self, before.as_ref(), swap)?;
            operators_settings_stay::judge(self, group_before.as_ref(), swap)?;
            self.stats.writes += 1;
            self.healing.wrote(self.at, self.served_from, swap, group_before.as_ref());
            self.shard_written(process, swap);
            self.watchers_hear();
        }
        if self.trace.on() && !matches!(swap.key, Key::Node(_)) {
            let line = words::of_swap(swap, &outcome);
            self.tell_of(process, || line);
        }
        Ok(outcome)
    }

    /// An answer leaves the store.
    fn reply(&mut self, process: usize, id: RequestId, answer: Answer) {
        if !self.processes[process].alive {
            return;
        }
        let (lost, doubled) = (self.impairments.lost_answers(), self.impairments.doubled_answers());
        let latency = self.latency(process);
        let rng = &mut self.processes[process].network_rng;
        if lost > 0 && rng.permille(lost) {
            self.stats.fault_coverage.note(FaultKind::LostAnswers);
            return;
        }
        if doubled > 0 && rng.permille(doubled) {
            let (late, extra) = (rng.permille(500), rng.between(MS, 4 * SECOND));
            self.stats.fault_coverage.note(FaultKind::DoubledAnswers);
            let copy = WorldEvent::AnswerArrives {
                process,
                id,
                answer: Box::new(answer.clone()),
                copy: AnswerCopy::Extra,
            };
            self.put(latency + extra, copy);
            if late {
                return;
            }
        }
        self.put(
            latency,
            WorldEvent::AnswerArrives { process, id, answer: Box::new(answer), copy: AnswerCopy::Awaited },
        );
    }

    pub(crate) fn answered(
        &mut self,
        process: usize,
        id: RequestId,
        answer: Answer,
        copy: AnswerCopy,
    ) -> Judged {
        let slot = self.processes[process].slot;
        if self.slots[slot].answers_cut > 0 {
            self.stats.fault_coverage.note(self.slots[slot].cut());
            return Ok(());
        }
        let awaited = self.processes[process].waiting.remove(&id);
        if !awaited && copy == AnswerCopy::Awaited {
            return Ok(());
        }
        if matches!(&answer, Answer::Listed(listing) if listing.newest) {
            self.processes[process].lists = 0;
        }
        self.step(process, Event::Answered(id, answer))
    }

    pub(crate) fn give_up(&mut self, process: usize, id: RequestId) -> Judged {
        if !self.processes[process].waiting.remove(&id) {
            return Ok(());
        }
        self.stats.gave_up += 1;
        self.step(process, Event::Answered(id, failed(StoreErrorKind::TimedOut, "no answer in time")))
    }
}

fn failed(kind: StoreErrorKind, message: &str) -> Answer {
    Answer::Failed(StoreError::new(kind, message))
}
