//! How processes begin and end.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use leasehold_core::event::{Command, Event};
use leasehold_core::notice::SessionState;
use leasehold_core::work::{Watch as Watchdog, Works};
use leasehold_core::{Node, NodeName};

use crate::faults::Restart;
use crate::oracle::{Observation, RunEnd};
use crate::report::outcome::ProcessEvent;
use crate::rng::{Purpose, Rng};
use crate::world::clock::{Instant, MS, SECOND};
use crate::world::process::{Leaving, Process, Watch};
use crate::world::scenario::{DeadMan, NAMED};
use crate::world::{Judged, World, WorldEvent};

impl World {
    /// A new process begins in a slot, unless one runs there.
    pub(crate) fn spawn(&mut self, slot: usize) -> Judged {
        if self.slots[slot].process.is_some() || self.slots[slot].away {
            return Ok(());
        }
        self.slots[slot].lives += 1;
        let life = (slot as u64) << 32 | self.slots[slot].lives;
        let stream = |purpose| Rng::new(self.scenario.seed, purpose, life);
        let mut rng = stream(Purpose::Core);
        let mut seed = [0; 32];
        seed.chunks_mut(8).for_each(|chunk| chunk.copy_from_slice(&rng.draw().to_le_bytes()));
        let name = self.slots[slot].name.clone();
        let config = self.scenario.config(slot, name.clone(), self.slots[slot].ttl);
        let own = self.placement_of(slot);
        let margin = config.margin.as_nanos() as u64;
        let kill_budget = config.kill_budget.as_nanos() as u64;
        // As the library has it: with a timer of the kernel behind it, the kill from inside comes a little earlier.
        let (kill_early, kill_takes) = match self.scenario.dead_man {
            DeadMan::Off => (Duration::ZERO, kill_budget * 6 / 10),
            DeadMan::Armed => {
                let early =
                    Duration::from_millis(100).min(config.margin.saturating_sub(config.kill_budget) / 4);
                (early, early.as_nanos() as u64 * 6 / 10)
            }
        };
        let process = Process {
            slot,
            stop_budget: margin * 98 / 100 - kill_budget,
            kill_takes,
            kill_early,
            works: Works::new(kill_early, config.margin),
            watchdog: Watchdog::default(),
            guard_at: Instant::MAX,
            armed: None,
            dead_man_at: Instant::MAX,
            heard: VecDeque::new(),
            proved_from: 0,
            valid_for: config.ttl.as_nanos() as u64 / 1000 * (1000 - u64::from(config.drift_permille)),
            name,
            version: self.slots[slot].version,
            began_at: self.at,
            contrary: own.is_some(),
            core: self.sabotaged(Node::with_placement(config, self.scenario.facts.clone(), seed, own)),
            alive: true,
            paused: None,
            pauses: 0,
            deferred: Vec::new(),
            undone: Vec::new(),
            pause_at_check: None,
            pause_at_step: None,
            pause_at_begin: None,
            tick_at: 0,
            ticks: 0,
            sessions: Vec::new(),
            waiting: BTreeSet::new(),
            lists: 0,
            watch: Watch::default(),
            workers: Vec::new(),
            session_state: SessionState::Joining,
            state_since: self.at,
            slept_at: 0,
            thawed_at: 0,
            wall_step_seen_at: self.at,
            margin,
            busy: (0, 0),
            leaving: Leaving::No,
            network_rng: stream(Purpose::Network),
            driver_rng: stream(Purpose::Driver),
            work_rng: stream(Purpose::Work),
            parts_rng: stream(Purpose::Parts),
            watch_rng: stream(Purpose::Watch),
        };
        let number = self.processes.len();
        self.processes.push(process);
        self.slots[slot].process = Some(number);
        self.marks.push((self.at, number, ProcessEvent::Began));
        self.tell_of(number, || "begins".to_owned());
        self.observe(Observation::Starved { process: number, by: self.slots[slot].sluggish.worst() })?;
        self.step(number, Event::Tick)?;
        self.put(5 * MS, WorldEvent::WatchConnect { process: number, number: 0 });
        self.repeat_commands(slot, number)
    }

