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
    /// The write that made it so.
    pub write: WriteId,
    /// Nodes that should hand everything over and take nothing.
    #[serde(default)]
    pub drain: BTreeMap<NodeName, DrainWish>,
    /// Weights that replace the nodes' own.
    #[serde(default)]
    pub weights: BTreeMap<NodeName, u32>,
    /// Shards that should be on a certain node, while it is there.
    #[serde(default)]
    pub pins: BTreeMap<ShardId, NodeName>,
    /// No voluntary moves; the text says who wanted it and why.
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
    /// What newer versions wrote.
    #[serde(flatten)]
    pub extra: Extra,
}

/// An operator's wish to drain a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainWish {
    /// Who wanted it and why, for people.
    #[serde(default)]
    pub note: String,
    /// What newer versions wrote.
    #[serde(flatten)]
    pub extra: Extra,
}

impl Control {
    /// Nobody asked for anything.
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
