//! How processes hear of changes: watches that may be late, break, lose changes without notice, or reconnect.

use leasehold_core::SessionId;
use leasehold_core::event::Event;
use leasehold_core::store::WatchEvent;

use crate::faults::FaultKind;
use crate::world::clock::MS;
use crate::world::network::UNDER_WAY_MAX;
use crate::world::{Judged, World, WorldEvent};

impl World {
    /// The store changed: every watch will deliver that.
    pub(crate) fn watchers_hear(&mut self) {
        for process in 0..self.processes.len() {
            let node = &mut self.processes[process];
            if !node.alive || !node.watch.connected || node.watch.scheduled {
                continue;
            }
            node.watch.scheduled = true;
            let number = node.watch.number;
            let after = self.scenario.shape.latency(&mut node.watch_rng) * self.impairments.slow();
            self.put(after.min(UNDER_WAY_MAX), WorldEvent::WatchDelivery { process, number });
        }
    }

    pub(crate) fn watch_tells(&mut self, process: usize, number: u32) -> Judged {
        let slot = &self.slots[self.processes[process].slot];
        let (cut, lag, loses) =
            (slot.answers_cut + slot.work_cut > 0, slot.watch_lag.worst(), slot.watch_loss > 0);
        let node = &mut self.processes[process];
        if !node.watch.connected || node.watch.number != number {
            return Ok(());
        }
        node.watch.scheduled = false;
        if cut || self.impairments.down() {
            node.watch.stalled = true;
            return Ok(());
        }
        let upto = self.at.saturating_sub(lag);
        let entries = self.store.changes_since(node.watch.told);
        let due = entries.iter().take_while(|entry| entry.at <= upto);
        let mut changed: Vec<_> = due.map(|entry| (entry.key.clone(), entry.stored.clone())).collect();
        let next = entries.get(changed.len()).map(|entry| entry.at);
        node.watch.told += changed.len();
        if let Some(next) = next {
            node.watch.scheduled = true;
            self.stats.fault_coverage.note(FaultKind::WatchLag);
            self.put_at(next + lag, WorldEvent::WatchDelivery { process, number });
        }
        if changed.is_empty() {
            return Ok(());
        }
        if loses && self.processes[process].watch_rng.permille(600) {
            self.stats.fault_coverage.note(FaultKind::WatchLoss);
            return Ok(());
        }
        for (key, stored) in &mut changed {
            self.as_read(process, key, stored.as_mut());
        }
        self.step(process, Event::Watched(WatchEvent::Changed(changed)))
    }

    /// A watch breaks, its process is told so, and it tries again.
    pub(crate) fn break_watch(&mut self, process: usize, why: &str) -> Judged {
        let node = &mut self.processes[process];
        if !node.alive || !self.scenario.shape.watch || !node.watch.connected {
            return Ok(());
        }
        node.watch.connected = false;
        node.watch.scheduled = false;
        node.watch.stalled = false;
        node.watch.number += 1;
        let number = node.watch.number;
        let after = node.watch_rng.between(MS, 300 * MS);
        self.put(after, WorldEvent::WatchConnect { process, number });
        self.tell_of(process, || format!("its watch breaks: {why}"));
        if !self.processes[process].running() {
            return Ok(());
        }
        self.step(process, Event::Watched(WatchEvent::Interrupted(why.to_owned())))
    }

    pub(crate) fn watch_connects(&mut self, process: usize, number: u32) -> Judged {
        let node = &self.processes[process];
        if !self.scenario.shape.watch || node.watch.connected || node.watch.number != number {
            return Ok(());
        }
        let slot = &self.slots[node.slot];
        if slot.answers_cut + slot.requests_cut + slot.work_cut > 0 || self.impairments.down() {
            let after = self.processes[process].watch_rng.between(100 * MS, 500 * MS);
            self.put(after, WorldEvent::WatchConnect { process, number });
            return Ok(());
        }
        let (mut listing, told) = self.list_for(process);
        self.as_listed(process, &mut listing);
        let node = &mut self.processes[process];
        node.watch.connected = true;
        node.watch.told = told;
        if told < self.store.changes() {
            node.watch.scheduled = true;
            self.put(MS, WorldEvent::WatchDelivery { process, number });
        }
        for session in self.proved_gone.clone() {
            self.put(MS, WorldEvent::ProcessGone { process, session });
        }
        self.step(process, Event::Watched(WatchEvent::Snapshot(listing)))
    }

    /// The line to the store is back: the watch goes on where it was, or breaks.
    pub(crate) fn watch_after_cut(&mut self, process: usize) -> Judged {
        let node = &mut self.processes[process];
        if !node.alive || !node.watch.connected || !node.watch.stalled {
            return Ok(());
        }
        node.watch.stalled = false;
        if node.watch_rng.permille(500) {
            return self.break_watch(process, "the connection was lost");
        }
        if !node.watch.scheduled {
            node.watch.scheduled = true;
            let number = node.watch.number;
            self.put(MS, WorldEvent::WatchDelivery { process, number });
        }
        Ok(())
    }

    pub(crate) fn process_gone(&mut self, process: usize, session: SessionId) -> Judged {
        if !self.processes[process].watch.connected {
            return Ok(());
        }
        self.step(process, Event::Watched(WatchEvent::ProcessGone(session)))
    }
}
