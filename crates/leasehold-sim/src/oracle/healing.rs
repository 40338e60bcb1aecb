//! The end of a run: all faults are over, the world has time to heal, and then the invariants about recovery are judged.
//! Also what is looked at from outside once a second during the whole run.

use leasehold_core::NodeName;
use leasehold_core::config::Gate;
use leasehold_core::event::Command;
use leasehold_core::notice::SessionState;
use leasehold_core::record::{GroupRecord, NodeRecord, Record};
use leasehold_core::store::{Key, Stored, Swap};

use crate::faults::{Fault, Shutdown};
use crate::invariants;
use crate::invariants::no_stampede::Trial;
use crate::oracle::bounds::Bounds;
use crate::oracle::records::{Loss, RecordState};
use crate::oracle::{Census, Observation};
use crate::world::clock::Instant;
use crate::world::scenario::Scenario;
use crate::world::{Judged, LOOK_EVERY, World, WorldEvent, mentions};

/// How far a run has healed.
#[derive(Debug)]
pub(crate) struct Healing {
    pub(crate) bounds: Bounds,
    pub(crate) began: bool,
    pub(crate) began_at: Instant,
    pub(crate) done: bool,
    /// From when on the world is calm, as far as we know.
    pub(crate) calm_from: Instant,
    /// When the group last got another number of shards, or a record that can be read: no node can have taken one before.
    pub(crate) resized_at: Instant,
    /// The node that an operator goes on draining.
    pub(crate) drained: Option<NodeName>,
    /// When every shard was owned again, and when the plan was reached.
    pub(crate) owned_at: Option<Instant>,
    pub(crate) converged_at: Option<Instant>,
    /// When each shard was last seen owned.
    pub(crate) owned_last: Vec<Instant>,
    /// The worst that was seen done to each shard's record since then, and to any of them while the world heals.
    pub(crate) losses: Vec<Loss>,
    pub(crate) loss: Loss,
    /// How many runs had begun by then.
    pub(crate) runs_at_began: usize,
    pub(crate) runs_at_converged: usize,
    /// Writes so far: of node records, and of all others.
    pub(crate) node_writes: u64,
    pub(crate) other_writes: u64,
    pub(crate) node_writes_before: u64,
    pub(crate) other_writes_before: u64,
    /// Writes that raised the epoch floor of a group and changed nothing else, and how many of them the removal of old
    /// node records may still need.
    pub(crate) floors_raised: u64,
    pub(crate) floors_raised_before: u64,
    pub(crate) floors_to_raise: u64,
    /// The last write that was no renewal: of what, and when.
    pub(crate) last_other: Option<Key>,
    pub(crate) last_other_at: Instant,
    /// When a node last joined: all nodes replan some time after that.
    pub(crate) last_joined_at: Instant,
    /// The outage that some runs end with.
    pub(crate) trial: Option<Trial>,
}

impl Healing {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let bounds = Bounds::new(scenario);
        Healing {
            calm_from: bounds.calm_after,
            resized_at: 0,
            bounds,
            began: false,
            began_at: Instant::MAX,
            done: false,
            drained: None,
            owned_at: None,
            converged_at: None,
            owned_last: Vec::new(),
            losses: Vec::new(),
            loss: Loss::Nothing,
            runs_at_began: 0,
            runs_at_converged: 0,
            node_writes: 0,
            other_writes: 0,
            node_writes_before: 0,
            other_writes_before: 0,
            floors_raised: 0,
            floors_raised_before: 0,
            floors_to_raise: 0,
            last_other: None,
            last_other_at: 0,
            last_joined_at: 0,
            trial: None,
        }
    }

    /// Something was written that was sent then; of a group's record, also what was there before.
    pub(crate) fn wrote(&mut self, at: Instant, sent_at: Instant, swap: &Swap, before: Option<&Stored>) {
        match swap.key {
            // The fenced node may have worked for the others: another node takes over at its next listing.
            Key::Node(_) if self.began && swap.value.as_deref().is_some_and(is_fence) => {
                self.last_joined_at = at;
            }
            // It was under way when the faults ended, and says nothing of the time after them.
            _ if self.began && sent_at < self.began_at => {}
            Key::Node(_) if swap.value.is_some() => self.node_writes += 1,
            // The records of those long gone are removed when their time has come.
            Key::Node(_) => {}
            // Before that, the floor of each group where they held something is raised to what they published.
            Key::Group(_) if raises_floor_only(before, swap) => self.floors_raised += 1,
            _ => {
                self.other_writes += 1;
                self.last_other = Some(swap.key.clone());
                self.last_other_at = at;
            }
        }
    }

    /// A fault struck: what it may make slow is not held against the world until it has had its time.
    pub(crate) fn struck(&mut self, at: Instant, fault: &Fault) {
        if let Fault::Resize { .. } = fault {
            self.resized_at = at;
        }
        if disturbs(fault) {
            let over_at = at + fault.lasts().or(fault.holds_up()).unwrap_or(0);
            self.calm_from = self.calm_from.max(over_at + self.bounds.calm_after);
        }
    }
}

