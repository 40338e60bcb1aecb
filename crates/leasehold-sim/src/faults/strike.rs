//! How each fault strikes, and how it is over.

use leasehold_core::event::{Command, Returning};
use leasehold_core::{Epoch, ShardId};
use std::time::Duration;

use crate::faults::{Fault, FaultKind, Grace, PausePoint, Restart, Shutdown, Traffic};
use crate::invariants::store_changes_are_real;
use crate::oracle::Observation;
use crate::store::impairment::Impairment;
use crate::workload::Worker;
use crate::world::clock::{Instant, MS, SECOND};
use crate::world::process::{Leaving, Slot, Version};
use crate::world::{Judged, World, WorldEvent};

impl World {
    pub(crate) fn begin_fault(&mut self, index: usize) -> Judged {
        let planned = self.faults[index].clone();
        self.tell("FAULT", || planned.to_string());
        self.healing.struck(self.at, &planned.fault);
        self.stats.faults += 1;
        self.store_was_touched |= store_changes_are_real::touches_the_store(&planned.fault);
        if let Some(lasts) = planned.fault.lasts() {
            self.active_faults.insert(index);
            self.put(lasts, WorldEvent::FaultEnds(index));
        }
        self.note_effect(index, &planned.fault);
        match planned.fault {
            Fault::Crash { slot, then } => {
                if let Some(process) = self.slots[slot].process {
                    self.die(process)?;
                    self.come_back(slot, then);
                }
            }
            Fault::Leave { slot, within, then, grace } => self.tell_to_leave(slot, within, then, grace)?,
            Fault::Pause { slot, lasts, point } => self.strike_pause(slot, lasts, point)?,
            Fault::Frozen { slot, times, .. } => return self.freeze(slot, times, index),
            Fault::Cut { slot, traffic, .. } => {
                self.slots[slot].requests_cut +=
                    u32::from(matches!(traffic, Traffic::All | Traffic::Requests));
                self.slots[slot].answers_cut += u32::from(matches!(traffic, Traffic::All | Traffic::Answers));
                self.slots[slot].work_cut += u32::from(traffic == Traffic::Work);
                self.slots[slot].renewals_cut += u32::from(traffic == Traffic::Renewals);
            }
            Fault::SlowStore { times, .. } => self.impairments.begin(index, Impairment::Slow(times)),
            Fault::Errors { permille, .. } => self.impairments.begin(index, Impairment::Errors(permille)),
            Fault::LostAnswers { permille, .. } => {
                self.impairments.begin(index, Impairment::LostAnswers(permille))
            }
            Fault::DoubledAnswers { permille, .. } => {
                self.impairments.begin(index, Impairment::DoubledAnswers(permille));
            }
            Fault::DoubledWrites { permille, .. } => {
                self.impairments.begin(index, Impairment::DoubledWrites(permille));
            }
            Fault::WatchBreak { slot } => self.break_watches(slot, "compacted")?,
            Fault::WatchLag { slot, lag, .. } => self.slots[slot].watch_lag.begin(index, lag),
            Fault::WatchLoss { slot, .. } => self.slots[slot].watch_loss += 1,
            Fault::StaleLists { lag, .. } => self.impairments.begin(index, Impairment::StaleLists(lag)),
            Fault::StoreRestart { .. } => {
                self.impairments.begin(index, Impairment::Down(FaultKind::StoreRestart));
                self.break_watches(None, "the store went away")?;
            }
            Fault::Failover { loses, .. } => {
                self.impairments.begin(index, Impairment::Down(FaultKind::Failover));
                self.store.roll_back(self.at, self.at.saturating_sub(loses));
                self.records.read_all(self.at, &self.scenario, &self.store);
                self.break_watches(None, "the store failed over")?;
            }
            Fault::Emptied { generation } => {
                self.store.empty(self.at, generation);
                self.records.read_all(self.at, &self.scenario, &self.store);
                self.after_restore()?;
            }
            Fault::RolledBack { by } => {
                self.store.roll_back(self.at, self.at.saturating_sub(by));
                self.records.read_all(self.at, &self.scenario, &self.store);
                self.break_watches(None, "the store was restored")?;
            }
            Fault::MassLeave { slots, how, then } => {
                for slot in slots {
                    self.go(slot, how, then)?;
                }
            }
            Fault::RollingRestart { .. } | Fault::Downgrade { .. } | Fault::RollingTtl { .. } => {
                return self.roll(0, index);
            }
            Fault::Weight { slot, weight } => {
                self.slots[slot].weight = Some(weight);
                self.command(slot, Command::Weight(weight))?;
            }
            Fault::Capacity { slot, capacity } => {
                self.slots[slot].capacity = Some(capacity);
                self.command(slot, Command::Capacity(capacity))?;
            }
            Fault::NotAccepting { slot, .. } => {
                self.slots[slot].not_accepting += 1;
                self.command(slot, Command::Accepting(false))?;
            }
            Fault::Resize { shards } => self.resize(shards),
            Fault::Pin { shard, slot, .. } => {
                self.asked_for.insert(index, self.slots[slot].name.clone());
                self.pin(shard);
            }
            Fault::Drain { slot, .. } => {
                let name = self.slots[slot].name.clone();
                self.asked_for.insert(index, name.clone());
                self.control(|control| {
                    control.drain.insert(name, Default::default());
                });
            }
            Fault::Freeze { .. } => self.control(|control| control.freeze = Some("a test".to_owned())),
            Fault::Protocol { slot, .. } => {
                self.raise();
                self.go(slot, Shutdown::Killed, Restart::SameName { after: 200 * MS })?;
            }
            Fault::Release { shard } => {
                let id = ShardId::slot(&self.scenario.group, shard);
                let epoch = self.oracle.state.shard(shard as usize).epoch.unwrap_or(Epoch(0));
                self.control(|control| {
                    control.release.insert(id, epoch);
                });
            }
            Fault::Disengage { shard, slot, .. } => {
                let slots = slot.map_or(0..self.scenario.nodes, |slot| slot..slot + 1);
                for slot in slots {
                    self.slots[slot].disengaged[shard] += 1;
                    self.engage(slot, shard)?;
                }
            }
            Fault::Corrupt { what, how } => self.damage(what, how),
            Fault::Vanish { what } => self.vanish(what),
            Fault::Refuse { slot, .. } => self.slots[slot].refusing += 1,
            Fault::WorkCrash { slot, .. } => self.slots[slot].crashing += 1,
            Fault::StepDown { slot, shard, pause } => self.step_down(slot, shard, pause)?,
            Fault::Upgrade { slot, after } => {
                self.slots[slot].version = Version::Newer;
                self.newer_about = true;
                if let Some(process) = self.slots[slot].process {
                    self.die(process)?;
                    self.come_back(slot, Restart::SameName { after });
                }
            }
            Fault::Twin { slot, .. } => {
                let machine = self.slots.len();
                let twin = Slot::new(self.slots[slot].name.clone(), self.scenario.clock(machine));
                self.slots.push(twin);
                self.twins.push((index, machine));
                return self.spawn(machine);
            }
            Fault::WallStep { slot, by_ms } => self.slots[slot].clock.step_wall(self.at, by_ms),
            Fault::SlowGate { slot, lasts } => {
                self.slots[slot].gate_slow_until = self.slots[slot].gate_slow_until.max(self.at + lasts);
            }
            Fault::ClockRate { slot, rate } => {
                self.slots[slot].clock.set_rate(self.at, rate);
                self.rate_changed(slot)?;
            }
            Fault::FullDisk { .. } => self.impairments.begin(index, Impairment::Full),
            Fault::Placement { slot, .. } => {
                self.slots[slot].contrary += 1;
                self.go(slot, Shutdown::Killed, Restart::SameName { after: 200 * MS })?;
            }
            Fault::Stall { slot, lasts } => {
                self.slots[slot].stalled_until = self.slots[slot].stalled_until.max(self.at + lasts);
            }
            Fault::Sluggish { slot, lag, .. } => {
                self.slots[slot].sluggish.begin(index, lag);
                self.starve(slot)?;
            }
        }
        Ok(())
    }

