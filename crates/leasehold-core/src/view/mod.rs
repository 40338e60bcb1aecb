//! What a node knows and does, as plain data: the one source for the API, the program, the pages and the
//! simulator's checks.

mod look;
mod problems;
mod silence;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::mirror::Mirror;
use crate::name::{Epoch, GroupName, NodeName, SessionId, ShardId};
use crate::notice::SessionState;
use crate::record::{NodeRecord, NodeState, Outage, Policy, ShardSet};

pub use look::{of_mirror, whereabouts};
pub(crate) use problems::stuck;
pub use problems::{Problem, ProblemKind, unusable};

/// Everything that a node, or a client that only watches, knows at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct View {
    /// The node itself; a client that only watches has none.
    pub me: Option<Me>,
    /// Whether a first listing has arrived, so that the rest means something.
    pub ready: bool,
    /// Why voluntary moves are frozen, if they are.
    pub frozen: Option<String>,
    /// The nodes, ordered by name as people count, with those that went not long ago.
    pub nodes: Vec<NodeView>,
    /// The groups, ordered by name as people count.
    pub groups: Vec<GroupView>,
    /// The shards, ordered by group and name, slots by their number.
    pub shards: Vec<ShardView>,
    /// Problems that need an operator.
    pub problems: Vec<Problem>,
}

/// The node that the view is from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Me {
    /// Its name.
    pub node: NodeName,
    /// Its session, if it has one.
    pub session: Option<SessionId>,
    /// The state of its session.
    pub session_state: SessionState,
    /// For how long, in milliseconds.
    pub session_state_for_ms: u64,
    /// Why, in words.
    pub cause: String,
    /// What it waits for, if it does.
    pub waiting_for: Option<String>,
    /// How long until its work is told to stop unless a renewal is confirmed, in milliseconds.
    pub stop_in_ms: Option<u64>,
    /// Renewals that failed in a row.
    pub renewals_failed: u32,
    /// Whether it is handing everything over.
    pub draining: bool,
    /// Shards that it holds.
    pub held: usize,
    /// Shards that the plan gives to it.
    pub wanted: usize,
}

impl Me {
    /// A node of this name that has just started.
    pub fn new(node: NodeName) -> Self {
        Me {
            node,
            session: None,
            session_state: SessionState::Joining,
            session_state_for_ms: 0,
            cause: String::new(),
            waiting_for: None,
            stop_in_ms: None,
            renewals_failed: 0,
            draining: false,
            held: 0,
            wanted: 0,
        }
    }
}

/// A node as the store shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct NodeView {
    /// Its name.
    pub name: NodeName,
    /// Its session.
    pub session: SessionId,
    /// What it is doing, or how it ended.
    pub state: NodePhase,
    /// Whether it takes new shards.
    pub accepting: bool,
    /// Its weight in the plan, with operators' overrides applied.
    pub weight: u32,
    /// Its total capacity.
    pub capacity: Option<u32>,
    /// Its zone.
    pub zone: Option<String>,
    /// The address at which callers reach it.
    pub address: Option<String>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its ttl, in milliseconds.
    pub ttl_ms: u64,
    /// Whether we have seen it renew. A record alone does not show whether it is still renewed.
    pub seen_to_renew: bool,
    /// For how long its record has not changed, as we saw it, in milliseconds.
    pub silent_for_ms: u64,
    /// Its silence, once it has missed two renewals.
    pub silence: Option<Silence>,
    /// How long ago it renewed, according to its clock and ours, in milliseconds: a hint for people.
    pub renewed_ago_ms: Option<u64>,
    /// The state of its session at its last renewal if it was `recovering`; otherwise `None`.
    pub session_state: Option<String>,
    /// When its process last had no session.
    pub outage: Option<Outage>,
    /// Shards that it holds.
    pub shards: usize,
    /// Shards that the plan gives to it.
    pub wanted: usize,
    /// Whether it plans with the same view as we do.
    pub agrees: bool,
    /// The operators' commands for it.
    pub commands: Vec<String>,
}

/// The silence of a node that has missed at least two renewals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Silence {
    /// Since its last renewal, in milliseconds.
    pub for_ms: u64,
    /// Whether we watched it for that long, or for two renewals at least. Otherwise its clock and ours say so, and they may be
    /// wrong.
    pub watched: bool,
}

/// What a node is doing, or how it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum NodePhase {
    /// It takes shards.
    Active,
    /// It keeps what it has, and takes no more.
    NotAccepting,
    /// It hands everything over.
    Draining,
    /// It was asked to hand everything over, and has.
    Drained,
    /// It has missed two renewals or more: it hangs, is gone, or cannot reach the store. Its session goes on until it is
    /// proved to be over, and its shards stay with it until then.
    Silent,
    /// It left by itself.
    Left,
    /// Its session was proved to be over.
    Fenced,
    /// The kernel proves that its process is gone; nobody has fenced its session yet.
    Gone,
}

impl NodePhase {
    /// Whether its session goes on, as far as we know.
    pub fn is_alive(self) -> bool {
        !matches!(self, NodePhase::Left | NodePhase::Fenced | NodePhase::Gone)
    }

