use std::future::Future;
use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold_local::Local;
use leasehold_servers::words;
pub(crate) use leasehold_servers::words::{applied, key, next, now, put, read, remove, swap, until};
use leasehold_store::{Key, Listing, Stored, Watch, WatchEvent};
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

pub(crate) fn run<T>(test: impl Future<Output = T>) -> T {
    words::run_within(PLENTY, test)
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

/// Waits until all connections are closed, so that everything is in the one file.
pub(crate) fn checkpoint(file: &Path) {
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
