//! The records that Leasehold keeps in a store: versioned JSON, readable by people, with unknown fields kept.
//!
//! Every record carries a fresh random `write` id, so that a write can be recognised when its answer was lost, and
//! so that two writes never have the same bytes. Times in records (`*_unix_ms`) are for people to read; no rule
//! looks at them.

mod control;
mod endings;
mod group;
mod meta;
mod node;
mod published;
mod shard;
mod slot_set;
mod slots;

use serde::{Serialize, de::DeserializeOwned};
use std::collections::BTreeMap;

pub use control::{Control, DrainRequest};
pub use endings::{FailurePolicy, FinishPolicy, WorkState};
pub use group::{BALANCE_PERMILLE, GroupRecord, Policy, SLOTS_MAX, ShardSet, ZoneRule, group_settings};
pub use meta::{Meta, MetaMark, MetaState};
pub use node::{Heartbeat, NodeRecord, NodeState, Outage, Report, Served};
pub use published::{Published, PublishedGroup, ShardList};
pub use shard::{Holder, MoveReason, ShardRecord, ShardState};
pub use slot_set::SlotSet;
pub use slots::Slots;

use crate::name::{Epoch, WriteId};

/// The version of the record format that this code writes, and the newest that it reads.
pub const FORMAT: u32 = 1;

/// The newest placement algorithm that this code knows.
pub const ALGORITHM: u32 = 1;

/// The protocol versions that this code speaks, oldest and newest.
pub const PROTOCOL: (u32, u32) = (1, 1);

fn protocol_one() -> (u32, u32) {
    (1, 1)
}

/// The highest epoch that a record may carry: what every JSON reader can still hold exactly. It is the last one, so a
/// shard that has it is never run again; 2^53 starts of one shard cannot happen, only damage can.
pub const EPOCH_MAX: Epoch = Epoch(1 << 53);

/// A day: no session lives longer without a renewal.
const TTL_MS_MAX: u64 = 86_400_000;

/// Room for a usual node record, so that it is written without being moved.
const USUAL_BYTES: usize = 1024;

/// Fields that a newer version wrote and that this one keeps as they are.
pub type Extra = BTreeMap<String, serde_json::Value>;

/// Why a stored value is not the record that belongs there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// Not JSON, or not of this shape.
    #[error("not a Leasehold record: {0}")]
    Malformed(String),
    /// Written by a newer version.
    #[error("format {found} is newer than this version supports ({FORMAT}): upgrade this node")]
    TooNew {
        /// The format of the record.
        found: u32,
    },
    /// It asks for a placement algorithm of a newer version.
    #[error(
        "placement algorithm {found} is newer than this version supports ({ALGORITHM}): upgrade this node"
    )]
    UnknownAlgorithm {
        /// The algorithm.
        found: u32,
    },
    /// Its epoch is the last one, so that no start can have a higher one.
    #[error(
        "epoch {EPOCH_MAX} is the last one, and no epoch is used twice: no node runs the shard until its record is \
         repaired"
    )]
    NoEpochLeft,
    /// Right shape, impossible content.
    #[error("invalid content: {0}")]
    Impossible(String),
}

impl RecordError {
    /// Whether a newer version wrote it, or it leaves nothing higher to write. Then this version never writes over it.
    pub fn is_too_new(&self) -> bool {
        self.is_newer() || matches!(self, RecordError::NoEpochLeft)
    }

    /// Whether a newer version wrote it: then it is sound, and only this version cannot read it.
    pub fn is_newer(&self) -> bool {
        match self {
            RecordError::TooNew { .. } | RecordError::UnknownAlgorithm { .. } => true,
            RecordError::Malformed(_) | RecordError::NoEpochLeft | RecordError::Impossible(_) => false,
        }
    }

    fn impossible(what: impl Into<String>) -> Self {
        RecordError::Impossible(what.into())
    }
}

/// What all records have in common.
pub trait Record: Serialize + DeserializeOwned {
    /// The format that it was written in.
    fn format(&self) -> u32;
    /// The id of the write that produced this state.
    fn write(&self) -> WriteId;
    /// Gives it the id of another write.
    fn set_write(&mut self, write: WriteId);
    /// Refuses content that no version could have written, and what only a newer version understands.
    fn validate(&self) -> Result<(), RecordError> {
        Ok(())
    }

    /// The record as it is stored.
    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(USUAL_BYTES);
        serde_json::to_writer(&mut bytes, self).expect("records are plain data with text keys");
        bytes
    }

    /// Reads a stored value, from whichever writer.
    fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        // One check for non-ASCII bytes is faster than a check in every string.
        let read = match std::str::from_utf8(bytes) {
            Ok(text) => serde_json::from_str(text),
            Err(_) => serde_json::from_slice(bytes),
        };
        let record: Self = read.map_err(|error| unreadable(bytes, &error))?;
        if record.format() > FORMAT {
            return Err(RecordError::TooNew { found: record.format() });
        }
        record.validate()?;
        Ok(record)
    }
}

/// Why it is not of our shape: a newer version may have another one.
fn unreadable(bytes: &[u8], error: &serde_json::Error) -> RecordError {
    #[derive(serde::Deserialize)]
    struct Head {
        format: u32,
    }
    match serde_json::from_slice::<Head>(bytes) {
        Ok(head) if head.format > FORMAT => RecordError::TooNew { found: head.format },
        _ => RecordError::Malformed(error.to_string()),
    }
}

/// A floor must leave an epoch above it.
fn check_floor(epoch_floor: Epoch) -> Result<(), RecordError> {
    if epoch_floor >= EPOCH_MAX {
        return Err(RecordError::impossible(format!(
            "epoch_floor {epoch_floor} is too high: no epoch is above it"
        )));
    }
    Ok(())
}

fn check_ttl(field: &str, ttl_ms: u64) -> Result<(), RecordError> {
    if !(1..=TTL_MS_MAX).contains(&ttl_ms) {
        return Err(RecordError::impossible(format!("{field} {ttl_ms} is not between 1 and {TTL_MS_MAX}")));
    }
    Ok(())
}

macro_rules! record {
    () => {
        fn format(&self) -> u32 {
            self.format
        }
        fn write(&self) -> crate::name::WriteId {
            self.write
        }
        fn set_write(&mut self, write: crate::name::WriteId) {
            self.write = write;
        }
    };
}
use record;
