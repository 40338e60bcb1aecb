use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Extra, FORMAT, Record, record};
use crate::name::{Epoch, GroupName, NodeName, ShardId, WriteId};

/// `control`: what operators asked for. Nodes read it and act; they never write it, and operators never write the
/// nodes' own records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Control {
    /// The format of this record.
    pub format: u32,
    /// The id of the write that produced this state.
    pub write: WriteId,
    /// Drained nodes: they hand over all shards and take no new ones.
    #[serde(default)]
    pub drain: BTreeMap<NodeName, DrainRequest>,
    /// Weights that replace the nodes' own.
    #[serde(default)]
    pub weights: BTreeMap<NodeName, u32>,
    /// Pinned shards and their nodes; a pin counts while the node is live.
    #[serde(default)]
    pub pins: BTreeMap<ShardId, NodeName>,
    /// Voluntary moves are suspended; the text says by whom and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub freeze: Option<String>,
    /// Groups whose voluntary moves are suspended; the text says by whom and why. Versions that do not know this field
    /// go on moving.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub freeze_groups: BTreeMap<GroupName, String>,
    /// Shards that their holder should give up once: a start at or below this epoch is released.
    #[serde(default)]
    pub release: BTreeMap<ShardId, Epoch>,
    /// Shards that should run again although their work kept crashing at or below this epoch.
    #[serde(default)]
    pub unquarantine: BTreeMap<ShardId, Epoch>,
    /// When it was written, for people.
    #[serde(default)]
    pub written_unix_ms: u64,
    /// Fields of newer versions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// An operator's request to drain a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainRequest {
    /// Who asked for it and why, for people.
    #[serde(default)]
    pub note: String,
    /// Fields of newer versions.
    #[serde(flatten)]
    pub extra: Extra,
}

impl Control {
    /// No command is active.
    pub fn empty(write: WriteId) -> Self {
        Control {
            format: FORMAT,
            write,
            drain: BTreeMap::new(),
            weights: BTreeMap::new(),
            pins: BTreeMap::new(),
            freeze: None,
            freeze_groups: BTreeMap::new(),
            release: BTreeMap::new(),
            unquarantine: BTreeMap::new(),
            written_unix_ms: 0,
            extra: Extra::new(),
        }
    }
}

impl Control {
    /// Why voluntary moves of a group are suspended, if they are.
    pub fn frozen(&self, group: &GroupName) -> Option<&str> {
        self.freeze.as_ref().or_else(|| self.freeze_groups.get(group)).map(String::as_str)
    }
}

impl Record for Control {
    record!();
}