fn raises_floor_only(before: Option<&Stored>, swap: &Swap) -> bool {
    let decode = |value: &[u8]| GroupRecord::decode(value).ok();
    let Some((before, after)) =
        before.and_then(|it| decode(&it.value)).zip(swap.value.as_deref().and_then(decode))
    else {
        return false;
    };
    let raised = GroupRecord {
        epoch_floor: after.epoch_floor,
        write: after.write,
        written_unix_ms: after.written_unix_ms,
        // A newer version adds fields of its own.
        extra: after.extra.clone(),
        ..before.clone()
    };
    after.epoch_floor > before.epoch_floor && raised == after
}

fn is_fence(record: &[u8]) -> bool {
    mentions(record, b"\"state\":\"fenced\"")
}

/// Whether a fault may make others wait. What people ask for does not.
fn disturbs(fault: &Fault) -> bool {
    !matches!(
        fault,
        Fault::Leave { .. }
            | Fault::Weight { .. }
            | Fault::Resize { .. }
            | Fault::Pin { .. }
            | Fault::Drain { .. }
            | Fault::Freeze { .. }
            | Fault::Release { .. }
            | Fault::Refuse { .. }
            | Fault::WallStep { .. }
            | Fault::ClockRate { .. }
            | Fault::MassLeave { how: Shutdown::Graceful, .. }
            | Fault::RollingRestart { how: Shutdown::Graceful, .. }
            | Fault::Downgrade { how: Shutdown::Graceful, .. }
    )
}

impl World {
    pub(crate) fn look(&mut self) -> Judged {
        if self.healing.began && self.raised {
            // A `meta` that was damaged when its operator changed it back is restored as it was before that.
            self.raise();
        }
        self.put(LOOK_EVERY, WorldEvent::Look);
        self.observe(Observation::Moment)?;
        self.look_for_frozen();
        if !self.healing.began && self.at >= self.scenario.faults_for {
            self.begin_to_heal()?;
        }
        invariants::no_stabiliser_delays_unowned::judge(self)?;
        if self.healing.began {
            self.judge_healing()?;
        }
        Ok(())
    }

    /// All faults are over, whatever they were.
    fn begin_to_heal(&mut self) -> Judged {
        self.tell("FAULT", || "all faults are over; healing begins".to_owned());
        self.healing.began = true;
        self.healing.began_at = self.at;
        self.healing.runs_at_began = self.oracle.state.runs.len();
        self.healing.loss = self.records.worst_loss();
        self.awaiting_effect.clear();
        self.healing.calm_from = self.healing.calm_from.min(self.at + self.healing.bounds.calm_after);
        for process in 0..self.processes.len() {
            if let Some(pause) = self.processes[process].paused {
                self.resume(process, pause)?;
            }
            self.processes[process].pause_at_check = None;
            self.processes[process].pause_at_step = None;
            self.processes[process].pause_at_begin = None;
        }
        for index in std::mem::take(&mut self.active_faults) {
            self.active_faults.insert(index);
            self.end_fault(index)?;
        }
        self.impairments.clear();
        for slot in &mut self.slots {
            slot.stalled_until = 0;
            slot.gate_slow_until = 0;
        }
        // Another node must be left to take what is drained.
        if self.operator_rng.permille(300) && self.scenario.nodes > 1 {
            let slot = self.operator_rng.below(self.scenario.nodes as u64) as usize;
            // One may stay away: with fewer than three, none would be left to take what is handed over.
            self.healing.drained = (self.scenario.nodes > 2).then(|| self.slots[slot].name.clone());
        }
        self.mend();
        self.fill_slots()
    }

    /// Most nodes that are away come back, and there is room for all shards.
    fn fill_slots(&mut self) -> Judged {
        let keep_away = if self.operator_rng.permille(500) {
            self.operator_rng.below(self.scenario.nodes as u64)
        } else {
            99
        };
        for slot in 0..self.scenario.nodes {
            self.slots[slot].away = slot as u64 == keep_away && self.scenario.nodes > 2;
            self.spawn(slot)?;
        }
        let drained = self.healing.drained.clone();
        let useful = |world: &World, slot: usize| {
            let slot_state = &world.slots[slot];
            slot_state.process.is_some()
                && !slot_state.away
                && slot_state.weight != Some(0)
                && Some(&slot_state.name) != drained.as_ref()
        };
        let limited = (0..self.scenario.nodes).any(|slot| matches!(self.slots[slot].capacity, Some(Some(_))));
        if limited || !(0..self.scenario.nodes).any(|slot| useful(self, slot)) {
            // Until now there may have been no room.
            self.healing.calm_from = self.healing.calm_from.max(self.at);
            for slot in 0..self.scenario.nodes {
                self.slots[slot].capacity = None;
                self.slots[slot].weight = Some(100);
                self.command(slot, Command::Capacity(None))?;
                self.command(slot, Command::Weight(100))?;
            }
        }
        Ok(())
    }