    fn of(record: &NodeRecord, mirror: &Mirror, drain: DrainAsked, held: usize) -> NodePhase {
        match record.state {
            NodeState::Left => NodePhase::Left,
            NodeState::Fenced => NodePhase::Fenced,
            _ if mirror.is_proved_over(&record.session) => NodePhase::Fenced,
            _ if mirror.is_process_gone(&record.session) => NodePhase::Gone,
            _ if drain == DrainAsked::Yes && held == 0 => NodePhase::Drained,
            NodeState::Draining => NodePhase::Draining,
            NodeState::Active if drain == DrainAsked::Yes => NodePhase::Draining,
            NodeState::Active if record.accepting => NodePhase::Active,
            NodeState::Active => NodePhase::NotAccepting,
        }
    }
}

impl std::fmt::Display for NodePhase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            NodePhase::Active => "active",
            NodePhase::NotAccepting => "not accepting",
            NodePhase::Draining => "draining",
            NodePhase::Drained => "drained",
            NodePhase::Silent => "silent",
            NodePhase::Left => "left",
            NodePhase::Fenced => "fenced",
            NodePhase::Gone => "gone",
        })
    }
}

/// Whether we hear of other nodes: who hears of nobody cannot call anybody silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hearing {
    /// The store answers our reads.
    Hears,
    /// Our own reads fail.
    Deaf,
}

/// Whether an operator asked a node to hand everything over.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DrainAsked {
    Yes,
    No,
}

/// A group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct GroupView {
    /// Its name.
    pub group: GroupName,
    /// Its shards.
    pub shards: ShardSet,
    /// Its rules.
    pub policy: Policy,
    /// Where the settings are from.
    pub source: SettingsSource,
    /// Shards that nobody holds.
    pub unowned: usize,
    /// Shards whose holder is silent.
    pub at_risk: usize,
    /// Why an operator froze the voluntary moves of this group, if that is so.
    pub frozen: Option<String>,
}

/// Where the settings of a group are from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SettingsSource {
    /// From the store: they hold for all nodes.
    Store,
    /// From this node's own configuration, because the store has none.
    Static,
}

impl std::fmt::Display for SettingsSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            SettingsSource::Store => "store",
            SettingsSource::Static => "static",
        })
    }
}

/// A shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ShardView {
    /// Its id.
    #[serde(flatten)]
    pub id: ShardKey,
    /// Who holds it, if its session is not known to be dead.
    pub holder: Option<NodeName>,
    /// The session of the holder.
    pub session: Option<SessionId>,
    /// Its epoch.
    pub epoch: Epoch,
    /// Who should hold it.
    pub wanted: Option<NodeName>,
    /// Where an operator pinned it to.
    pub pinned_to: Option<NodeName>,
    /// The node that left to restart and for which nobody else takes it yet.
    pub kept_for: Option<NodeName>,
    /// What it is doing.
    pub state: ShardPhase,
    /// Whether its holder is silent: another node takes the shard over unless the holder renews in time.
    pub at_risk: bool,
}

/// A shard's id, as two fields, in the order in which people count: slot 2 before slot 10.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardKey(pub ShardId);

impl Ord for ShardKey {
    fn cmp(&self, other: &ShardKey) -> std::cmp::Ordering {
        self.0.natural_cmp(&other.0)
    }
}

impl PartialOrd for ShardKey {
    fn partial_cmp(&self, other: &ShardKey) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Serialize for ShardKey {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let mut fields = serializer.serialize_struct("shard", 2)?;
        fields.serialize_field("group", &self.0.group)?;
        fields.serialize_field("shard", &self.0.name)?;
        fields.end()
    }
}

/// What a shard is doing. The finer states are only known of shards that this node holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ShardPhase {
    /// Nobody holds it.
    Unowned,
    /// This node is trying to get it.
    Claiming,
    /// A live session holds it.
    Held,
    /// Its work runs here.
    Running,
    /// Its work was told to stop here.
    Stopping,
    /// Its work did not stop in time.
    Stuck,
    /// Its work ended here and will be started again.
    Backoff,
    /// Its work kept failing; it is held and not run.
    Quarantined,
    /// Its work has finished; it is held and not run again.
    Done,
    /// It is being given up here.
    Releasing,
    /// Nobody should hold it.
    Retired,
    /// Its record is damaged: it counts as held by an unknown session.
    Corrupt,
}

impl std::fmt::Display for ShardPhase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            ShardPhase::Unowned => "unowned",
            ShardPhase::Claiming => "claiming",
            ShardPhase::Held => "held",
            ShardPhase::Running => "running",
            ShardPhase::Stopping => "stopping",
            ShardPhase::Stuck => "stuck",
            ShardPhase::Backoff => "backoff",
            ShardPhase::Quarantined => "quarantined",
            ShardPhase::Done => "done",
            ShardPhase::Releasing => "releasing",
            ShardPhase::Retired => "retired",
            ShardPhase::Corrupt => "corrupt",
        })
    }
}