    pub(crate) fn end_fault(&mut self, index: usize) -> Judged {
        if !self.active_faults.remove(&index) {
            return Ok(());
        }
        let fault = self.faults[index].fault.clone();
        let number = self.faults[index].number;
        self.awaiting_effect.retain(|awaiting_effect| *awaiting_effect != index);
        self.tell("FAULT", || format!("#{number} is over"));
        match fault {
            Fault::Cut { slot, traffic, .. } => {
                self.slots[slot].requests_cut -=
                    u32::from(matches!(traffic, Traffic::All | Traffic::Requests));
                self.slots[slot].answers_cut -= u32::from(matches!(traffic, Traffic::All | Traffic::Answers));
                self.slots[slot].work_cut -= u32::from(traffic == Traffic::Work);
                self.slots[slot].renewals_cut -= u32::from(traffic == Traffic::Renewals);
                if let Some(process) = self.slots[slot].process {
                    self.watch_after_cut(process)?;
                }
            }
            Fault::StoreRestart { .. } | Fault::Failover { .. } => {
                self.impairments.end(index);
                for process in 0..self.processes.len() {
                    self.watch_after_cut(process)?;
                }
            }
            Fault::SlowStore { .. }
            | Fault::Errors { .. }
            | Fault::LostAnswers { .. }
            | Fault::DoubledAnswers { .. }
            | Fault::DoubledWrites { .. }
            | Fault::FullDisk { .. }
            | Fault::StaleLists { .. } => self.impairments.end(index),
            Fault::Placement { slot, .. } => {
                self.slots[slot].contrary -= 1;
                self.go(slot, Shutdown::Killed, Restart::SameName { after: 200 * MS })?;
            }
            Fault::WatchLag { slot, .. } => self.slots[slot].watch_lag.end(index),
            Fault::WatchLoss { slot, .. } => self.slots[slot].watch_loss -= 1,
            Fault::NotAccepting { slot, .. } => {
                self.slots[slot].not_accepting -= 1;
                if self.slots[slot].not_accepting == 0 {
                    self.command(slot, Command::Accepting(true))?;
                }
            }
            Fault::Disengage { shard, slot, .. } => {
                let slots = slot.map_or(0..self.scenario.nodes, |slot| slot..slot + 1);
                for slot in slots {
                    self.slots[slot].disengaged[shard] -= 1;
                    self.engage(slot, shard)?;
                }
            }
            Fault::Pin { shard, .. } => {
                self.asked_for.remove(&index);
                self.pin(shard);
            }
            Fault::Drain { .. } => {
                let name = self.asked_for.remove(&index);
                if let Some(name) = name.filter(|name| !self.is_drained(name)) {
                    self.control(|control| {
                        control.drain.remove(&name);
                    });
                }
            }
            Fault::Freeze { .. } if self.is_frozen() => {}
            Fault::Freeze { .. } => self.control(|control| control.freeze = None),
            Fault::Refuse { slot, .. } => {
                self.slots[slot].refusing -= 1;
                self.give_in(slot);
            }
            Fault::WorkCrash { slot, .. } => self.slots[slot].crashing -= 1,
            Fault::Twin { .. } => {
                let twin = self.twins.iter().find(|(fault, _)| *fault == index).map(|(_, slot)| *slot);
                let Some(slot) = twin else { return Ok(()) };
                // Also if it is between two lives just now.
                self.slots[slot].away = true;
                if let Some(process) = self.slots[slot].process {
                    self.die(process)?;
                }
            }
            Fault::Sluggish { slot, .. } => {
                self.slots[slot].sluggish.end(index);
                self.starve(slot)?;
            }
            Fault::Protocol { .. } => self.raise(),
            _ => {}
        }
        Ok(())
    }

