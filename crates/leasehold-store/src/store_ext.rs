use std::future::Future;
use std::sync::Arc;

use leasehold_core::SessionId;
use leasehold_core::store::StoreError;

use crate::{Charged, Finding, Registry, Store, Throwaway};

/// The [`Extensions`](crate::Extensions) of any store as methods, with what callers do if the store lacks one. Nothing
/// here can be overridden.
pub trait StoreExt: Store {
    /// See [`DeathProofs::claim_session`](crate::DeathProofs::claim_session); nothing to do without proofs of death.
    fn claim_session(&self, session: SessionId) -> impl Future<Output = Result<(), StoreError>> + Send {
        async move {
            match self.extensions().death_proofs {
                Some(proofs) => proofs.claim_session(session).await,
                None => Ok(()),
            }
        }
    }

    /// See [`DeathProofs::release_session`](crate::DeathProofs::release_session); nothing to do without proofs of death.
    fn release_session(&self, session: SessionId) {
        if let Some(proofs) = self.extensions().death_proofs {
            proofs.release_session(session);
        }
    }

    /// See [`DeathProofs::is_gone`](crate::DeathProofs::is_gone); `false` without proofs of death.
    fn is_gone(&self, session: SessionId) -> bool {
        self.extensions().death_proofs.is_some_and(|proofs| proofs.is_gone(session))
    }

    /// See [`Administration::vet`](crate::Administration::vet); a store without administration is trusted.
    fn vet(&self) -> impl Future<Output = Result<(), StoreError>> + Send {
        async move {
            match self.extensions().administration {
                Some(administration) => administration.vet().await,
                None => Ok(()),
            }
        }
    }

    /// See [`Administration::held_up_by`](crate::Administration::held_up_by).
    fn held_up_by(&self) -> Option<String> {
        self.extensions().administration?.held_up_by()
    }

    /// See [`Administration::examine`](crate::Administration::examine); no findings without administration.
    fn examine(&self) -> impl Future<Output = Vec<Finding>> + Send {
        async move {
            match self.extensions().administration {
                Some(administration) => administration.examine().await,
                None => Vec::new(),
            }
        }
    }

    /// See [`Administration::aside`](crate::Administration::aside).
    fn aside(&self, throwaway: &Throwaway) -> Result<Option<Arc<dyn Store>>, StoreError> {
        match self.extensions().administration {
            Some(administration) => administration.aside(throwaway),
            None => Ok(None),
        }
    }

    /// See [`Administration::namespaces`](crate::Administration::namespaces); `None` without administration.
    fn namespaces(&self) -> impl Future<Output = Result<Option<Vec<String>>, StoreError>> + Send {
        async move {
            match self.extensions().administration {
                Some(administration) => administration.namespaces().await,
                None => Ok(None),
            }
        }
    }

    /// See [`Administration::charged`](crate::Administration::charged).
    fn charged(&self) -> Option<Charged> {
        self.extensions().administration?.charged()
    }

    /// See [`Administration::discard`](crate::Administration::discard); refused without administration.
    fn discard(&self, throwaway: &Throwaway) -> impl Future<Output = Result<(), StoreError>> + Send {
        async move {
            match self.extensions().administration {
                Some(administration) => administration.discard(throwaway).await,
                None => Err(throwaway.stays(self.facts().kind)),
            }
        }
    }

    /// The store's [`Registry`], if it has one.
    fn registry(&self) -> Option<&dyn Registry> {
        self.extensions().registry
    }
}

impl<S: Store + ?Sized> StoreExt for S {}
