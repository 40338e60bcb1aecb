//! The Kubernetes store under the public conformance suite, with every lever that an API server has.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::PostParams;
use leasehold_kubernetes::Kubernetes;
use leasehold_servers::Kubernetes as Server;
use leasehold_store::conformance::{self, Fixture, Saved, Scale};
use leasehold_store::{Key, Store, StoreError};
use tokio::sync::Mutex;

use crate::common::{annotation, leases, options, stranger};

struct KubernetesFixture {
    server: Mutex<Server>,
    kubeconfig: PathBuf,
}

#[async_trait]
impl Fixture for KubernetesFixture {
    async fn open(&self, namespace: &str) -> Result<Arc<dyn Store>, StoreError> {
        let store = Kubernetes::open_with(options(&self.kubeconfig), namespace);
        // The suite expects an open client to answer within milliseconds, so the connection is made here.
        store.read(&[Key::Meta]).await?;
        Ok(Arc::new(store))
    }

    async fn wipe(&self, namespace: &str) -> Option<()> {
        let label = format!("leasehold.dev/namespace={namespace}");
        let said = self.server.lock().await.kubectl(&["delete", "leases", "-l", &label]);
        assert!(said.good, "{}", said.text);
        Some(())
    }

    async fn save(&self, _namespace: &str) -> Option<Saved> {
        Some(Box::new(self.server.lock().await.backup()))
    }

    async fn roll_back(&self, _namespace: &str, saved: Saved) -> Option<()> {
        self.server.lock().await.restore(saved.downcast_ref::<PathBuf>()?);
        Some(())
    }

    async fn put_raw(&self, namespace: &str, key: &str, bytes: &[u8]) -> Option<()> {
        let client = stranger(&*self.server.lock().await).await;
        let (api, found) = leases(&client, namespace).await;
        let record = String::from_utf8(bytes.to_vec()).ok()?;
        if let Some(mut lease) = found.into_iter().find(|lease| annotation(lease, "leasehold.dev/key") == key)
        {
            let annotations = lease.metadata.annotations.as_mut().expect("it has some");
            annotations.insert("leasehold.dev/record".into(), record);
            let name = lease.metadata.name.clone().expect("it has a name");
            api.replace(&name, &PostParams::default(), &lease).await.expect("a stranger may write");
            return Some(());
        }
        // As if one of ours had been copied.
        let owned = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let labels = [("leasehold.dev/prefix", "leasehold"), ("leasehold.dev/namespace", namespace)];
        let annotations = [
            ("leasehold.dev/key", key),
            ("leasehold.dev/namespace", namespace),
            ("leasehold.dev/record", &record),
        ];
        let lease = Lease {
            metadata: ObjectMeta {
                name: Some(self.fresh_namespace("stray")),
                labels: Some(owned(&labels)),
                annotations: Some(owned(&annotations)),
                ..ObjectMeta::default()
            },
            ..Lease::default()
        };
        api.create(&PostParams::default(), &lease).await.expect("a stranger may write");
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
        // Two pages of a listing and more; ten thousand creations would take the server a minute.
        let (patience, lease_ttl) = (Duration::from_secs(30), Duration::from_secs(1));
        Scale { shards: 1_200, patience, lease_ttl, ..Scale::default() }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_contract_holds() {
    let Some(server) = Server::start(&[]) else { return };
    let kubeconfig = server.kubeconfig("admin");
    let fixture = KubernetesFixture { server: Mutex::new(server), kubeconfig };
    conformance::assert_all(&fixture).await;
}
