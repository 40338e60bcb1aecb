//! One process of a story: its node, its work, and what is wrong with it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use leasehold_core::event::Deadlines;
use leasehold_core::store::{Key, Op, Request};
use leasehold_core::{Config, Epoch, Node, ShardId};

use crate::world::Happening;

/// A process that runs a node, or did.
pub(crate) struct Process {
    pub(crate) config: Config,
    /// `None` once it died.
    pub(crate) node: Option<Node>,
    /// Counts the processes of this name: what was meant for an earlier one is lost.
    pub(crate) life: u32,
    /// How far its wall clock is off, in milliseconds.
    pub(crate) wall_off_ms: i64,
    pub(crate) paused: bool,
    /// What happened to it while it was paused.
    pub(crate) held: Vec<Happening>,
    pub(crate) faults: Vec<Fault>,
    pub(crate) watching: bool,
    /// How much later than others it hears of changes.
    pub(crate) watch_late: std::time::Duration,
    pub(crate) works: BTreeMap<ShardId, RunningWork>,
    pub(crate) manners: BTreeMap<ShardId, Manner>,
    pub(crate) gates: BTreeMap<ShardId, GateManner>,
    /// For how many shards its gate has room, if it counts them.
    pub(crate) gate_room: Option<usize>,
    /// Shards that its gate has set room aside for.
    pub(crate) admitted: BTreeSet<ShardId>,
    pub(crate) deadlines: Deadlines,
    pub(crate) lost: bool,
    /// How often it was woken at one and the same moment.
    pub(crate) spins: u32,
}

/// Work that runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunningWork {
    pub(crate) epoch: Epoch,
    pub(crate) told_to_stop: bool,
}

/// What work does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Manner {
    /// Stops that long after it was told to.
    StopsAfter(Duration),
    /// Does not stop when told to.
    Refuses,
    /// Fails that long after every start.
    FailsAfter(Duration),
}

/// What the acquire gate says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GateManner {
    Take,
    TakeAfter(Duration),
    Refuse,
    Silent,
}

impl Process {
    /// What the gate says about a shard. One that counts takes what it has room for.
    pub(crate) fn gate_says(&mut self, shard: &ShardId) -> GateManner {
        if let Some(manner) = self.gates.get(shard) {
            return *manner;
        }
        let full = self.gate_room.is_some_and(|room| self.admitted.len() >= room);
        if full && !self.admitted.contains(shard) {
            return GateManner::Refuse;
        }
        self.admitted.insert(shard.clone());
        GateManner::Take
    }
}

/// Something wrong between a process and the store.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) kind: FaultKind,
    /// Which requests it hits: a word of [`Fault::hits`].
    pub(crate) only: Option<String>,
    /// How many more requests it hits.
    pub(crate) times: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultKind {
    /// Refused at once; nothing is applied.
    Cut,
    /// Nothing gets there and nothing comes back.
    Stall,
    /// Applied, but the answer is lost.
    LoseAnswers,
    /// Applied, but the answer says that the outcome is unknown.
    SayUnknown,
    /// Applied that much later, long after the process gave up.
    Delay(Duration),
    /// There and back takes this long.
    Slow(Duration),
    /// The answer comes twice.
    Twice,
    /// The store gets the request once more, that much later.
    Again(Duration),
    /// Applied at once, but the answer comes that much later, after the process gave up.
    Late(Duration),
}

impl Fault {
    pub(crate) fn hits(&self, request: &Request) -> bool {
        let only = match self.only.as_deref() {
            None => return true,
            Some("list") => return request.op == Op::List,
            Some("list-nodes") => return request.op == Op::ListNodes,
            Some("writes") => return matches!(request.op, Op::Swap(_)),
            Some("reads") => return !matches!(request.op, Op::Swap(_)),
            Some(only) => only,
        };
        let keys: Vec<&Key> = match &request.op {
            Op::Read(keys) => keys.iter().collect(),
            Op::List | Op::ListNodes => return false,
            Op::Swap(swaps) => swaps.iter().map(|swap| &swap.key).collect(),
        };
        let writes = only.strip_prefix("writes:");
        if writes.is_some() && !matches!(request.op, Op::Swap(_)) {
            return false;
        }
        keys.iter().any(|key| key.to_string().starts_with(writes.unwrap_or(only)))
    }

    /// Whether changes do not get through to the process either.
    pub(crate) fn hides_changes(&self) -> bool {
        matches!(self.kind, FaultKind::Cut | FaultKind::Stall) && self.only.is_none()
    }
}

impl Process {
    pub(crate) fn new(config: Config, life: u32) -> Self {
        Process {
            config,
            node: None,
            life,
            wall_off_ms: 0,
            paused: false,
            held: Vec::new(),
            faults: Vec::new(),
            watching: true,
            watch_late: std::time::Duration::ZERO,
            works: BTreeMap::new(),
            manners: BTreeMap::new(),
            gates: BTreeMap::new(),
            gate_room: None,
            admitted: BTreeSet::new(),
            deadlines: Deadlines::default(),
            lost: false,
            spins: 0,
        }
    }

    /// The fault that hits this request, if one does. One that was asked for a number of times wears off.
    pub(crate) fn fault_for(&mut self, request: &Request) -> Option<FaultKind> {
        let fault = self.faults.iter_mut().find(|fault| fault.times != Some(0) && fault.hits(request))?;
        if let Some(times) = &mut fault.times {
            *times -= 1;
        }
        Some(fault.kind)
    }

    pub(crate) fn hears_changes(&self) -> bool {
        self.node.is_some() && self.watching && !self.faults.iter().any(Fault::hides_changes)
    }
}
