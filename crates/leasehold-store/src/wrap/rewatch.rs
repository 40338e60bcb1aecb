use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use leasehold_core::store::WatchEvent;

use crate::{Store, Watch};

/// How long to wait before a watch that could not be opened is tried again.
const AGAIN_AFTER: Duration = Duration::from_millis(100);

/// A watch that can be broken and opened again on the same store.
pub(super) struct Rewatch {
    store: Arc<dyn Store>,
    watch: Option<Watch>,
}

impl Rewatch {
    pub(super) fn new(store: Arc<dyn Store>, watch: Watch) -> Self {
        Rewatch { store, watch: Some(watch) }
    }

    /// Ends the watch inside; the next event is then the snapshot of a new one.
    pub(super) fn break_off(&mut self) {
        self.watch = None;
    }

    /// The next event, from a new watch if the last one was broken off: that one begins with a snapshot. Nothing is
    /// lost if the caller stops waiting.
    pub(super) async fn next(&mut self) -> Option<WatchEvent> {
        loop {
            if let Some(watch) = &mut self.watch {
                return watch.next().await;
            }
            match self.store.watch().await {
                Ok(Some(watch)) => self.watch = Some(watch),
                Ok(None) => return None,
                Err(_) => tokio::time::sleep(AGAIN_AFTER).await,
            }
        }
    }
}
