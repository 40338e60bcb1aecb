use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_core::store::StoreError;

use super::{Fixture, Saved};
use crate::Store;
use crate::memory::{MemoryServer, MemorySnapshot};

/// The memory store under the suite, with all levers. It shows how a fixture is written.
#[derive(Debug, Default)]
pub struct MemoryFixture {
    /// The server that all namespaces are on.
    pub server: MemoryServer,
}

#[async_trait]
impl Fixture for MemoryFixture {
    async fn open(&self, namespace: &str) -> Result<Arc<dyn Store>, StoreError> {
        Ok(Arc::new(self.server.open(namespace)))
    }

    async fn wipe(&self, _namespace: &str) -> Option<()> {
        self.server.wipe();
        Some(())
    }

    async fn save(&self, _namespace: &str) -> Option<Saved> {
        Some(Box::new(self.server.snapshot()))
    }

    async fn roll_back(&self, _namespace: &str, saved: Saved) -> Option<()> {
        self.server.restore(saved.downcast_ref::<MemorySnapshot>()?);
        Some(())
    }

    async fn put_raw(&self, namespace: &str, key: &str, bytes: &[u8]) -> Option<()> {
        self.server.put_raw(namespace, key, bytes);
        Some(())
    }

    async fn break_watches(&self, _namespace: &str) -> Option<()> {
        self.server.drop_watchers();
        Some(())
    }

    async fn restart(&self) -> Option<()> {
        self.server.restart();
        Some(())
    }

    async fn let_pass(&self, time: Duration) {
        self.server.advance(time);
    }
}