    /// Repeats the commands of the slot's user for a new process.
    fn repeat_commands(&mut self, slot: usize, process: usize) -> Judged {
        if let Some(weight) = self.slots[slot].weight {
            self.step(process, Event::Command(Command::Weight(weight)))?;
        }
        if let Some(capacity) = self.slots[slot].capacity {
            self.step(process, Event::Command(Command::Capacity(capacity)))?;
        }
        for shard in 0..NAMED {
            if self.slots[slot].disengaged[shard] == 0 {
                self.engage(slot, shard)?;
            }
        }
        if self.slots[slot].not_accepting > 0 {
            self.step(process, Event::Command(Command::Accepting(false)))?;
        }
        Ok(())
    }

    #[cfg(feature = "sabotage")]
    fn sabotaged(&self, mut core: Node) -> Node {
        let Some(sabotage) = self.sabotage else { return core };
        let rule = if let crate::sabotage::Sabotage::Core(rule) = sabotage { Some(rule) } else { None };
        core.set_rules(leasehold_core::rules::Rules::without_all(rule.into_iter().chain(sabotage.behind())));
        core
    }

    #[cfg(not(feature = "sabotage"))]
    fn sabotaged(&self, core: Node) -> Node {
        core
    }

    /// A process is gone at once, with all that it ran.
    pub(crate) fn die(&mut self, process: usize) -> Judged {
        if !self.processes[process].alive {
            return Ok(());
        }
        self.processes[process].alive = false;
        let slot = self.processes[process].slot;
        self.slots[slot].clock.thaw(self.at);
        if self.slots[slot].process == Some(process) {
            self.slots[slot].process = None;
        }
        self.marks.push((self.at, process, ProcessEvent::Ended));
        self.tell_of(process, || "is gone".to_owned());
        for worker in self.processes[process].workers.clone() {
            self.end_work(worker, RunEnd::Died)?;
        }
        if self.scenario.shape.proves_death {
            self.prove_gone(process);
        }
        Ok(())
    }

    fn prove_gone(&mut self, process: usize) {
        let sessions: Vec<_> = self.processes[process].sessions.iter().map(|session| session.id).collect();
        for session in sessions {
            self.proved_gone.push(session);
            for other in 0..self.processes.len() {
                if self.processes[other].alive {
                    let after = self.processes[other].watch_rng.between(MS, 60 * MS);
                    self.put(after, WorldEvent::ProcessGone { process: other, session });
                }
            }
        }
    }

    /// A process has left, as it was told, and is over.
    pub(crate) fn left(&mut self, process: usize) -> Judged {
        self.tell_of(process, || "has left".to_owned());
        self.stats.left += 1;
        let (slot, leaving) = (self.processes[process].slot, self.processes[process].leaving);
        self.die(process)?;
        match leaving {
            Leaving::Then(then) => self.come_back(slot, then),
            // It was not told to: it refused to run, because its name is in use. It is started again later.
            Leaving::No => {
                self.names_collide(process);
                self.put(2 * SECOND, WorldEvent::Spawn { slot });
            }
        }
        Ok(())
    }

    pub(crate) fn come_back(&mut self, slot: usize, then: Restart) {
        // When the faults are over, restarts are quick.
        let soon = |after: Instant| if self.healing.began { after.min(SECOND) } else { after };
        match then {
            Restart::SameName { after } => self.put(soon(after), WorldEvent::Spawn { slot }),
            Restart::NewName { after } => {
                let after = soon(after);
                let slot_state = &mut self.slots[slot];
                slot_state.names += 1;
                let name = format!("n{slot}-{}", slot_state.names);
                slot_state.name = NodeName::new(name).expect("a valid name");
                self.put(after, WorldEvent::Spawn { slot });
            }
            Restart::Never if self.healing.began => self.put(SECOND, WorldEvent::Spawn { slot }),
            Restart::Never => {}
        }
    }
}
