use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::SessionId;
use leasehold_core::store::{Facts, Key, Lane, Listing, StoreError, StoreErrorKind, Swap};

use crate::{
    Administration, Charged, DeathProofs, Extensions, Finding, LeaseId, LeaseState, Reading, Registry, Store,
    StoreExt, SwapReply, Throwaway, Watch,
};

/// A kind of call to a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Call {
    /// [`Store::read`]
    Read,
    /// [`Store::list`]
    List,
    /// [`Store::list_nodes`]
    ListNodes,
    /// [`Store::swap`]
    Swap,
    /// [`Store::watch`]
    Watch,
    /// [`Store::generation`]
    Generation,
    /// [`DeathProofs::claim_session`]
    ClaimSession,
    /// [`Administration::discard`]
    Discard,
    /// Anything of a [`Registry`].
    Registry,
}

/// A wrapper that treats all calls alike: it decides what happens before and after each.
pub(crate) trait Around: Send + Sync + 'static {
    /// The store inside.
    fn inner(&self) -> &Arc<dyn Store>;

    /// Carries out a call to the store inside, or does not. `sent` does nothing until it is polled.
    fn around<T: Send>(
        &self,
        call: Call,
        sent: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> impl Future<Output = Result<T, StoreError>> + Send;

    /// Carries out swaps, where they are not calls like the others.
    fn swapping(
        &self,
        lane: Lane,
        swaps: &[Swap],
    ) -> impl Future<Output = Result<SwapReply, StoreError>> + Send {
        async move { self.around(Call::Swap, self.inner().swap(lane, swaps)).await }
    }

    /// Wraps a watch of the store inside.
    fn watching(&self, watch: Watch) -> Watch;

    /// The same wrapper, with all that happens to it, around another store: what is set aside must not bypass it.
    fn around_another(&self, inner: Arc<dyn Store>) -> Arc<dyn Store>;

    /// Takes note of what was read.
    fn note_reading(&self, _reading: &Reading) {}

    /// Takes note of a listing, of everything or of nodes.
    fn note_listing(&self, _call: Call, _listing: &Listing) {}

    /// The registry of the store inside.
    fn inner_registry(&self) -> Result<&dyn Registry, StoreError> {
        let none = || StoreError::new(StoreErrorKind::Refused, "the wrapped store has no registry");
        self.inner().registry().ok_or_else(none)
    }
}

#[async_trait]
impl<A: Around> Store for A {
    fn facts(&self) -> Facts {
        self.inner().facts()
    }

    async fn read(&self, keys: &[Key]) -> Result<Reading, StoreError> {
        let reading = self.around(Call::Read, self.inner().read(keys)).await?;
        self.note_reading(&reading);
        Ok(reading)
    }

    async fn list(&self) -> Result<Listing, StoreError> {
        let listing = self.around(Call::List, self.inner().list()).await?;
        self.note_listing(Call::List, &listing);
        Ok(listing)
    }

    async fn list_nodes(&self) -> Result<Listing, StoreError> {
        let listing = self.around(Call::ListNodes, self.inner().list_nodes()).await?;
        self.note_listing(Call::ListNodes, &listing);
        Ok(listing)
    }

    async fn swap(&self, lane: Lane, swaps: &[Swap]) -> Result<SwapReply, StoreError> {
        self.swapping(lane, swaps).await
    }

    async fn watch(&self) -> Result<Option<Watch>, StoreError> {
        let watch = self.around(Call::Watch, self.inner().watch()).await?;
        Ok(watch.map(|watch| self.watching(watch)))
    }

    async fn generation(&self) -> Result<String, StoreError> {
        self.around(Call::Generation, self.inner().generation()).await
    }

    fn extensions(&self) -> Extensions<'_> {
        let Extensions { death_proofs, administration, registry } = self.inner().extensions();
        Extensions {
            death_proofs: death_proofs.map(|_| self as &dyn DeathProofs),
            administration: administration.map(|_| self as &dyn Administration),
            registry: registry.map(|_| self as &dyn Registry),
        }
    }
}

#[async_trait]
impl<A: Around> DeathProofs for A {
    async fn claim_session(&self, session: SessionId) -> Result<(), StoreError> {
        self.around(Call::ClaimSession, self.inner().claim_session(session)).await
    }

    fn release_session(&self, session: SessionId) {
        self.inner().release_session(session);
    }

    fn is_gone(&self, session: SessionId) -> bool {
        self.inner().is_gone(session)
    }
}

#[async_trait]
impl<A: Around> Administration for A {
    async fn vet(&self) -> Result<(), StoreError> {
        self.inner().vet().await
    }

    fn held_up_by(&self) -> Option<String> {
        self.inner().held_up_by()
    }

    async fn examine(&self) -> Vec<Finding> {
        self.inner().examine().await
    }

    fn aside(&self, throwaway: &Throwaway) -> Result<Option<Arc<dyn Store>>, StoreError> {
        Ok(self.inner().aside(throwaway)?.map(|aside| self.around_another(aside)))
    }

    async fn namespaces(&self) -> Result<Option<Vec<String>>, StoreError> {
        self.inner().namespaces().await
    }

    fn charged(&self) -> Option<Charged> {
        self.inner().charged()
    }

    async fn discard(&self, throwaway: &Throwaway) -> Result<(), StoreError> {
        self.around(Call::Discard, self.inner().discard(throwaway)).await
    }
}

#[async_trait]
impl<A: Around> Registry for A {
    async fn grant(&self, ttl: Duration) -> Result<LeaseId, StoreError> {
        self.around(Call::Registry, self.inner_registry()?.grant(ttl)).await
    }

    async fn keep_alive(&self, lease: &LeaseId) -> Result<LeaseState, StoreError> {
        self.around(Call::Registry, self.inner_registry()?.keep_alive(lease)).await
    }

    async fn put(&self, lease: &LeaseId, key: &str, value: &[u8]) -> Result<LeaseState, StoreError> {
        self.around(Call::Registry, self.inner_registry()?.put(lease, key, value)).await
    }

    async fn remove(&self, lease: &LeaseId, key: &str) -> Result<(), StoreError> {
        self.around(Call::Registry, self.inner_registry()?.remove(lease, key)).await
    }

    async fn revoke(&self, lease: &LeaseId) -> Result<(), StoreError> {
        self.around(Call::Registry, self.inner_registry()?.revoke(lease)).await
    }

    async fn keys(&self) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        self.around(Call::Registry, self.inner_registry()?.keys()).await
    }

    async fn values(&self, keys: &[String]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        self.around(Call::Registry, self.inner_registry()?.values(keys)).await
    }
}
