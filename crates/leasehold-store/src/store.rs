use std::pin::Pin;

use async_trait::async_trait;
use futures::Stream;
use leasehold_core::store::{Facts, Key, Lane, Listing, StoreError, Stored, Swap, Swapped, WatchEvent};

use crate::Extensions;

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

/// A store's stream of changes. It never ends by itself.
pub type Watch = Pin<Box<dyn Stream<Item = WatchEvent> + Send>>;

/// One namespace on a store: reading, listing and compare-and-swap of single records. That is all that safety needs.
///
/// No method has a default body, so a store around another store that forgets one does not compile. What only some
/// stores can do is in traits of its own ([`extensions`](Store::extensions)).
///
/// Calls may be dropped before they finish: whatever they had sent may still happen.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// What the core must know about the store.
    fn facts(&self) -> Facts;

    /// Reads these records, never stale. They need not be of one moment, but then the last one asked for is read last.
    async fn read(&self, keys: &[Key]) -> Result<Reading, StoreError>;

    /// Reads everything in the namespace. A store that can't do so as of one moment reads `meta` after everything else:
    /// an unchanged incarnation then vouches for the rest.
    async fn list(&self) -> Result<Listing, StoreError>;

    /// Reads every node record, and `meta` after all of them; never stale, also where [`list`](Store::list) may be. It need
    /// not be of one moment.
    ///
    /// Every node asks for it when it starts and after a failover, so it must not read the records of shards. It is always
    /// [`newest`](Listing::newest). Keys that may hold a node's record which cannot be read are among the
    /// [`unreadable`](Listing::unreadable); [`foreign`](Listing::foreign) keys are left to `list`.
    async fn list_nodes(&self) -> Result<Listing, StoreError>;

    /// Tries these swaps, each for itself. After an `Err` every one of them counts as [`Swapped::Unknown`].
    ///
    /// Leasehold never sends more than [`Facts::swaps_max`] at once, or one key twice in a call; a store may refuse that, as
    /// a whole and with [`StoreErrorKind::Refused`](leasehold_core::store::StoreErrorKind::Refused).
    async fn swap(&self, lane: Lane, swaps: &[Swap]) -> Result<SwapReply, StoreError>;

    /// Delivers changes from now on, beginning with a snapshot; `None` if the store cannot.
    ///
    /// All changes are delivered, those of this client too. Of several changes of one record in quick succession only the
    /// last need be delivered.
    async fn watch(&self) -> Result<Option<Watch>, StoreError>;

    /// The store's own mark of identity; empty if it has none.
    async fn generation(&self) -> Result<String, StoreError>;

    /// What else the store can do. Required, so that no wrapper hides it by mistake; [`Extensions::none`] if there is
    /// nothing. Callers use the methods of [`StoreExt`](crate::StoreExt).
    fn extensions(&self) -> Extensions<'_>;
}
