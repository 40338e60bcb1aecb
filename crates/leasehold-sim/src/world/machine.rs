//! What is special about the machine that a process runs on, and about how it was set up there.

use std::sync::Arc;

use leasehold_core::ShardId;
use leasehold_core::placement::{Assignment, Placement, Question, Rendezvous};

use crate::faults::{Fault, FaultKind};
use crate::oracle::Observation;
use crate::world::clock::{Instant, MS};
use crate::world::{Judged, World, WorldEvent};

impl World {
    /// How long the acquire gate takes to answer: a moment, or until the fault that makes it slow is over.
    pub(crate) fn gate_takes(&mut self, process: usize) -> Instant {
        let slow_until = self.slots[self.processes[process].slot].gate_slow_until;
        let moment = self.processes[process].driver_rng.below(20 * MS);
        let longest = slow_until.min(self.scenario.faults_for).saturating_sub(self.at);
        if longest <= 20 * MS {
            return moment;
        }
        self.stats.fault_coverage.note(FaultKind::SlowGate);
        self.processes[process].driver_rng.below(longest)
    }

    /// A machine is frozen, and so are its boot clock and its timers: not even the kernel notices anything.
    pub(crate) fn freeze(&mut self, slot: usize, times: u32, fault: usize) -> Judged {
        let Fault::Frozen { lasts, gap, .. } = self.faults[fault].fault else { return Ok(()) };
        if times > 1 && !self.healing.began {
            self.put(lasts + gap, WorldEvent::FreezeMachine { slot, times: times - 1, fault });
        }
        let Some(process) = self.slots[slot].process else { return Ok(()) };
        if !self.processes[process].running() || self.healing.began {
            return Ok(());
        }
        self.slots[slot].clock.freeze(self.at);
        self.pause(process, lasts)
    }

    /// It resumes: by its own clock, all deadlines are as far away as before.
    pub(crate) fn thaw(&mut self, process: usize) -> Judged {
        let slot = self.processes[process].slot;
        if !self.slots[slot].clock.frozen {
            return Ok(());
        }
        self.slots[slot].clock.thaw(self.at);
        self.processes[process].thawed_at = self.at;
        for session in self.processes[process].sessions.clone() {
            let until = self.until(process, session.deadlines);
            self.observe(Observation::Froze { session: session.number, until })?;
        }
        self.timers_take_a_turn(process);
        self.processes[process].tick_at = 0;
        Ok(())
    }

    /// A boot clock runs at another rate: the kernel's timers go by it, and so do the deadlines of grants.
    pub(crate) fn rate_changed(&mut self, slot: usize) -> Judged {
        let Some(process) = self.slots[slot].process else { return Ok(()) };
        for session in self.processes[process].sessions.clone() {
            let until = self.until(process, session.deadlines);
            self.observe(Observation::ClockRate { session: session.number, until })?;
        }
        self.timers_take_a_turn(process);
        self.processes[process].tick_at = 0;
        if self.processes[process].running() {
            self.plan_tick(process);
        }
        Ok(())
    }

    /// Watchdog and dead-man timer see when they are due by the clock as it runs now.
    fn timers_take_a_turn(&mut self, process: usize) {
        let node = &mut self.processes[process];
        (node.guard_at, node.dead_man_at) = (self.at, self.at);
        self.put_at(self.at, WorldEvent::Watchdog { process });
        self.put_at(self.at, WorldEvent::DeadManTimer { process });
    }

    /// The placement of a process that begins in a slot, if it is not the usual one.
    pub(crate) fn placement_of(&self, slot: usize) -> Option<Arc<dyn Placement>> {
        (self.slots[slot].contrary > 0).then(|| Arc::new(Even) as Arc<dyn Placement>)
    }
}

/// A placement that ignores weights and ranks nodes in reverse order.
#[derive(Clone, Copy, Debug)]
struct Even;

impl Placement for Even {
    fn id(&self) -> String {
        "even/1".to_owned()
    }

    fn place(&self, question: &Question) -> Assignment {
        let mut even = question.clone();
        even.nodes.iter_mut().for_each(|node| node.weight = 100);
        Rendezvous.place(&even)
    }

    fn rank(&self, question: &Question, shard: &ShardId) -> Vec<u32> {
        let mut ranked = Rendezvous.rank(question, shard);
        ranked.reverse();
        ranked
    }
}
