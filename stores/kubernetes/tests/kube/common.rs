use std::future::Future;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::ListParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use leasehold_kubernetes::{Kubernetes, Options};
use leasehold_servers::Kubernetes as Server;
use leasehold_store::{Key, Lane, Store, Stored, Swap, Swapped, Version};

/// Longer than anything here takes, so that a test that hangs fails instead.
pub(crate) const PLENTY: Duration = Duration::from_secs(150);

/// Who may do nothing until a test binds a role to them.
pub(crate) const NOBODY: &str = "nobody";
/// The service account that the manifests make.
pub(crate) const ACCOUNT: &str = "system:serviceaccount:workers:leasehold";

/// The server that tests share which don't disturb it; it ends with the last of them.
pub(crate) fn shared() -> Option<Arc<Server>> {
    static SHARED: Mutex<Weak<Server>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(server) = shared.upgrade() {
        return Some(server);
    }
    let server = Arc::new(Server::start(&[NOBODY, ACCOUNT])?);
    *shared = Arc::downgrade(&server);
    Some(server)
}

/// Options that don't hold a test back.
pub(crate) fn options(kubeconfig: &Path) -> Options {
    Options {
        kube_namespace: Some("default".to_owned()),
        kubeconfig: Some(kubeconfig.to_owned()),
        writes_per_second: 10_000,
        writes_burst: 10_000,
        ..Options::default()
    }
}

pub(crate) fn open(server: &Server, namespace: &str) -> Kubernetes {
    Kubernetes::open_with(options(&server.kubeconfig("admin")), namespace)
}

/// A stranger's client, who knows nothing of Leasehold.
pub(crate) async fn stranger(server: &Server) -> Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let kubeconfig = Kubeconfig::read_from(server.kubeconfig("admin")).expect("a kubeconfig");
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    Client::try_from(config.expect("a configuration")).expect("a client")
}

/// All Leases of one namespace of Leasehold, as a stranger sees them.
pub(crate) async fn leases(client: &Client, namespace: &str) -> (Api<Lease>, Vec<Lease>) {
    let api: Api<Lease> = Api::namespaced(client.clone(), "default");
    let selected = ListParams::default().labels(&format!("leasehold.dev/namespace={namespace}"));
    let found = api.list(&selected).await.expect("a listing").items;
    (api, found)
}

pub(crate) fn annotation<'l>(lease: &'l Lease, name: &str) -> &'l str {
    let found = lease.metadata.annotations.as_ref().and_then(|all| all.get(name));
    found.map_or("", String::as_str)
}

pub(crate) fn key(text: &str) -> Key {
    text.parse().expect("a key")
}

pub(crate) fn put(at: &str, expect: Option<&Version>, value: &[u8]) -> Swap {
    Swap { key: key(at), expect: expect.cloned(), value: Some(Arc::from(value)) }
}

pub(crate) async fn swap(store: &Kubernetes, swap: Swap) -> Swapped {
    let reply = store.swap(Lane::Work, &[swap]).await.expect("the swap is answered");
    reply.outcomes.into_iter().next().expect("one outcome")
}

/// Swaps and expects to win.
pub(crate) async fn applied(store: &Kubernetes, wish: Swap) -> Version {
    match swap(store, wish).await {
        Swapped::Applied(version) => version,
        other => panic!("not applied: {other:?}"),
    }
}

pub(crate) async fn read(store: &Kubernetes, at: &str) -> Option<Stored> {
    store.read(&[key(at)]).await.expect("the read is answered").found.remove(0)
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

/// The time, on a clock that only runs forward.
pub(crate) fn now() -> Duration {
    leasehold::clock::now().since(leasehold::Moment::ZERO)
}
