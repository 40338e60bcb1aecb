use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_store::{
    Administration, Charged, Extensions, Facts, Finding, Freshness, Key, Lane, Listing, Reading, Safety,
    Store, StoreError, Swap, SwapReply, Throwaway, Watch, rng,
};

use crate::connection::{Connection, Method};
use crate::error::refused;
use crate::high_water::{HighWater, generation};
use crate::lane::{CallError, LaneThread, Switch};
use crate::layout::{Layout, Span};
use crate::options::Options;
use crate::proto::{RangeRequest, RangeResponse, TxnRequest, TxnResponse};
use crate::records::{self, OPS_MAX, header};
use crate::{examine, watch};

/// How often a listing is started because a compaction overtook the one before.
const LIST_TRIES: usize = 3;

/// One namespace in etcd.
///
/// Opening does nothing but read the address: connections are made when they are needed, and again when they
/// break. It can be used from any async runtime, and from several at once.
#[derive(Debug)]
pub struct Etcd {
    pub(crate) shared: Arc<Shared>,
    renewal: LaneThread,
    pub(crate) work: LaneThread,
}

/// What the threads of one client share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) options: Arc<Options>,
    pub(crate) layout: Layout,
    pub(crate) seen: HighWater,
}

impl Etcd {
    /// A namespace at an address such as `etcd://host:2379,host:2379/prefix`; see [`Options::parse`].
    pub fn open(address: &str, namespace: &str) -> Result<Self, StoreError> {
        let options = Options::parse(address, |name| std::env::var(name).ok())?;
        Etcd::open_with(options, namespace)
    }

    /// A namespace at these members.
    pub fn open_with(options: Options, namespace: &str) -> Result<Self, StoreError> {
        if options.hosts.is_empty() {
            return Err(refused("the options name no member of etcd"));
        }
        let layout = Layout::new(&options.prefix, namespace)?;
        let options = Arc::new(options);
        // Clients spread over the members, and the two lanes of one client start with different ones.
        let first = rng::bits().map_or(0, |bits| bits as usize) % options.hosts.len();
        let second = (first + 1) % options.hosts.len();
        let renewal = LaneThread::new("lh-etcd-renewal", Arc::clone(&options), first);
        let work = LaneThread::new("lh-etcd-work", Arc::clone(&options), second);
        Ok(Etcd { shared: Arc::new(Shared { options, layout, seen: HighWater::default() }), renewal, work })
    }
}

#[async_trait]
impl Store for Etcd {
    fn facts(&self) -> Facts {
        Facts {
            kind: "etcd",
            watch: true,
            poll_every: Duration::from_secs(1),
            write_every_min: Duration::from_millis(1),
            swaps_max: OPS_MAX,
            reads: Freshness::Newest,
            removes: true,
            safety: Safety::Strict,
            ttl_default: Duration::from_secs(10),
        }
    }

    async fn read(&self, keys: &[Key]) -> Result<Reading, StoreError> {
        let (shared, keys) = (Arc::clone(&self.shared), keys.to_vec());
        self.work.run(move |switch| async move { shared.read(&switch, &keys).await }).await
    }

    async fn list(&self) -> Result<Listing, StoreError> {
        let shared = Arc::clone(&self.shared);
        self.work.run(move |switch| async move { shared.list(&switch).await }).await
    }

    async fn list_nodes(&self) -> Result<Listing, StoreError> {
        let shared = Arc::clone(&self.shared);
        self.work.run(move |switch| async move { shared.list_nodes(&switch).await }).await
    }

    async fn swap(&self, lane: Lane, swaps: &[Swap]) -> Result<SwapReply, StoreError> {
        let (shared, swaps) = (Arc::clone(&self.shared), swaps.to_vec());
        let lane = match lane {
            Lane::Renewal => &self.renewal,
            Lane::Work => &self.work,
        };
        lane.run(move |switch| async move { shared.swap(&switch, &swaps).await }).await
    }

    async fn watch(&self) -> Result<Option<Watch>, StoreError> {
        watch::start(&self.work, Arc::clone(&self.shared)).map(Some)
    }

    async fn generation(&self) -> Result<String, StoreError> {
        Ok(self.read(&[Key::Meta]).await?.generation)
    }

    fn extensions(&self) -> Extensions<'_> {
        Extensions { death_proofs: None, administration: Some(self), registry: Some(self) }
    }
}

