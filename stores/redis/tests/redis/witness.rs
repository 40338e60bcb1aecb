use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use leasehold::{Grant, Outcome};
use leasehold_core::{Epoch, ShardId};

/// Sees who is at work on which shard, and every overlap.
#[derive(Clone, Default)]
pub(crate) struct Witness {
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    at_work: BTreeMap<ShardId, Vec<(String, Epoch)>>,
    epochs: BTreeMap<ShardId, Epoch>,
    starts: usize,
    overlaps: Vec<String>,
}

type Work = Pin<Box<dyn Future<Output = Outcome> + Send>>;

impl Witness {
    /// Work that goes on until it is told to stop.
    pub(crate) fn worker(&self, node: &str) -> impl Fn(Grant) -> Work + Send + Sync + 'static {
        let (witness, node) = (self.clone(), node.to_owned());
        move |grant| {
            let (witness, node) = (witness.clone(), node.clone());
            Box::pin(async move {
                let _at_work = witness.begin(&node, &grant);
                grant.stopped().await;
                Ok(())
            })
        }
    }

    fn begin(&self, node: &str, grant: &Grant) -> AtWork {
        let mut seen = self.seen.lock().unwrap();
        let (shard, me) = (grant.shard().clone(), (node.to_owned(), grant.epoch()));
        let others = seen.at_work.entry(shard.clone()).or_default();
        let overlap = (!others.is_empty()).then(|| format!("{shard}: {me:?} began while {others:?} worked"));
        others.push(me.clone());
        seen.overlaps.extend(overlap);
        if seen.epochs.insert(shard.clone(), me.1).is_some_and(|before| before >= me.1) {
            seen.overlaps.push(format!("{shard}: epoch {} did not rise", me.1));
        }
        seen.starts += 1;
        AtWork { witness: self.clone(), shard, me }
    }

    /// How many shards a node works on.
    pub(crate) fn at_work(&self, node: &str) -> usize {
        let seen = self.seen.lock().unwrap();
        seen.at_work.values().flatten().filter(|(worker, _)| worker == node).count()
    }

    /// How many shards are worked on.
    pub(crate) fn all_at_work(&self) -> usize {
        self.seen.lock().unwrap().at_work.values().map(Vec::len).sum()
    }

    /// How often work began.
    pub(crate) fn starts(&self) -> usize {
        self.seen.lock().unwrap().starts
    }

    /// What must not have happened.
    pub(crate) fn overlaps(&self) -> Vec<String> {
        self.seen.lock().unwrap().overlaps.clone()
    }

    pub(crate) fn assert_no_overlap(&self) {
        assert!(self.overlaps().is_empty(), "{:#?}", self.overlaps());
    }
}

/// Somebody is at work for as long as this lives.
struct AtWork {
    witness: Witness,
    shard: ShardId,
    me: (String, Epoch),
}

impl Drop for AtWork {
    fn drop(&mut self) {
        let mut seen = self.witness.seen.lock().unwrap();
        if let Some(workers) = seen.at_work.get_mut(&self.shard) {
            workers.retain(|worker| *worker != self.me);
        }
    }
}
