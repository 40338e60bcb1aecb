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
use leasehold_servers::words;
pub(crate) use leasehold_servers::words::{applied, key, now, put, read, swap};

/// Longer than anything here takes, so that a test that hangs fails instead.
pub(crate) const PLENTY: Duration = Duration::from_secs(150);

/// Who may do nothing until a test binds a role to them.
pub(crate) const NOBODY: &str = "nobody";
/// Who gets to read in one test.
pub(crate) const READER: &str = "reader";
/// The service account that the manifests make.
pub(crate) const ACCOUNT: &str = "system:serviceaccount:workers:leasehold";

/// The server that tests share which don't disturb it; it ends with the last of them.
pub(crate) fn shared() -> Option<Arc<Server>> {
    static SHARED: Mutex<Weak<Server>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(server) = shared.upgrade() {
        return Some(server);
    }
    let server = Arc::new(Server::start(&[NOBODY, READER, ACCOUNT])?);
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

pub(crate) fn run<T>(test: impl Future<Output = T>) -> T {
    words::run_within(PLENTY, test)
}
