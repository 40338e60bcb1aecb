use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use futures::Stream;
use leasehold_core::SessionId;
use leasehold_core::store::{
    Facts, Key, Lane, Listing, StoreError, StoreErrorKind, Stored, Swap, Swapped, WatchEvent,
};

use crate::{Finding, Registry, Throwaway};

/// What is under each key that was read, in the order asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// One per key.
    pub found: Vec<Option<Stored>>,
    /// See [`Listing::generation`].
    pub generation: String,
}

/// What became of each swap, in the order asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwapReply {
    /// One per swap.
    pub outcomes: Vec<Swapped>,
    /// See [`Listing::generation`].
    pub generation: String,
}

/// How many requests a client has made to a store that charges for each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Charged {
    /// Objects written.
    pub writes: u64,
    /// Objects read, or found unchanged.
    pub reads: u64,
    /// Pages of listings.
    pub lists: u64,
}

/// A store's stream of changes. It never ends by itself.
pub type Watch = Pin<Box<dyn Stream<Item = WatchEvent> + Send>>;

/// One namespace on a store: reading, listing and compare-and-swap of single records. That is all that safety needs.
///
/// Calls may be dropped before they finish: whatever they had sent may still happen.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// What the core must know of it.
    fn facts(&self) -> Facts;

    /// Makes sure that the store may be trusted with records, before a node joins: one that must find that out by writing
    /// does so now. Whatever fails here with [`StoreErrorKind::Refused`] only a person can mend.
    async fn vet(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Reads these records, never stale. They need not be of one moment, but then the last one asked for is read last.
    async fn read(&self, keys: &[Key]) -> Result<Reading, StoreError>;

    /// Reads everything in the namespace. A store that can't do so as of one moment reads `meta` after everything else:
    /// that the incarnation is still the same then vouches for the rest.
    async fn list(&self) -> Result<Listing, StoreError>;

    /// Reads every node record, and `meta` after all of them; never stale, also where [`list`](Store::list) may be. It need
    /// not be of one moment.
    ///
    /// Every node asks for it when it starts and after a failover, so it must not read the records of shards. It is always
    /// [`newest`](Listing::newest). Where a node's record may be that cannot be told is among the
    /// [`unreadable`](Listing::unreadable); [`foreign`](Listing::foreign) keys are left to `list`.
    async fn list_nodes(&self) -> Result<Listing, StoreError>;

    /// Tries these swaps, each for itself. After an `Err` every one of them counts as [`Swapped::Unknown`].
    ///
    /// Nobody sends more than [`Facts::swaps_max`] at once, or one key twice in a call; a store may refuse that, as a
    /// whole and with [`StoreErrorKind::Refused`](leasehold_core::store::StoreErrorKind::Refused).
    async fn swap(&self, lane: Lane, swaps: &[Swap]) -> Result<SwapReply, StoreError>;

    /// Tells of changes from now on, beginning with a snapshot; `None` if the store cannot.
    ///
    /// All changes are told, those of this client too. Of several changes of one record that follow each other at
    /// once only the last need be told.
    async fn watch(&self) -> Result<Option<Watch>, StoreError> {
        Ok(None)
    }

    /// The store's own mark of identity; empty if it has none.
    async fn generation(&self) -> Result<String, StoreError>;

    /// Tells the store that this process now lives as this session, so that it can prove the process's death where
    /// it has a way to (the local store's lock). Called before the session's first record is written.
    async fn claim_session(&self, session: SessionId) -> Result<(), StoreError> {
        let _ = session;
        Ok(())
    }

    /// Tells the store that a session which this process claimed is over, and that nothing of it runs any more. Other
    /// sessions of this process, of other nodes that share this store, go on.
    fn release_session(&self, session: SessionId) {
        let _ = session;
    }

    /// Whether the kernel proves that the process of a session is gone, with all that it started. `false` says nothing:
    /// it lives, or this store cannot tell.
    fn is_gone(&self, session: SessionId) -> bool {
        let _ = session;
        false
    }

    /// What keeps calls from being answered right now, in words for an operator, if the store can tell without asking
    /// anybody. It is asked when a call's time is up, so that the error can say more than that.
    fn held_up_by(&self) -> Option<String> {
        None
    }

    /// Looks at how the store is set up for the usual mistakes, and at what the set-up costs: for `leasehold doctor`.
    /// What cannot be found out is a finding too, never an error.
    async fn examine(&self) -> Vec<Finding> {
        Vec::new()
    }

    /// A place for trying writes out that whoever may use this namespace may use too, which holds nothing and disturbs
    /// nobody; [`discard`](Store::discard) clears it. `None` where rights don't end with the namespace: another one will do.
    fn aside(&self, throwaway: &Throwaway) -> Result<Option<Arc<dyn Store>>, StoreError> {
        let _ = throwaway;
        Ok(None)
    }

    /// How many requests this client has made, on a store that charges for each.
    fn charged(&self) -> Option<Charged> {
        None
    }

    /// Removes every trace of this namespace, if it is the one that this name was made up for. Whoever tried the store
    /// out calls it last, when no node and no client uses the namespace any more.
    async fn discard(&self, throwaway: &Throwaway) -> Result<(), StoreError> {
        let kind = self.facts().kind;
        let message = format!("a store of the kind {kind} removes no namespace, so {throwaway} stays");
        Err(StoreError::new(StoreErrorKind::Refused, message))
    }

    /// The store's keys that live on its own lease, if it has such a thing.
    fn registry(&self) -> Option<&dyn Registry> {
        None
    }
}
