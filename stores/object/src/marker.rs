//! The marker: an object that every change but a plain renewal rewrites, so that one small read shows whether anything
//! changed. No decision depends on it; a change whose marker was lost is found by the next full listing.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use leasehold_store::{StoreError, rng};

use crate::client::{Condition, Got, Mark, ObjectClient};
use crate::layout::MARKER;

/// The marker, as this client knows it.
#[derive(Debug, Default)]
pub(crate) struct Marker {
    /// Counts this client's changes.
    made: AtomicU64,
    /// How many of them the marker tells of.
    told: tokio::sync::Mutex<u64>,
    seen: Mutex<Option<Mark>>,
}

impl Marker {
    /// Something changed, so the marker must be rewritten.
    pub(crate) fn owe(&self) {
        self.made.fetch_add(1, Ordering::SeqCst);
    }

    /// Rewrites the marker if something changed since. One write tells of all changes before it. What fails is tried
    /// again at the next look.
    pub(crate) async fn catch_up(&self, wire: &ObjectClient, within: Duration) {
        if self.told.try_lock().is_ok_and(|told| *told == self.made.load(Ordering::SeqCst)) {
            return;
        }
        let write = async {
            let mut told = self.told.lock().await;
            let made = self.made.load(Ordering::SeqCst);
            if *told == made {
                return;
            }
            let Ok(id) = rng::fresh_id() else { return };
            let body = format!("{{\"format\":1,\"write\":\"{id}\"}}\n").into_bytes();
            match wire.put(MARKER, body, Condition::Whatever).await {
                Ok(_) => *told = made,
                Err(refusal) => tracing::debug!(?refusal, "the marker was not rewritten; will try again"),
            }
        };
        let _ = tokio::time::timeout(within, write).await;
    }

    /// The marker's state in the store; `None` if there is none.
    pub(crate) async fn read(&self, wire: &ObjectClient) -> Result<Option<String>, StoreError> {
        let seen = self.seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        let mark = match wire.get(MARKER, seen.as_ref()).await? {
            Got::Same => seen,
            Got::Nothing => None,
            Got::Found { mark, .. } => Some(mark),
        };
        let etag = mark.as_ref().map(|mark| mark.etag.clone());
        *self.seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = mark;
        Ok(etag)
    }
}
