//! What the tests share: nodes on one memory server under virtual time, and a witness that sees every overlap.

use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::Clock;
use leasehold::{Builder, Node};
use leasehold_chaos::witness::Witness;
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
        Bench { server, witness: Witness::default(), clock }
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
