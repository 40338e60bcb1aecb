use std::sync::{Mutex, PoisonError};

use leasehold_store::StoreError;

use crate::error::damaged;
use crate::proto::ResponseHeader;

/// How far this client has seen the store get. A revision below that means that the store was rolled back: a restored
/// snapshot may well have the same cluster id, because etcd derives that from the members' addresses.
#[derive(Debug, Default)]
pub(crate) struct HighWater(Mutex<Mark>);

/// A state of the store: which cluster, and which revision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    cluster: u64,
    revision: i64,
}

impl HighWater {
    /// Read this before sending a request: the response must not be older.
    pub(crate) fn mark(&self) -> Mark {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in the header of a response, and refuses one that is older than what was seen before the request.
    pub(crate) fn take(&self, before: Mark, header: &ResponseHeader) -> Result<(), StoreError> {
        if before.cluster == header.cluster_id && header.revision < before.revision {
            return Err(damaged(format!(
                "etcd is at revision {} but has been at {} before: it was restored from a backup or lost data",
                header.revision, before.revision
            )));
        }
        self.raise(header);
        Ok(())
    }

    /// Takes in the header of a listing, which passes its revision on to the core, which detects a rollback.
    pub(crate) fn adopt(&self, before: Mark, header: &ResponseHeader) {
        if before.cluster == header.cluster_id && header.revision < before.revision {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Mark::of(header);
        }
        self.raise(header);
    }

    fn raise(&self, header: &ResponseHeader) {
        let mut mark = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if mark.cluster != header.cluster_id || mark.revision < header.revision {
            *mark = Mark::of(header);
        }
    }
}

impl Mark {
    fn of(header: &ResponseHeader) -> Self {
        Mark { cluster: header.cluster_id, revision: header.revision }
    }
}

/// The store's identity.
pub(crate) fn generation(header: &ResponseHeader) -> String {
    format!("{:016x}", header.cluster_id)
}
