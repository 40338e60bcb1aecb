//! The records that Leasehold keeps in a store: versioned JSON, readable by people, with unknown fields kept.
//!
//! Every record carries a fresh random `write` id, so that a write can be recognised when its answer was lost, and
//! so that two writes never have the same bytes. Times in records (`*_unix_ms`) are for people to read; no rule
//! looks at them.

mod control;
mod group;
mod meta;
mod node;
mod shard;

use serde::{Serialize, de::DeserializeOwned};
use std::collections::BTreeMap;

pub use control::{Control, DrainWish};
pub use group::{BALANCE_PERMILLE, GroupRecord, Policy, SLOTS_MAX, ShardSet, ZoneRule};
pub use meta::{Meta, MetaState};
pub use node::{NodeRecord, NodeState, Served};
pub use shard::{Holder, MoveReason, ShardRecord, ShardState};

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

/// The highest epoch that a record may carry: what every JSON reader can still hold exactly.
pub const EPOCH_MAX: Epoch = Epoch(1 << 53);

/// Fields that a newer version wrote and that this one keeps as they are.
pub type Extra = BTreeMap<String, serde_json::Value>;

/// Why a stored value is not the record that belongs there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Not JSON, or not of this shape.
    #[error("not a record of Leasehold: {0}")]
    Malformed(String),
    /// Written by a newer version.
    #[error("written in format {found}; this version reads up to {FORMAT}: upgrade this node")]
    TooNew {
        /// The format of the record.
        found: u32,
    },
    /// It asks for a placement algorithm of a newer version.
    #[error("asks for placement algorithm {found}; this version knows up to {ALGORITHM}: upgrade this node")]
    UnknownAlgorithm {
        /// The algorithm.
        found: u32,
    },
    /// Right shape, impossible content.
    #[error("impossible content: {0}")]
    Impossible(String),
}

impl RecordError {
    /// Whether a newer version wrote it. Then it is not damage, and this version never writes over it.
    pub fn is_too_new(&self) -> bool {
        matches!(self, RecordError::TooNew { .. } | RecordError::UnknownAlgorithm { .. })
    }
}

/// What all records have in common.
pub trait Record: Serialize + DeserializeOwned {
    /// The format that it was written in.
    fn format(&self) -> u32;
    /// The write that made it so.
    fn write(&self) -> WriteId;
    /// Stamps it as the work of another write.
    fn set_write(&mut self, write: WriteId);
    /// The placement algorithm that it asks for, if it asks for one.
    fn algorithm(&self) -> Option<u32> {
        None
    }
    /// Refuses content that no version could have written.
    fn validate(&self) -> Result<(), String> {
        Ok(())
    }

    /// The record as it is stored.
    fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("records are plain data with text keys")
    }

    /// Reads a stored value, whoever wrote it.
    fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        let record: Self = serde_json::from_slice(bytes).map_err(|error| unreadable(bytes, &error))?;
        if record.format() > FORMAT {
            return Err(RecordError::TooNew { found: record.format() });
        }
        if let Some(found) = record.algorithm().filter(|found| *found > ALGORITHM) {
            return Err(RecordError::UnknownAlgorithm { found });
        }
        record.validate().map_err(RecordError::Impossible)?;
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
