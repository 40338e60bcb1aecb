//! The etcd store under the public conformance suite.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_servers::{Etcd as Server, EtcdSetup, Program};
use leasehold_store::conformance::{self, Fixture, Saved, Scale};
use leasehold_store::{Store, StoreError};
use tokio::sync::Mutex;

use crate::common::open;

struct EtcdFixture {
    server: Mutex<Server>,
    members: usize,
}

impl EtcdFixture {
    fn start(setup: EtcdSetup) -> Option<Self> {
        let members = setup.members;
        Some(EtcdFixture { server: Mutex::new(Server::start(setup)?), members })
    }
}

#[async_trait]
impl Fixture for EtcdFixture {
    async fn open(&self, namespace: &str) -> Result<Arc<dyn Store>, StoreError> {
        Ok(Arc::new(open(&*self.server.lock().await, namespace)))
    }

    async fn wipe(&self, namespace: &str) -> Option<()> {
        self.server.lock().await.ctl(&["del", "--prefix", &format!("/tests/{namespace}/")]);
        Some(())
    }

    async fn save(&self, _namespace: &str) -> Option<Saved> {
        let server = self.server.lock().await;
        let file = server.folder().join(self.fresh_namespace("saved"));
        (self.members == 1).then(|| server.save(&file))?;
        Some(Box::new(file))
    }

    async fn roll_back(&self, _namespace: &str, saved: Saved) -> Option<()> {
        let token = self.fresh_namespace("restored");
        self.server.lock().await.restore(saved.downcast_ref::<PathBuf>()?, Some(&token));
        Some(())
    }

    async fn put_raw(&self, namespace: &str, key: &str, bytes: &[u8]) -> Option<()> {
        let (key, value) = (format!("/tests/{namespace}/{key}"), String::from_utf8(bytes.to_vec()).ok()?);
        self.server.lock().await.ctl(&["put", "--", &key, &value]);
        Some(())
    }

    async fn break_watches(&self, _namespace: &str) -> Option<()> {
        self.server.lock().await.restart();
        Some(())
    }

    async fn restart(&self) -> Option<()> {
        self.server.lock().await.restart();
        Some(())
    }

    fn scale(&self) -> Scale {
        // A ttl below about two seconds is not to be had from etcd.
        Scale { lease_ttl: Duration::from_secs(2), ..Scale::default() }
    }
}

async fn the_contract_holds(setup: EtcdSetup) {
    let Some(fixture) = EtcdFixture::start(setup) else { return };
    conformance::assert_all(&fixture).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_contract_holds_on_3_4() {
    the_contract_holds(EtcdSetup::single(Program::Etcd34)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_contract_holds_on_3_5() {
    the_contract_holds(EtcdSetup::single(Program::Etcd35)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_contract_holds_on_three_members() {
    the_contract_holds(EtcdSetup::single(Program::Etcd35).members(3)).await;
}
