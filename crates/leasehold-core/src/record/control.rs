use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Extra, FORMAT, Record, record};
use crate::name::{Epoch, NodeName, ShardId, WriteId};

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
            release: BTreeMap::new(),
            unquarantine: BTreeMap::new(),
            written_unix_ms: 0,
            extra: Extra::new(),
        }
    }
}

impl Record for Control {
    record!();
}
