//! The local store under the public conformance suite, with every lever that a file has.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use leasehold_local::Local;
use leasehold_store::conformance::{self, Fixture, Saved};
use leasehold_store::{Store, StoreError};
use rusqlite::Connection;

use crate::common::Folder;

struct LocalFixture {
    folder: Folder,
}

impl LocalFixture {
    /// A stranger's connection, as a person with the sqlite3 shell has.
    fn shell(&self) -> Connection {
        let shell = Connection::open(self.folder.file()).expect("the file opens");
        shell.busy_timeout(std::time::Duration::from_secs(10)).expect("a timeout can be set");
        shell
    }
}

#[async_trait]
impl Fixture for LocalFixture {
    async fn open(&self, namespace: &str) -> Result<Arc<dyn Store>, StoreError> {
        Ok(Arc::new(Local::open(self.folder.file(), namespace)?))
    }

    async fn wipe(&self, namespace: &str) -> Option<()> {
        self.shell()
            .execute("DELETE FROM records WHERE namespace = ?1", [namespace])
            .expect("rows can be deleted");
        Some(())
    }

    async fn save(&self, _namespace: &str) -> Option<Saved> {
        let copy = self.folder.dir.path().join(self.fresh_namespace("backup"));
        self.shell().execute("VACUUM INTO ?1", [copy.to_str()?]).expect("a backup can be made");
        Some(Box::new(copy))
    }

    async fn roll_back(&self, _namespace: &str, saved: Saved) -> Option<()> {
        std::fs::rename(saved.downcast_ref::<PathBuf>()?, self.folder.file())
            .expect("a backup can be put back");
        Some(())
    }

    async fn put_raw(&self, namespace: &str, key: &str, bytes: &[u8]) -> Option<()> {
        let shell = self.shell();
        shell
            .execute_batch("BEGIN IMMEDIATE; UPDATE store SET revision = revision + 1;")
            .expect("a transaction");
        shell
            .execute(
                "INSERT OR REPLACE INTO records (namespace, key, version, value)
                 SELECT ?1, ?2, revision, ?3 FROM store",
                (namespace, key, bytes),
            )
            .expect("a row can be written");
        shell.execute_batch("COMMIT").expect("a commit");
        Some(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_contract_holds() {
    conformance::assert_all(&LocalFixture { folder: Folder::new() }).await;
}
