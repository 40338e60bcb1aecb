//! What user code consists of besides its handler: parts that its grant owns, and parts that no driver knows of.

use crate::runner::options::Circumstance;
use crate::workload::{WorkEvent, Worker};
use crate::world::clock::SECOND;
use crate::world::scenario::DeadMan;
use crate::world::{Judged, World, WorldEvent};

impl World {
    /// What the work consists of besides its handler.
    pub(crate) fn draw_parts(&mut self, worker: usize) {
        let armed = self.scenario.dead_man == DeadMan::Armed;
        let has_parts = self.scenario.has(Circumstance::OwnedParts);
        let outlasts = self.scenario.has(Circumstance::Outlasting);
        let rng = &mut self.processes[self.workers[worker].process].parts_rng;
        let it = &mut self.workers[worker];
        if rng.permille(200) {
            it.owned = (1 + rng.below(2) as u32) * u32::from(has_parts);
            // Only the kernel can end a thread that does not look at its grant.
            it.stubborn = armed && rng.permille(400) && has_parts && outlasts;
        }
        if rng.permille(100) {
            it.strays = 1 + rng.below(3) as u32;
        }
    }

    /// Stubborn parts look at nothing for a while.
    pub(crate) fn outlast(&mut self, worker: usize) {
        let Worker { process, owned, .. } = self.workers[worker];
        for _ in 0..owned {
            let after = self.processes[process].parts_rng.below(2 * self.scenario.ttl);
            self.put(after, WorldEvent::Work { worker, what: WorkEvent::PartStop });
        }
    }

    /// A part that no driver knows of checks the grant.
    pub(crate) fn stray(&mut self, worker: usize) -> Judged {
        self.check(worker)?;
        let it = &mut self.workers[worker];
        it.strays -= 1;
        if it.strays > 0 {
            self.plan_stray(worker);
        }
        Ok(())
    }

    pub(crate) fn plan_stray(&mut self, worker: usize) {
        let after = self.processes[self.workers[worker].process].parts_rng.below(4 * SECOND);
        self.put(after, WorldEvent::Work { worker, what: WorkEvent::Stray });
    }
}
