use std::future::Future;
use std::sync::Arc;

use leasehold_core::store::{Lane, Listing, StoreError, StoreErrorKind, Swap};

use crate::{Reading, Registry, Store, SwapReply, Watch};

/// A kind of call to a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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
    /// [`Store::claim_session`]
    ClaimSession,
    /// [`Store::discard`]
    Discard,
    /// Anything of a [`Registry`].
    Registry,
}

/// A wrapper that treats all calls alike: it decides what happens before and after each.
pub(crate) trait Around: Send + Sync {
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

    /// Stands between a watch of the store inside and whoever reads it.
    fn watching(&self, watch: Watch) -> Watch;

    /// The same wrapper, with all that happens to it, around another store: what is set aside is no way past it.
    fn around_another(&self, inner: Arc<dyn Store>) -> Arc<dyn Store>;

    /// Takes note of what was read.
    fn note_reading(&self, _reading: &Reading) {}

    /// Takes note of a listing, of everything or of nodes.
    fn note_listing(&self, _call: Call, _listing: &Listing) {}

    /// The registry of the store inside.
    fn inner_registry(&self) -> Result<&dyn Registry, StoreError> {
        let none = || StoreError::new(StoreErrorKind::Refused, "the store inside keeps no registered keys");
        self.inner().registry().ok_or_else(none)
    }
}

/// Makes a store of a type that is [`Around`]. The lint keeps it whole: a wrapper that leaves a method of [`Store`] to its
/// default silently takes it from the store inside.
macro_rules! store_around {
    ($type:ty) => {
        #[deny(clippy::missing_trait_methods)]
        #[async_trait::async_trait]
        impl $crate::Store for $type {
            fn facts(&self) -> $crate::Facts {
                self.inner().facts()
            }

            async fn read(&self, keys: &[$crate::Key]) -> Result<$crate::Reading, $crate::StoreError> {
                let reading = self.around(Call::Read, self.inner().read(keys)).await?;
                self.note_reading(&reading);
                Ok(reading)
            }

            async fn list(&self) -> Result<$crate::Listing, $crate::StoreError> {
                let listing = self.around(Call::List, self.inner().list()).await?;
                self.note_listing(Call::List, &listing);
                Ok(listing)
            }

            async fn list_nodes(&self) -> Result<$crate::Listing, $crate::StoreError> {
                let listing = self.around(Call::ListNodes, self.inner().list_nodes()).await?;
                self.note_listing(Call::ListNodes, &listing);
                Ok(listing)
            }

            async fn swap(
                &self,
                lane: $crate::Lane,
                swaps: &[$crate::Swap],
            ) -> Result<$crate::SwapReply, $crate::StoreError> {
                self.swapping(lane, swaps).await
            }

            async fn watch(&self) -> Result<Option<$crate::Watch>, $crate::StoreError> {
                let watch = self.around(Call::Watch, self.inner().watch()).await?;
                Ok(watch.map(|watch| self.watching(watch)))
            }

            async fn generation(&self) -> Result<String, $crate::StoreError> {
                self.around(Call::Generation, self.inner().generation()).await
            }

            async fn claim_session(
                &self,
                session: leasehold_core::SessionId,
            ) -> Result<(), $crate::StoreError> {
                self.around(Call::ClaimSession, self.inner().claim_session(session)).await
            }

            fn is_gone(&self, session: leasehold_core::SessionId) -> bool {
                self.inner().is_gone(session)
            }

            fn release_session(&self, session: leasehold_core::SessionId) {
                self.inner().release_session(session);
            }

            fn held_up_by(&self) -> Option<String> {
                self.inner().held_up_by()
            }

            async fn vet(&self) -> Result<(), $crate::StoreError> {
                self.inner().vet().await
            }

            async fn examine(&self) -> Vec<$crate::Finding> {
                self.inner().examine().await
            }

            fn aside(
                &self,
                throwaway: &$crate::Throwaway,
            ) -> Result<Option<std::sync::Arc<dyn $crate::Store>>, $crate::StoreError> {
                Ok(self.inner().aside(throwaway)?.map(|aside| self.around_another(aside)))
            }

            fn charged(&self) -> Option<$crate::Charged> {
                self.inner().charged()
            }

            async fn discard(&self, throwaway: &$crate::Throwaway) -> Result<(), $crate::StoreError> {
                self.around(Call::Discard, self.inner().discard(throwaway)).await
            }

            fn registry(&self) -> Option<&dyn $crate::Registry> {
                self.inner().registry().map(|_| self as &dyn $crate::Registry)
            }
        }
    };
}
pub(crate) use store_around;

/// Makes a registry of a type that is [`Around`].
macro_rules! registry_around {
    ($type:ty) => {
        #[deny(clippy::missing_trait_methods)]
        #[async_trait::async_trait]
        impl $crate::Registry for $type {
            async fn grant(&self, ttl: std::time::Duration) -> Result<$crate::LeaseId, $crate::StoreError> {
                self.around(Call::Registry, self.inner_registry()?.grant(ttl)).await
            }

            async fn keep_alive(
                &self,
                lease: &$crate::LeaseId,
            ) -> Result<$crate::LeaseState, $crate::StoreError> {
                self.around(Call::Registry, self.inner_registry()?.keep_alive(lease)).await
            }

            async fn put(
                &self,
                lease: &$crate::LeaseId,
                key: &str,
                value: &[u8],
            ) -> Result<$crate::LeaseState, $crate::StoreError> {
                self.around(Call::Registry, self.inner_registry()?.put(lease, key, value)).await
            }

            async fn remove(&self, lease: &$crate::LeaseId, key: &str) -> Result<(), $crate::StoreError> {
                self.around(Call::Registry, self.inner_registry()?.remove(lease, key)).await
            }

            async fn revoke(&self, lease: &$crate::LeaseId) -> Result<(), $crate::StoreError> {
                self.around(Call::Registry, self.inner_registry()?.revoke(lease)).await
            }

            async fn keys(&self) -> Result<Vec<(String, Vec<u8>)>, $crate::StoreError> {
                self.around(Call::Registry, self.inner_registry()?.keys()).await
            }

            async fn values(&self, keys: &[String]) -> Result<Vec<Option<Vec<u8>>>, $crate::StoreError> {
                self.around(Call::Registry, self.inner_registry()?.values(keys)).await
            }
        }
    };
}
pub(crate) use registry_around;
