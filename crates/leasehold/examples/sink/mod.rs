//! The target of the examples' writes: a table of numbers, one per shard, that refuses late writers.
//!
//! A write carries the epoch of its grant. The sink keeps the highest epoch that has written and refuses any lower one, so that a
//! write that left a process in time and arrives late changes nothing. In a database this is one condition in the statement
//! (`fenced_sql.rs`); in an object store or a service of your own it is a field that the receiver compares.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use leasehold::{Epoch, ShardId};

/// Numbers by shard, each with the highest epoch that has written it.
#[derive(Debug, Default)]
pub(crate) struct Sink(Mutex<BTreeMap<ShardId, (Epoch, u64)>>);

/// The write came from a holder that has been replaced.
#[derive(Debug, thiserror::Error)]
#[error("{shard}: epoch {epoch} is too old, {newest} has written already: another process holds the shard")]
pub(crate) struct Stale {
    shard: ShardId,
    epoch: Epoch,
    newest: Epoch,
}

impl Sink {
    /// Adds to the number of a shard, unless a later holder has written; returns the sum. Comparing and writing are one step.
    pub(crate) fn add(&self, shard: &ShardId, epoch: Epoch, amount: u64) -> Result<u64, Stale> {
        let mut rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (newest, sum) = rows.entry(shard.clone()).or_insert((epoch, 0));
        if epoch < *newest {
            return Err(Stale { shard: shard.clone(), epoch, newest: *newest });
        }
        (*newest, *sum) = (epoch, *sum + amount);
        Ok(*sum)
    }
}
