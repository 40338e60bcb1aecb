//! Detects every overlap of work within one process, while it happens.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold::{Grant, Outcome};
use leasehold_core::{Epoch, ShardId};

/// Tracks which grants are at work on which shard. It cannot miss an overlap: work is on the list for as long as its
/// [`AtWork`] lives.
#[derive(Clone, Debug, Default)]
pub struct Witness(Arc<Mutex<Observed>>);

#[derive(Debug, Default)]
struct Observed {
    at_work: BTreeMap<ShardId, Vec<(String, Epoch)>>,
    epochs: BTreeMap<ShardId, Epoch>,
    starts: BTreeMap<ShardId, u32>,
    overlaps: Vec<String>,
}

/// Work runs for as long as this lives.
#[derive(Debug)]
pub struct AtWork {
    witness: Witness,
    shard: ShardId,
    me: (String, Epoch),
}

/// What a handler returns.
pub type WorkFuture = Pin<Box<dyn Future<Output = Outcome> + Send>>;

impl Witness {
    /// Work begins.
    pub fn begin(&self, node: &str, grant: &Grant) -> AtWork {
        let mut observed = self.observed();
        let (shard, me) = (grant.shard().clone(), (node.to_owned(), grant.epoch()));
        let others = observed.at_work.entry(shard.clone()).or_default();
        let overlap = (!others.is_empty()).then(|| format!("{shard}: {me:?} began while {others:?} worked"));
        others.push(me.clone());
        observed.overlaps.extend(overlap);
        if observed.epochs.insert(shard.clone(), me.1).is_some_and(|before| before >= me.1) {
            observed.overlaps.push(format!("{shard}: epoch {} did not rise", me.1));
        }
        *observed.starts.entry(shard.clone()).or_default() += 1;
        AtWork { witness: self.clone(), shard, me }
    }

    /// A handler that works until it is told to stop.
    pub fn worker(&self, node: &str) -> impl Fn(Grant) -> WorkFuture + Send + Sync + use<> {
        self.handler(node, |grant| async move { grant.stopped().await })
    }

    /// A handler that never stops by itself.
    pub fn stubborn(&self, node: &str) -> impl Fn(Grant) -> WorkFuture + Send + Sync + use<> {
        self.handler(node, |_| std::future::pending())
    }

    fn handler<F: Future<Output = ()> + Send + 'static>(
        &self,
        node: &str,
        until: fn(Grant) -> F,
    ) -> impl Fn(Grant) -> WorkFuture + Send + Sync + use<F> {
        let (witness, node) = (self.clone(), node.to_owned());
        move |grant| {
            let (witness, node) = (witness.clone(), node.clone());
            Box::pin(async move {
                let _at_work = witness.begin(&node, &grant);
                until(grant).await;
                Ok(())
            })
        }
    }

    /// How many shards a node works on.
    pub fn at_work(&self, node: &str) -> usize {
        self.observed().at_work.values().flatten().filter(|(worker, _)| worker == node).count()
    }

    /// How many shards are worked on.
    pub fn all_at_work(&self) -> usize {
        self.observed().at_work.values().map(Vec::len).sum()
    }

    /// The epoch of a shard's last start.
    pub fn epoch(&self, shard: &ShardId) -> Option<Epoch> {
        self.observed().epochs.get(shard).copied()
    }

    /// How often work on a shard began.
    pub fn starts(&self, shard: &ShardId) -> u32 {
        self.observed().starts.get(shard).copied().unwrap_or(0)
    }

    /// How often work on any shard began.
    pub fn all_starts(&self) -> u32 {
        self.observed().starts.values().sum()
    }

    /// Every overlap, and every epoch that did not rise.
    pub fn overlaps(&self) -> Vec<String> {
        self.observed().overlaps.clone()
    }

    /// Panics with all overlaps, if there were any.
    #[track_caller]
    pub fn assert_no_overlap(&self) {
        assert!(self.overlaps().is_empty(), "{:#?}", self.overlaps());
    }

    fn observed(&self) -> MutexGuard<'_, Observed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        if let Some(workers) = self.witness.observed().at_work.get_mut(&self.shard) {
            workers.retain(|worker| *worker != self.me);
        }
    }
}
