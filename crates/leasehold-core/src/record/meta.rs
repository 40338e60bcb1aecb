use serde::{Deserialize, Serialize};

use super::{Extra, Record, RecordError, check_floor, check_ttl, record};
use crate::name::{Epoch, Incarnation, WriteId};

/// `meta`: the incarnation of the namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// The format of this record.
    pub format: u32,
    /// The id of the write that produced this state.
    pub write: WriteId,
    /// Random; another one means that the store was emptied, restored or rolled back.
    pub incarnation: Incarnation,
    /// Whether shards may be claimed yet.
    pub state: MetaState,
    /// Counts the writes of this incarnation's `meta`.
    #[serde(default)]
    pub seq: u64,
    /// The longest ttl that a node of this namespace may use, in milliseconds.
    pub max_ttl_ms: u64,
    /// Every new epoch is above this.
    pub epoch_floor: Epoch,
    /// The store's own identity when this incarnation began; empty if it has none.
    pub generation: String,
    /// The protocol versions that a node must speak to join, oldest and newest.
    #[serde(default = "super::protocol_one")]
    pub protocol: (u32, u32),
    /// When it was written, for people.
    #[serde(default)]
    pub written_unix_ms: u64,
    /// Fields of newer versions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// What a node knows of `meta` and publishes in its own record, so that damage to `meta` loses nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MetaMark {
    /// See [`Meta::incarnation`].
    pub incarnation: Incarnation,
    /// See [`Meta::seq`].
    pub seq: u64,
    /// See [`Meta::state`].
    pub state: MetaState,
    /// See [`Meta::max_ttl_ms`].
    pub max_ttl_ms: u64,
    /// See [`Meta::epoch_floor`].
    pub epoch_floor: Epoch,
}

impl Meta {
    /// What a node publishes of it.
    pub fn mark(&self) -> MetaMark {
        MetaMark {
            incarnation: self.incarnation,
            seq: self.seq,
            state: self.state,
            max_ttl_ms: self.max_ttl_ms,
            epoch_floor: self.epoch_floor,
        }
    }

    /// Takes in what another node knows of this incarnation. Nothing in it ever falls, and what is open stays open.
    pub fn merge(&mut self, mark: &MetaMark) {
        if mark.incarnation != self.incarnation {
            return;
        }
        self.seq = self.seq.max(mark.seq);
        self.max_ttl_ms = self.max_ttl_ms.max(mark.max_ttl_ms);
        self.epoch_floor = self.epoch_floor.max(mark.epoch_floor);
        if mark.state == MetaState::Open {
            self.state = MetaState::Open;
        }
    }
}

/// Whether shards may be claimed in this incarnation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MetaState {
    /// Holders of an earlier incarnation may still be running: no node claims. A node that has seen this same record for
    /// `ttl_max × (1 + drift)` on its own clock opens the namespace.
    Settling,
    /// Shards may be claimed.
    Open,
}

impl Record for Meta {
    record!();
    fn validate(&self) -> Result<(), RecordError> {
        check_floor(self.epoch_floor)?;
        check_ttl("max_ttl_ms", self.max_ttl_ms)
    }
}