#[async_trait]
impl Administration for Etcd {
    async fn vet(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn held_up_by(&self) -> Option<String> {
        None
    }

    async fn examine(&self) -> Vec<Finding> {
        let shared = Arc::clone(&self.shared);
        let examined =
            self.work.run(move |switch| async move { Ok(examine::examine(&shared, &switch).await) });
        examined.await.unwrap_or_else(|error| vec![Finding::bad(error.to_string(), "try again")])
    }

    fn aside(&self, _throwaway: &Throwaway) -> Result<Option<Arc<dyn Store>>, StoreError> {
        Ok(None)
    }

    async fn namespaces(&self) -> Result<Option<Vec<String>>, StoreError> {
        let shared = Arc::clone(&self.shared);
        self.work.run(move |switch| async move { shared.namespaces(&switch).await.map(Some) }).await
    }

    fn charged(&self) -> Option<Charged> {
        None
    }

    async fn discard(&self, throwaway: &Throwaway) -> Result<(), StoreError> {
        throwaway.must_be(self.shared.layout.namespace())?;
        throwaway.sweep(self).await
    }
}

impl Shared {
    async fn read(&self, switch: &Arc<Switch>, keys: &[Key]) -> Result<Reading, StoreError> {
        let mut reading = Reading { found: Vec::with_capacity(keys.len()), generation: String::new() };
        // A reading of nothing still has a generation.
        let asked: &[Key] = if keys.is_empty() { &[Key::Meta] } else { keys };
        for some in asked.chunks(OPS_MAX) {
            let before = self.seen.mark();
            let answer = txn(switch, records::reading(&self.layout, some)).await?;
            let header = header(answer.header.as_ref())?;
            self.seen.take(before, header)?;
            reading.generation = generation(header);
            reading.found.extend(records::found(answer, some.len())?);
        }
        reading.found.truncate(keys.len());
        Ok(reading)
    }

    pub(crate) async fn list(&self, switch: &Arc<Switch>) -> Result<Listing, StoreError> {
        self.list_spans(switch, &self.layout.records()).await
    }

    async fn list_nodes(&self, switch: &Arc<Switch>) -> Result<Listing, StoreError> {
        let listing = self.list_spans(switch, &self.layout.nodes_and_meta()).await?;
        Ok(Listing { foreign: Vec::new(), newest: true, ..listing })
    }

    /// What is in these spans, all at one revision.
    async fn list_spans(&self, switch: &Arc<Switch>, spans: &[Span]) -> Result<Listing, StoreError> {
        let mut tries = 0;
        loop {
            let before = self.seen.mark();
            tries += 1;
            match records::list(&self.layout, spans, |pages| txn(switch, pages)).await {
                Ok((listing, header)) => {
                    self.seen.adopt(before, &header);
                    return Ok(listing);
                }
                Err(CallError { status: Some(status), .. })
                    if records::compacted(&status) && tries < LIST_TRIES => {}
                Err(failed) => return Err(failed.error),
            }
        }
    }

    /// Looks at the first key of each namespace, and skips the others.
    async fn namespaces(&self, switch: &Arc<Switch>) -> Result<Vec<String>, StoreError> {
        let Span { start, end } = self.layout.siblings();
        let (mut names, mut from) = (Vec::new(), start);
        loop {
            let question =
                RangeRequest { key: from, range_end: end.clone(), limit: 1, revision: 0, count_only: false };
            let Some(first) = range(switch, question).await?.kvs.into_iter().next() else { return Ok(names) };
            from = match self.layout.sibling(&first.key) {
                Some((name, next)) => {
                    names.push(name);
                    next
                }
                // Not a key of ours.
                None => [first.key.as_slice(), &[0]].concat(),
            };
        }
    }

    async fn swap(&self, switch: &Arc<Switch>, swaps: &[Swap]) -> Result<SwapReply, StoreError> {
        if swaps.len() > OPS_MAX {
            let count = swaps.len();
            return Err(refused(format!(
                "{count} swaps in one call; at most {OPS_MAX} are allowed. Nothing was written"
            )));
        }
        let mut reply = SwapReply { outcomes: Vec::with_capacity(swaps.len()), generation: String::new() };
        // One request nearly always. A part that fails makes all of them unknown, which is true enough.
        for part in records::requests(swaps) {
            let before = self.seen.mark();
            let answer = txn(switch, records::swapping(&self.layout, part)?).await?;
            let header = header(answer.header.as_ref())?;
            self.seen.take(before, header)?;
            reply.generation = generation(header);
            reply.outcomes.extend(records::outcomes(answer, part)?);
        }
        Ok(reply)
    }
}

/// Sends a transaction.
pub(crate) async fn txn(switch: &Arc<Switch>, question: TxnRequest) -> Result<TxnResponse, CallError> {
    switch.ask(|connection: Connection| ask_txn(connection, question.clone())).await
}

async fn ask_txn(connection: Connection, question: TxnRequest) -> Result<TxnResponse, tonic::Status> {
    connection.ask(Method::TXN, question).await
}

/// Reads a range.
pub(crate) async fn range(switch: &Arc<Switch>, question: RangeRequest) -> Result<RangeResponse, CallError> {
    let ask = |connection: Connection| {
        let question = question.clone();
        async move { connection.ask(Method::RANGE, question).await }
    };
    switch.ask(ask).await
}
