use std::cmp::Ordering;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{EPOCH_MAX, Extra, Record, RecordError, WorkState, check_ttl, record};
use crate::name::{Epoch, NodeName, SessionId, ShardId, WriteId};

/// `shards/<group>/<shard>`: the holder of a shard. Written only when that changes, never deleted while in use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardRecord {
    /// The format of this record.
    pub format: u32,
    /// The id of the write that produced this state.
    pub write: WriteId,
    /// The shard.
    pub shard: ShardId,
    /// The epoch of the last start; of a vacant shard, of the start that ended.
    pub epoch: Epoch,
    /// Held, vacant or retired.
    pub state: ShardState,
    /// Whether its work is run.
    #[serde(default, skip_serializing_if = "WorkState::is_usual")]
    pub work: WorkState,
    /// Why it last moved.
    pub why: MoveReason,
    /// When it was written, for people.
    #[serde(default)]
    pub written_unix_ms: u64,
    /// Fields of newer versions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Whether and by which session a shard is held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ShardState {
    /// A session holds it, as long as that session is alive.
    Held {
        /// Which one.
        holder: Holder,
    },
    /// No node holds it.
    Vacant {
        /// The node that should take it next.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        successor: Option<NodeName>,
        /// For how long only the successor may take it (restart grace), in milliseconds, counted by each observer
        /// from when it first saw this record.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reserved_ms: Option<u64>,
    },
    /// A named shard that was disengaged, or a slot above the group's size: no node should hold it.
    Retired,
}

/// The session that holds a shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The node's name.
    pub node: NodeName,
    /// Its session.
    pub session: SessionId,
    /// The session's ttl in milliseconds, for the case that its node record is lost.
    pub ttl_ms: u64,
}

/// Why a shard last moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum MoveReason {
    /// It had no holder and the plan gave it to this node.
    Planned,
    /// Its holder was proved dead.
    Failover,
    /// The plan wants another holder.
    Rebalance,
    /// Its holder drains or leaves.
    Drain,
    /// Its holder leaves and comes back under the same name.
    Restart,
    /// Its holder could not prove its session in time.
    Detached,
    /// The planned node did not take it in time, so the next in rank did.
    Takeover,
    /// Its work ended, and it starts again under a new epoch.
    WorkEnded,
    /// Its work kept failing.
    Quarantined,
    /// Its work is done.
    Finished,
    /// Its own work asked for another node.
    SteppedDown,
    /// An operator asked for it.
    Operator,
    /// The shard is no longer engaged, or its group became smaller.
    Disengaged,
    /// The shard was engaged.
    Engaged,
    /// The record was corrupt, and no session could hold the shard any more.
    Repaired,
    /// It was claimed and given up again before it started.
    Unstarted,
    /// A reason that only a newer version knows.
    #[serde(other)]
    Other,
}

impl MoveReason {
    /// The word for it in records, logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            MoveReason::Planned => "planned",
            MoveReason::Failover => "failover",
            MoveReason::Rebalance => "rebalance",
            MoveReason::Drain => "drain",
            MoveReason::Restart => "restart",
            MoveReason::Detached => "detached",
            MoveReason::Takeover => "takeover",
            MoveReason::WorkEnded => "work_ended",
            MoveReason::Quarantined => "quarantined",
            MoveReason::Finished => "finished",
            MoveReason::SteppedDown => "stepped_down",
            MoveReason::Operator => "operator",
            MoveReason::Disengaged => "disengaged",
            MoveReason::Engaged => "engaged",
            MoveReason::Repaired => "repaired",
            MoveReason::Unstarted => "unstarted",
            MoveReason::Other => "other",
        }
    }
}

impl std::fmt::Display for MoveReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl ShardRecord {
    /// The session that it names as its holder.
    pub fn holder(&self) -> Option<&Holder> {
        match &self.state {
            ShardState::Held { holder } => Some(holder),
            ShardState::Vacant { .. } | ShardState::Retired => None,
        }
    }

    /// Whether its last holder gave it up, with all its work stopped. A node that claims it then need not look for others
    /// who may be running it: that holder had looked before it started.
    pub fn is_release(&self) -> bool {
        matches!(self.state, ShardState::Vacant { .. })
            && !matches!(self.why, MoveReason::Engaged | MoveReason::Unstarted | MoveReason::Repaired)
    }
}

impl Holder {
    /// The session's ttl.
    pub fn ttl(&self) -> Duration {
        Duration::from_millis(self.ttl_ms)
    }
}

impl Record for ShardRecord {
    record!();
    fn validate(&self) -> Result<(), RecordError> {
        if let Some(holder) = self.holder() {
            check_ttl("ttl_ms", holder.ttl_ms)?;
        }
        match self.epoch.cmp(&EPOCH_MAX) {
            Ordering::Less => Ok(()),
            Ordering::Equal => Err(RecordError::NoEpochLeft),
            Ordering::Greater => {
                Err(RecordError::impossible(format!("epoch {} is above {EPOCH_MAX}", self.epoch)))
            }
        }
    }
}
