use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use leasehold_local::Local;
use leasehold_store::{Key, Lane, Listing, Store, Stored, Swap, Swapped, Version, Watch, WatchEvent};
use tempfile::TempDir;

/// Longer than anything here takes, so that a test that hangs fails instead.
pub(crate) const PLENTY: Duration = Duration::from_secs(60);

/// A folder with a store's file in it, removed in the end.
pub(crate) struct Folder {
    pub(crate) dir: TempDir,
}

impl Folder {
    pub(crate) fn new() -> Self {
        Folder { dir: TempDir::new().expect("a folder for the test") }
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.dir.path().join("x.db")
    }

    pub(crate) fn open(&self) -> Local {
        Local::open(self.file(), "test").expect("the store opens")
    }
}

/// Runs a test on a runtime of its own, within bounds.
pub(crate) fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime for the test");
    runtime.block_on(async { tokio::time::timeout(PLENTY, test).await.expect("the test hangs") })
}

pub(crate) fn key(text: &str) -> Key {
    text.parse().expect("a key")
}

pub(crate) fn put(at: &str, expect: Option<&Version>, value: &[u8]) -> Swap {
    Swap { key: key(at), expect: expect.cloned(), value: Some(Arc::from(value)) }
}

pub(crate) fn remove(at: &str, expect: &Version) -> Swap {
    Swap { key: key(at), expect: Some(expect.clone()), value: None }
}

pub(crate) async fn swap(store: &Local, swap: Swap) -> Swapped {
    let reply = store.swap(Lane::Work, &[swap]).await.expect("the swap is answered");
    reply.outcomes.into_iter().next().expect("one outcome")
}

/// Swaps and expects to win.
pub(crate) async fn applied(store: &Local, wish: Swap) -> Version {
    match swap(store, wish).await {
        Swapped::Applied(version) => version,
        other => panic!("not applied: {other:?}"),
    }
}

pub(crate) async fn read(store: &Local, at: &str) -> Option<Stored> {
    store.read(&[key(at)]).await.expect("the read is answered").found.remove(0)
}

pub(crate) async fn next(watch: &mut Watch) -> WatchEvent {
    watch.next().await.expect("a watch never ends")
}

pub(crate) async fn snapshot(watch: &mut Watch) -> Listing {
    match next(watch).await {
        WatchEvent::Snapshot(listing) => listing,
        other => panic!("no snapshot: {other:?}"),
    }
}

pub(crate) async fn changed(watch: &mut Watch) -> Vec<(Key, Option<Stored>)> {
    match next(watch).await {
        WatchEvent::Changed(changes) => changes,
        other => panic!("no change: {other:?}"),
    }
}

/// The time, on a clock that only runs forward.
pub(crate) fn now() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Waits until all connections are closed, so that everything is in the one file.
pub(crate) fn settle(file: &Path) {
    let mut wal = file.as_os_str().to_owned();
    wal.push("-wal");
    for _ in 0..500 {
        // Two that close at the same moment each leave the tidying to the other, so a third does it.
        drop(rusqlite::Connection::open(file).and_then(|last| last.execute_batch("SELECT * FROM store")));
        if !Path::new(&wal).exists() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("the store was not closed");
}
