//! What the tests share: nodes on one memory server under virtual time, and a witness that sees every overlap.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::clock::Clock;
use leasehold::{Builder, Grant, Node, Outcome};
use leasehold_core::{Epoch, ShardId};
use leasehold_store::wrap::{CutOff, Link};
use leasehold_store::{MemoryServer, Store};

/// A namespace in memory, on the clock of the test.
#[derive(Clone)]
pub(crate) struct Bench {
    pub(crate) server: MemoryServer,
    pub(crate) clock: Clock,
    pub(crate) witness: Witness,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let clock = Clock::virtual_time();
        let reading = clock.clone();
        let server = MemoryServer::with_clock(move || reading.now());
        Bench { server, witness: Witness::new(), clock }
    }

    /// A way to the store that can be cut.
    pub(crate) fn link(&self) -> Arc<CutOff> {
        Arc::new(CutOff::new(Arc::new(self.server.open("test"))))
    }

    pub(crate) fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.server.open("test"))
    }

    /// A node with a ttl of ten seconds in a namespace that is known to be new.
    pub(crate) fn node(&self, name: &str) -> Builder {
        self.node_on(name, self.store())
    }

    pub(crate) fn node_on(&self, name: &str, store: Arc<dyn Store>) -> Builder {
        Node::builder(store).name(name).ttl(Duration::from_secs(10)).new_namespace().virtual_time()
    }
}

/// Cuts a link so that calls hang, as a dead network does.
pub(crate) fn cut(link: &CutOff) {
    link.set(Link::Stalled);
}

/// Sees which grants are at work on which shard, and fails at the first overlap.
#[derive(Clone)]
pub(crate) struct Witness {
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    at_work: BTreeMap<ShardId, (String, Epoch)>,
    epochs: BTreeMap<ShardId, Epoch>,
    starts: BTreeMap<ShardId, u32>,
    overlaps: Vec<String>,
}

/// Somebody is at work for as long as this lives.
pub(crate) struct AtWork {
    witness: Witness,
    shard: ShardId,
    epoch: Epoch,
}

impl Witness {
    pub(crate) fn new() -> Self {
        Witness { seen: Arc::default() }
    }

    pub(crate) fn begin(&self, node: &str, grant: &Grant) -> AtWork {
        let mut seen = self.seen.lock().unwrap();
        let (shard, epoch) = (grant.shard().clone(), grant.epoch());
        if let Some(other) = seen.at_work.insert(shard.clone(), (node.to_owned(), epoch)) {
            seen.overlaps.push(format!("{shard}: {node} (epoch {epoch}) began while {other:?} was at work"));
        }
        if seen.epochs.insert(shard.clone(), epoch).is_some_and(|before| before >= epoch) {
            seen.overlaps.push(format!("{shard}: epoch {epoch} did not rise"));
        }
        *seen.starts.entry(shard.clone()).or_default() += 1;
        AtWork { witness: self.clone(), shard, epoch }
    }

    /// A handler that works until it is told to stop.
    pub(crate) fn worker(&self, node: &str) -> impl Fn(Grant) -> BoxedWork + Send + Sync + 'static {
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

    /// A handler that never stops by itself.
    pub(crate) fn stubborn(&self, node: &str) -> impl Fn(Grant) -> BoxedWork + Send + Sync + 'static {
        let (witness, node) = (self.clone(), node.to_owned());
        move |grant| {
            let (witness, node) = (witness.clone(), node.clone());
            Box::pin(async move {
                let _at_work = witness.begin(&node, &grant);
                std::future::pending().await
            })
        }
    }

    pub(crate) fn at_work(&self, node: &str) -> usize {
        self.seen.lock().unwrap().at_work.values().filter(|(worker, _)| worker == node).count()
    }

    pub(crate) fn epoch(&self, shard: &ShardId) -> Option<Epoch> {
        self.seen.lock().unwrap().epochs.get(shard).copied()
    }

    pub(crate) fn starts(&self, shard: &ShardId) -> u32 {
        self.seen.lock().unwrap().starts.get(shard).copied().unwrap_or(0)
    }

    pub(crate) fn assert_no_overlap(&self) {
        let overlaps = &self.seen.lock().unwrap().overlaps;
        assert!(overlaps.is_empty(), "{overlaps:#?}");
    }
}

pub(crate) type BoxedWork = std::pin::Pin<Box<dyn Future<Output = Outcome> + Send>>;

impl Drop for AtWork {
    fn drop(&mut self) {
        let mut seen = self.witness.seen.lock().unwrap();
        if seen.at_work.get(&self.shard).is_some_and(|(_, epoch)| *epoch == self.epoch) {
            seen.at_work.remove(&self.shard);
        }
    }
}

/// Waits until something holds, for at most this many virtual seconds.
pub(crate) async fn until(what: &str, seconds: u64, mut holds: impl FnMut() -> bool) {
    for _ in 0..seconds * 100 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("not within {seconds} s: {what}");
}