    pub(crate) fn judge_healing(&mut self) -> Judged {
        if let Some(trial) = self.healing.trial.take() {
            return self.watch_outage(trial);
        }
        let since = self.at - self.healing.began_at;
        if let Some(converged_at) = self.healing.converged_at {
            if self.at < converged_at + self.healing.bounds.quiet {
                return Ok(());
            }
            let census = self.census();
            invariants::no_flapping_when_quiet::judge(self, &census)?;
            invariants::writes_at_rest_are_renewals::judge(self, &census)?;
            invariants::moves_within_bound::judge(self)?;
            self.healing.done = !self.begins_outage(&census)?;
            return Ok(());
        }
        let census = self.census();
        if self.healing.owned_at.is_none() && census.all_owned() {
            self.healing.owned_at = Some(self.at);
            self.stats.owned_after = since;
        }
        self.note_owned(&census);
        invariants::every_shard_owned::judge(self, &census)?;
        let changed_at = self.healing.last_other_at.max(self.healing.last_joined_at);
        let rested = self.at > changed_at + self.healing.bounds.rest;
        if since > self.healing.bounds.rest && rested && census.has_converged(self) {
            self.converge(&census)?;
        } else if since > self.owned_within(self.healing.loss) + self.healing.bounds.converged {
            invariants::nobody_stays_detached::judge(self, &census)?;
            invariants::drains_finish::judge(self, &census)?;
            invariants::balance_within_bound::judge_plan_reached(self, &census)?;
        }
        Ok(())
    }

    pub(crate) fn note_owned(&mut self, census: &Census) {
        self.healing.owned_last.resize(census.shards.len(), self.healing.began_at);
        self.healing.losses.resize(census.shards.len(), Loss::Nothing);
        let receivers = if census.all_owned() { Loss::Nothing } else { self.loss_of_receivers(census) };
        for (index, owned) in census.shards.iter().enumerate() {
            if owned.holder.is_some() {
                self.healing.owned_last[index] = self.at;
                self.healing.losses[index] = Loss::Nothing;
            } else {
                let loss = self.healing.losses[index].max(self.loss_of(owned.shard)).max(receivers);
                self.healing.losses[index] = loss;
                self.healing.loss = self.healing.loss.max(loss);
            }
        }
    }

    /// What keeps others from a shard for longer than usual: what was done to its record, or to that of its holder.
    pub(crate) fn loss_of(&self, shard: usize) -> Loss {
        let loss = self.records.loss(shard);
        let RecordState::Held { node, session } = &self.records.get(shard).state else { return loss };
        let holder = self.store.get(&Key::Node(node.clone()));
        let known = match holder.map(|stored| NodeRecord::decode(&stored.value)) {
            Some(Ok(record)) => record.session == *session || !record.unproved,
            Some(Err(_)) | None => false,
        };
        if known { loss } else { loss.max(Loss::Lost) }
    }

    /// What keeps all nodes from all shards: no node takes shards now, and those that would still wait for a session of
    /// their own whose record was lost.
    fn loss_of_receivers(&self, census: &Census) -> Loss {
        let receives = |process: &usize| {
            let node = &self.processes[*process];
            node.session_state == SessionState::Attached
                && Some(&node.name) != self.healing.drained.as_ref()
                && self.slots[node.slot].weight != Some(0)
        };
        let has_lost = |process: &usize| {
            let node = &self.processes[*process];
            let stored = self.store.get(&Key::Node(node.name.clone()));
            node.session_state != SessionState::Attached
                && stored.is_none_or(|stored| NodeRecord::decode(&stored.value).is_err())
        };
        let waits = !census.alive.iter().any(receives) && census.alive.iter().any(has_lost);
        if waits { Loss::Lost } else { Loss::Nothing }
    }

    /// From when all faults are over until a shard is owned to whose record this was done.
    pub(crate) fn owned_within(&self, loss: Loss) -> Instant {
        self.healing.bounds.owned + self.healing.bounds.longer(loss)
    }

    fn converge(&mut self, census: &Census) -> Judged {
        self.tell("FAULT", || "the plan is reached".to_owned());
        self.stats.converged_after = self.at - self.healing.began_at;
        self.healing.converged_at = Some(self.at);
        self.healing.runs_at_converged = self.oracle.state.runs.len();
        self.healing.node_writes_before = self.healing.node_writes;
        self.healing.other_writes_before = self.healing.other_writes;
        self.healing.floors_raised_before = self.healing.floors_raised;
        self.healing.floors_to_raise = self.floors_to_raise();
        invariants::zones_are_kept::judge(self, census)?;
        invariants::balance_within_bound::judge(self, census)
    }

    /// How often floors of groups may be raised at rest: once per group for each session that is over and whose record is
    /// still there.
    fn floors_to_raise(&self) -> u64 {
        let (mut gone, mut groups) = (0, 0);
        for (key, stored) in self.store.records() {
            match key {
                Key::Group(_) => groups += 1,
                Key::Node(_)
                    if NodeRecord::decode(&stored.value).is_ok_and(|node| !node.state.is_alive()) =>
                {
                    gone += 1
                }
                _ => {}
            }
        }
        gone * groups
    }

    /// Whether the acquire gate refuses nothing.
    pub(crate) fn gate_is_open(&self) -> bool {
        self.scenario.gate == Gate::Open || self.healing.began
    }
}
