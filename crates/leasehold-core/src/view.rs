//! What a node knows and does, as plain data: the one source for the API, the program, the pages and the
//! simulator's checks.

use serde::Serialize;

use crate::name::{Epoch, GroupName, NodeName, SessionId, ShardId};
use crate::record::{NodeState, Policy, ShardSet};

/// Everything that a node, or a client that only watches, knows at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct View {
    /// The node itself; a client that only watches has none.
    pub me: Option<Me>,
    /// Whether a first listing has arrived, so that the rest means something.
    pub ready: bool,
    /// Why voluntary moves are frozen, if they are.
    pub frozen: Option<String>,
    /// The nodes, ordered by name, with those that went not long ago.
    pub nodes: Vec<NodeView>,
    /// The groups, ordered by name.
    pub groups: Vec<GroupView>,
    /// The shards, ordered by group and name.
    pub shards: Vec<ShardView>,
    /// What somebody should look at.
    pub problems: Vec<Problem>,
}

/// The node that the view is from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Me {
    /// Its name.
    pub node: NodeName,
    /// Its session, if it has one.
    pub session: Option<SessionId>,
    /// `joining`, `attached`, `degraded`, `detached`, `recovering` or `left`.
    pub standing: &'static str,
    /// For how long, in milliseconds.
    pub standing_for_ms: u64,
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

/// A node as the store shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodeView {
    /// Its name.
    pub name: NodeName,
    /// Its session.
    pub session: SessionId,
    /// Alive or over.
    pub state: NodeState,
    /// Whether it takes new shards.
    pub accepting: bool,
    /// Its weight in the plan, after what operators asked for.
    pub weight: u32,
    /// Its capacity in all.
    pub capacity: Option<u32>,
    /// Where it stands.
    pub zone: Option<String>,
    /// Where callers reach it.
    pub address: Option<String>,
    /// Its ttl, in milliseconds.
    pub ttl_ms: u64,
    /// For how long its record has not changed, as we saw it, in milliseconds.
    pub silent_for_ms: u64,
    /// Shards that it holds.
    pub shards: usize,
    /// Shards that the plan gives to it.
    pub wanted: usize,
    /// Whether it plans with the same view as we do.
    pub agrees: bool,
    /// What operators asked of it.
    pub wishes: Vec<String>,
}

/// A group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GroupView {
    /// Its name.
    pub group: GroupName,
    /// Its shards.
    pub shards: ShardSet,
    /// Its rules.
    pub policy: Policy,
    /// `store` or `static`: where the settings are from.
    pub source: &'static str,
    /// Shards that nobody holds.
    pub unowned: usize,
}

/// A shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
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
    /// What it is doing.
    pub state: ShardPhase,
}

/// A shard's id, as two fields.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ShardKey(pub ShardId);

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
    /// Its work did not stop in time here.
    Stuck,
    /// Its work ended here and will be started again.
    Backoff,
    /// Its work kept crashing; it is held and not run.
    Quarantined,
    /// It is being given up here.
    Releasing,
    /// Nobody should hold it.
    Retired,
    /// Its record is damaged: it counts as held by an unknown session.
    Corrupt,
}

/// Something that somebody should look at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// A fixed word: `corrupt_record`, `no_room`, `stuck`, `quarantined`, `silent_node`, `double_start`, …
    pub kind: &'static str,
    /// What it is about: a shard, a node, a key.
    pub subject: String,
    /// What is wrong, and what to do.
    pub message: String,
}
