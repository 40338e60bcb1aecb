use std::sync::Arc;

use async_trait::async_trait;
use leasehold_core::store::StoreError;

use crate::{Finding, Store, Throwaway};

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

/// What operators and their tools ask of a store. No node needs any of it to be safe.
#[async_trait]
pub trait Administration: Send + Sync {
    /// Makes sure that the store may be trusted with records, before a node joins. A store that can find that out only by
    /// writing does so now. If it fails with [`Refused`](leasehold_core::store::StoreErrorKind::Refused), trying again
    /// does not help: an operator must change something.
    async fn vet(&self) -> Result<(), StoreError>;

    /// What keeps calls from being answered right now, in words for an operator, if the store knows without asking
    /// anything. It is asked when a call has timed out, so that the error can say why.
    fn held_up_by(&self) -> Option<String>;

    /// Checks the configuration of the store for common mistakes, and says what it costs: for `leasehold doctor`. What
    /// cannot be found out is a finding too, never an error.
    async fn examine(&self) -> Vec<Finding>;

    /// An empty namespace for test writes, which needs no more rights than this one and disturbs nothing;
    /// [`discard`](Administration::discard) clears it. `None` if any other namespace will do because rights are not
    /// limited to this one.
    fn aside(&self, throwaway: &Throwaway) -> Result<Option<Arc<dyn Store>>, StoreError>;

    /// The namespaces that have records on this store, below the same prefix, in the order of their names; `None` if that
    /// cannot be found out.
    async fn namespaces(&self) -> Result<Option<Vec<String>>, StoreError> {
        Ok(None)
    }

    /// How many requests this client has made, on a store that charges for each.
    fn charged(&self) -> Option<Charged>;

    /// Removes every trace of this namespace, if it is the one that this name was made up for. Called last, when no node
    /// and no client uses the namespace any more. A store that cannot do it returns [`Throwaway::stays`].
    async fn discard(&self, throwaway: &Throwaway) -> Result<(), StoreError>;
}
