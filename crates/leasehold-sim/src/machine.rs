//! What is special about the machine that a process runs on, and about how it was set up there.

use std::sync::Arc;

use leasehold_core::ShardId;
use leasehold_core::placement::{Assignment, Placement, Question, Rendezvous};

use crate::clock::{Instant, MS};
use crate::oracle::Happening;
use crate::profile::Peril;
use crate::world::{Due, Judged, World};

impl World {
    /// How long the acquire gate takes to make up its mind: a moment, or until the fault that makes it slow is over.
    pub(crate) fn gate_takes(&mut self, process: usize) -> Instant {
        let slow_until = self.slots[self.processes[process].slot].gate_slow_until;
        let moment = self.processes[process].driver.below(20 * MS);
        let longest = slow_until.min(self.setting.faults_for).saturating_sub(self.at);
        if longest <= 20 * MS {
            return moment;
        }
        self.stats.felt.note(Peril::SlowGate);
        self.processes[process].driver.below(longest)
    }

    /// A boot clock runs at another rate: the kernel's timers go by it, and so do the deadlines of grants.
    pub(crate) fn rate_changed(&mut self, slot: usize) -> Judged {
        let Some(process) = self.slots[slot].process else { return Ok(()) };
        for session in self.processes[process].sessions.clone() {
            // What is lost stays lost, and is killed by the word that it was given.
            if !session.lost {
                let until = self.until(process, session.deadlines);
                self.observe(Happening::Deadlines { session: session.number, until })?;
            }
        }
        // Watchdog and dead-man timer take a turn, and see when they are due by the clock as it runs now.
        let node = &mut self.processes[process];
        (node.guard_at, node.dead_man_at) = (self.at, self.at);
        self.put_at(self.at, Due::Guard { process });
        self.put_at(self.at, Due::DeadMan { process });
        self.processes[process].tick_at = 0;
        if self.processes[process].running() {
            self.plan_tick(process);
        }
        Ok(())
    }

    /// The placement of whoever begins in a slot, if it is not the usual one.
    pub(crate) fn placement_of(&self, slot: usize) -> Option<Arc<dyn Placement>> {
        (self.slots[slot].contrary > 0).then(|| Arc::new(Even) as Arc<dyn Placement>)
    }
}

/// A placement that does not care for weights and ranks nodes the other way round.
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