    fn strike_pause(&mut self, slot: usize, lasts: Instant, point: PausePoint) -> Judged {
        let Some(process) = self.slots[slot].process else { return Ok(()) };
        match point {
            PausePoint::Anywhere => return self.pause(process, lasts),
            PausePoint::BetweenCheckAndAct => self.processes[process].pause_at_check = Some(lasts),
            PausePoint::BeforeBegin => self.processes[process].pause_at_begin = Some(lasts),
            PausePoint::BetweenStepAndAct | PausePoint::BeforeStart => {
                self.processes[process].pause_at_step = Some((lasts, point));
            }
        }
        Ok(())
    }

    fn starve(&mut self, slot: usize) -> Judged {
        let lag = self.slots[slot].sluggish.worst();
        match self.slots[slot].process {
            Some(process) => self.observe(Observation::Starved { process, by: lag }),
            None => Ok(()),
        }
    }

    pub(crate) fn break_watches(&mut self, slot: Option<usize>, why: &str) -> Judged {
        for process in 0..self.processes.len() {
            if slot.is_none_or(|slot| self.slots[slot].process == Some(process)) {
                self.break_watch(process, why)?;
            }
        }
        Ok(())
    }

    /// After the store was emptied, watches either see everything vanish or break.
    fn after_restore(&mut self) -> Judged {
        if self.store_rng.permille(500) {
            return self.break_watches(None, "the store was replaced");
        }
        self.watchers_hear();
        Ok(())
    }

    /// Sends a user's command to the node of a slot; a paused node gets it when it resumes.
    pub(crate) fn command(&mut self, slot: usize, command: Command) -> Judged {
        let Some(process) = self.slots[slot].process else { return Ok(()) };
        self.put(0, WorldEvent::Command { process, command: Box::new(command) });
        Ok(())
    }

    /// Tells the node of a slot whether it can run a named shard.
    pub(crate) fn engage(&mut self, slot: usize, shard: usize) -> Judged {
        let Some(id) = self.scenario.named_shard(shard) else { return Ok(()) };
        let engaged = self.slots[slot].disengaged[shard] == 0;
        self.command(slot, if engaged { Command::Engage(id) } else { Command::Disengage(id) })
    }

