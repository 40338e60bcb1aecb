use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::future::BoxFuture;
use leasehold_core::store::StoreError;

use crate::Store;

/// How the suite gets at a kind of store. Only `open` is needed; the others are levers and sizes.
///
/// A lever that a fixture does not have answers `None`: the properties that need it are reported as skipped.
#[async_trait]
pub trait Fixture: Send + Sync {
    /// The name of a namespace that never was used before, also not by earlier runs on the same server. `hint` says
    /// what for; it has only lower-case letters and dashes.
    fn fresh_namespace(&self, hint: &str) -> String {
        static NAMES: AtomicU64 = AtomicU64::new(0);
        format!("{hint}-{}-{}", std::process::id(), NAMES.fetch_add(1, Ordering::Relaxed))
    }

    /// A client of this namespace. Called twice with the same name, it opens two clients that are as independent of
    /// each other as those of two machines.
    async fn open(&self, namespace: &str) -> Result<Arc<dyn Store>, StoreError>;

    /// Lever: opens a client that waits for a step before each request that it sends to its server, or each part that it
    /// reads: the suite writes then, so that what is read in parts is never of one moment. Without it the suite writes all
    /// the time and relies on chance.
    async fn open_stepped(&self, namespace: &str, step: Step) -> Option<Result<Arc<dyn Store>, StoreError>> {
        let _ = (namespace, step);
        None
    }

    /// Lever: removes everything in the namespace, behind the clients' backs.
    async fn wipe(&self, namespace: &str) -> Option<()> {
        let _ = namespace;
        None
    }

    /// Lever: makes a backup to roll back to.
    async fn save(&self, namespace: &str) -> Option<Saved> {
        let _ = namespace;
        None
    }

    /// Lever, there if `save` is: restores the backup, behind the clients' backs.
    async fn roll_back(&self, namespace: &str, saved: Saved) -> Option<()> {
        let _ = (namespace, saved);
        None
    }

    /// Lever: writes bytes under a key's name as text, unconditionally, as a stranger with access could. The name
    /// need not be one of Leasehold's.
    async fn put_raw(&self, namespace: &str, key: &str, bytes: &[u8]) -> Option<()> {
        let _ = (namespace, key, bytes);
        None
    }

    /// Lever: breaks the watches of the namespace (a lost connection, a compaction).
    async fn break_watches(&self, namespace: &str) -> Option<()> {
        let _ = namespace;
        None
    }

    /// Lever: stops the server and starts it again on the same data.
    async fn restart(&self) -> Option<()> {
        None
    }

    /// Lets time pass for the leases of registered keys. Sleeps, unless the store has a clock of its own.
    async fn let_pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    /// How large the tests are.
    fn scale(&self) -> Scale {
        Scale::default()
    }
}

/// What happens before a request is sent; see [`Fixture::open_stepped`].
pub type Step = Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

/// A backup that [`Fixture::save`] made; only the fixture knows what is in it.
pub type Saved = Box<dyn Any + Send>;

/// How large the tests are, and how patient.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scale {
    /// How many writers race.
    pub racers: usize,
    /// How often each of them must win.
    pub wins: usize,
    /// How many shards are listed.
    pub shards: usize,
    /// How long something that must happen by itself may take: a watch telling of a change, a server coming back.
    pub patience: Duration,
    /// How long one property may take in all.
    pub property_timeout: Duration,
    /// The ttl of leases of registered keys; as short as the store can do.
    pub lease_ttl: Duration,
}

impl Default for Scale {
    fn default() -> Self {
        Scale {
            racers: 8,
            wins: 12,
            shards: 10_000,
            patience: Duration::from_secs(10),
            property_timeout: Duration::from_secs(120),
            lease_ttl: Duration::from_secs(2),
        }
    }
}
