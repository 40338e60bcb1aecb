//! What user code writes to: it refuses an epoch below the highest that it has seen, as the user's own conditional
//! write should.

use std::collections::BTreeMap;

use leasehold_core::Epoch;

use crate::oracle::{Fence, Observation};
use crate::sabotage::Duty;
use crate::world::{Judged, World};

/// A sink that is fenced with epochs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sink {
    highest: BTreeMap<usize, Epoch>,
}

impl Sink {
    pub(crate) fn take(&mut self, shard: usize, epoch: Epoch) -> Fence {
        let highest = self.highest.entry(shard).or_default();
        if epoch < *highest {
            return Fence::Rejected;
        }
        *highest = epoch;
        Fence::Accepted
    }
}

impl World {
    pub(crate) fn write_arrives(&mut self, run: usize, shard: usize, epoch: Epoch) -> Judged {
        // User code that asks for the epoch when it sends a write, instead of keeping the one of its grant, gets a later one.
        let newest = self.oracle.state.shard(shard).epoch.unwrap_or(epoch);
        let carried = if self.broken(Duty::OwnEpochWithWrite) { newest } else { epoch };
        let verdict = self.sink.take(shard, carried);
        self.stats.sink_writes += 1;
        if verdict == Fence::Rejected {
            self.stats.sink_rejected += 1;
            self.tell("sink", || format!("refuses a late write for shard {shard} under epoch {epoch}"));
        }
        self.observe(Observation::Wrote { run, verdict })
    }
}