    /// Work that runs at a slot asks for another node to take its shard.
    fn step_down(&mut self, slot: usize, shard: Option<usize>, pause: Instant) -> Judged {
        let Some(process) = self.slots[slot].process else { return Ok(()) };
        for worker in self.processes[process].workers.clone() {
            let Worker { shard: id, epoch, .. } = self.workers[worker].clone();
            if self.workers[worker].has_handler() && shard.is_none_or(|it| it == self.scenario.number_of(&id))
            {
                self.stats.fault_coverage.note(FaultKind::StepDown);
                let pause = Duration::from_nanos(pause);
                self.command(slot, Command::StepDown { shard: id, epoch, pause })?;
            }
        }
        Ok(())
    }

    fn tell_to_leave(&mut self, slot: usize, within: Instant, then: Restart, grace: Grace) -> Judged {
        let Some(process) = self.slots[slot].process else { return Ok(()) };
        if self.processes[process].leaving != Leaving::No {
            return Ok(());
        }
        self.processes[process].leaving = Leaving::Then(then);
        let returning = if grace == Grace::Asked { Returning::Soon } else { Returning::No };
        self.command(slot, Command::Leave { within: Duration::from_nanos(within), returning })
    }

    fn go(&mut self, slot: usize, how: Shutdown, then: Restart) -> Judged {
        let Some(process) = self.slots[slot].process else { return Ok(()) };
        match how {
            Shutdown::Graceful => self.tell_to_leave(slot, 5 * SECOND, then, Grace::None),
            Shutdown::Killed => {
                self.die(process)?;
                self.come_back(slot, then);
                Ok(())
            }
        }
    }

    pub(crate) fn roll(&mut self, slot: usize, fault: usize) -> Judged {
        let (gap, how) = match self.faults[fault].fault {
            Fault::RollingRestart { gap, how }
            | Fault::Downgrade { gap, how }
            | Fault::RollingTtl { gap, how, .. } => (gap, how),
            _ => return Ok(()),
        };
        if slot >= self.scenario.nodes || self.healing.began {
            return Ok(());
        }
        self.healing.struck(self.at, &self.faults[fault].fault.clone());
        self.put(gap, WorldEvent::RollingStep { slot: slot + 1, fault });
        if let Fault::Downgrade { .. } = self.faults[fault].fault {
            let newer = |process: usize| self.processes[process].version == Version::Newer;
            if self.slots[slot].process.is_some_and(newer) {
                self.stats.fault_coverage.note(FaultKind::Downgrade);
            }
            self.slots[slot].version = Version::This;
        } else if let Fault::RollingTtl { ttl, .. } = self.faults[fault].fault {
            if self.slots[slot].process.is_some() {
                self.stats.fault_coverage.note(FaultKind::RollingTtl);
            }
            self.slots[slot].ttl = Some(ttl);
        } else if self.slots[slot].process.is_some() {
            self.stats.fault_coverage.note(FaultKind::RollingRestart);
        }
        self.go(slot, how, Restart::SameName { after: 200 * MS })
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::NodeName;
    use leasehold_core::record::{Control, Record};
    use leasehold_core::store::Key;

    use super::*;
    use crate::faults::ScheduledFault;

    fn control(world: &World) -> Control {
        Control::decode(&world.store.get(&Key::Control).unwrap().value).unwrap()
    }

    #[test]
    fn what_operators_want_ends_each_at_its_own_time() {
        let mut world = World::healed(3, 4);
        let lasts = SECOND;
        let faults = [
            Fault::Pin { shard: 1, slot: 0, lasts },
            Fault::Pin { shard: 1, slot: 2, lasts },
            Fault::Drain { slot: 1, lasts },
            Fault::Drain { slot: 1, lasts },
            Fault::Freeze { lasts },
            Fault::Freeze { lasts },
            Fault::Sluggish { slot: 0, lasts, lag: 2 * MS },
            Fault::Sluggish { slot: 0, lasts, lag: 9 * MS },
        ];
        let at = world.at;
        let planned = |(number, fault): (usize, &Fault)| ScheduledFault { number, at, fault: fault.clone() };
        world.faults = faults.iter().enumerate().map(planned).collect();
        for index in 0..faults.len() {
            world.begin_fault(index).unwrap();
        }
        let drained = world.slots[1].name.clone();
        // If the node came back under another name, the drain of the old name must still be undone.
        world.slots[1].name = NodeName::new("another").unwrap();
        for index in [1, 3, 5, 7] {
            world.end_fault(index).unwrap();
        }
        let wanted = control(&world);
        assert_eq!(wanted.pins.values().collect::<Vec<_>>(), [&world.slots[0].name]);
        assert!(wanted.drain.contains_key(&drained) && wanted.freeze.is_some());
        assert_eq!(world.slots[0].sluggish.worst(), 2 * MS);
        for index in [0, 2, 4, 6] {
            world.end_fault(index).unwrap();
        }
        let wanted = control(&world);
        assert!(wanted.pins.is_empty() && wanted.drain.is_empty() && wanted.freeze.is_none());
        assert_eq!(world.slots[0].sluggish.worst(), 0);
    }
}
