//! One controller for many clusters: a named shard for each remote cluster whose kubeconfig is in a labelled Secret.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ListParams, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ObjectList, Request, WatchEvent};
use kube::{Client, Config};
use leasehold_store::{StoreError, rng};

use crate::client::{self, ApiClient};
use crate::error::{ApiCall, refused};
use crate::options::Options;

/// The label that makes a Secret a cluster.
const LABEL: &str = "leasehold.dev/cluster=true";
/// The key of the kubeconfig in a Secret.
const KUBECONFIG: &str = "kubeconfig";
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// A watch that is silent for this long is restarted.
const SILENT_FOR_MAX: Duration = Duration::from_secs(75);
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// The remote clusters that the Secrets of one namespace describe: those with the label `leasehold.dev/cluster=true`
/// and a kubeconfig under `kubeconfig`. A cluster's name is its Secret's.
#[derive(Debug)]
pub struct Clusters {
    link: ApiClient,
    known: Mutex<BTreeMap<String, Cluster>>,
}

/// What became of a cluster: engage its shard, or disengage it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterChange {
    /// It is there. It may be reported again: engaging a shard again changes nothing.
    There(String),
    /// Its Secret is gone: seen so by a watch or a complete listing, never guessed from an error.
    Gone(String),
}

/// A remote cluster.
#[derive(Clone)]
pub struct Cluster {
    name: String,
    kubeconfig: Kubeconfig,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cluster({})", self.name)
    }
}

impl Cluster {
    /// Its name, which is a good name for its shard.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A client for it, which retries nothing: the holder of the shard decides what to retry, and first checks
    /// that it still holds it.
    pub async fn client(&self) -> Result<Client, StoreError> {
        let config = Config::from_custom_kubeconfig(self.kubeconfig.clone(), &KubeConfigOptions::default())
            .await
            .map_err(|e| {
                refused(format!("the kubeconfig of the cluster {}: {}", self.name, client::told(&e)))
            })?;
        client::client(config)
    }

    /// A kubeconfig in a Secret must be self-contained. One that starts a program or reads files would let anyone who may
    /// write the Secret act inside this process.
    fn of(secret: &Secret) -> Result<Self, String> {
        let name = secret.metadata.name.clone().unwrap_or_default();
        let text = secret.data.as_ref().and_then(|data| data.get(KUBECONFIG));
        let text = text.ok_or_else(|| format!("it has no key `{KUBECONFIG}`"))?;
        let text = std::str::from_utf8(&text.0).map_err(|_| "its kubeconfig is not text".to_owned())?;
        let kubeconfig =
            Kubeconfig::from_yaml(text).map_err(|e| format!("its kubeconfig: {}", client::told(&e)))?;
        for user in kubeconfig.auth_infos.iter().filter_map(|user| user.auth_info.as_ref()) {
            if user.exec.is_some() || user.auth_provider.is_some() {
                return Err("its kubeconfig starts a program (exec or auth-provider): use a token".to_owned());
            }
            if user.token_file.is_some() || user.client_certificate.is_some() || user.client_key.is_some() {
                return Err("its kubeconfig reads files: embed the data in it".to_owned());
            }
        }
        let clusters = kubeconfig.clusters.iter().filter_map(|cluster| cluster.cluster.as_ref());
        if clusters.into_iter().any(|cluster| cluster.certificate_authority.is_some()) {
            return Err("its kubeconfig reads files: use certificate-authority-data".to_owned());
        }
        Ok(Cluster { name, kubeconfig })
    }
}

impl Clusters {
    /// The Secrets of the namespace that these options name. RBAC must allow to list and watch them: `deploy/clusters`.
    pub fn new(options: Options) -> Self {
        Clusters { link: ApiClient::new(options), known: Mutex::default() }
    }

    /// A cluster as it was seen last, with its newest kubeconfig.
    pub fn get(&self, name: &str) -> Option<Cluster> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// Follows the Secrets forever and reports what to engage and what to disengage. Errors are logged and retried;
    /// meanwhile nothing is disengaged.
    pub async fn follow(&self, mut tell: impl FnMut(ClusterChange)) -> Infallible {
        let mut pause = PAUSE.0;
        loop {
            match self.round(&mut tell).await {
                Ok(()) => pause = PAUSE.0,
                Err(error) => {
                    tracing::warn!(%error, "cannot watch the Secrets of the clusters; nothing is disengaged");
                    pause = (pause * 2).min(PAUSE.1);
                }
            }
            tokio::time::sleep(pause + rng::up_to(pause)).await;
        }
    }

    /// One listing and the watch after it, until that ends.
    async fn round(&self, tell: &mut impl FnMut(ClusterChange)) -> Result<(), StoreError> {
        let namespace = self.link.namespace().await?;
        let requests = Request::new(format!("/api/v1/namespaces/{namespace}/secrets"));
        let unbuilt = |e: kube::core::request::Error| refused(format!("cannot build the request: {e}"));
        let listing = requests.list(&ListParams::default().labels(LABEL)).map_err(unbuilt)?;
        let list: ObjectList<Secret> = self
            .link
            .ask(ANSWER_WITHIN, listing)
            .await
            .map_err(|error| error.into_store_error(&ApiCall::of_secrets("list", &namespace)))?;
        let there: BTreeSet<String> =
            list.items.iter().filter_map(|secret| secret.metadata.name.clone()).collect();
        for secret in &list.items {
            self.note(secret, tell);
        }
        let known: Vec<String> =
            self.known.lock().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect();
        for gone in known.into_iter().filter(|name| !there.contains(name)) {
            self.forget(gone, tell);
        }
        let place = list.metadata.resource_version.unwrap_or_default();
        let watch =
            requests.watch(&WatchParams::default().labels(LABEL).timeout(290), &place).map_err(unbuilt)?;
        let mut events = self
            .link
            .follow::<Secret>(ANSWER_WITHIN, watch)
            .await
            .map_err(|error| error.into_store_error(&ApiCall::of_secrets("watch", &namespace)))?;
        while let Ok(Some(Ok(event))) =
            tokio::time::timeout(SILENT_FOR_MAX, client::quiet(events.next())).await
        {
            match event {
                WatchEvent::Added(secret) | WatchEvent::Modified(secret) => self.note(&secret, tell),
                WatchEvent::Deleted(secret) => self.forget(secret.metadata.name.unwrap_or_default(), tell),
                WatchEvent::Bookmark(_) => {}
                WatchEvent::Error(_) => break,
            }
        }
        Ok(())
    }

    fn note(&self, secret: &Secret, tell: &mut impl FnMut(ClusterChange)) {
        match Cluster::of(secret) {
            Ok(cluster) => {
                let name = cluster.name.clone();
                self.known.lock().unwrap_or_else(PoisonError::into_inner).insert(name.clone(), cluster);
                tell(ClusterChange::There(name));
            }
            // A cluster that was valid stays as it was; otherwise no node would manage it.
            Err(problem) => {
                let name = secret.metadata.name.as_deref().unwrap_or_default();
                tracing::warn!(secret = name, problem, "a Secret with the label of a cluster is invalid");
            }
        }
    }

    fn forget(&self, name: String, tell: &mut impl FnMut(ClusterChange)) {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(&name);
        if known.is_some() {
            tell(ClusterChange::Gone(name));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(user: &str, cluster: &str) -> Secret {
        let text = format!(
            "clusters: [{{name: c, cluster: {{server: 'https://h', {cluster}}}}}]\nusers: [{{name: u, user: {{{user}}}}}]\n"
        );
        let data = [(KUBECONFIG.to_owned(), k8s_openapi::ByteString(text.into_bytes()))];
        Secret { data: Some(data.into()), ..Secret::default() }
    }

    #[test]
    fn a_kubeconfig_that_acts_in_this_process_is_refused() {
        Cluster::of(&secret("token: t", "certificate-authority-data: YQ==")).unwrap();
        for (user, cluster) in [
            ("exec: {apiVersion: client.authentication.k8s.io/v1, command: id}", ""),
            ("tokenFile: /etc/shadow", ""),
            ("client-key: /etc/shadow", ""),
            ("token: t", "certificate-authority: /etc/passwd"),
        ] {
            let problem = Cluster::of(&secret(user, cluster)).unwrap_err();
            assert!(problem.contains("program") || problem.contains("files"), "{problem}");
        }
        assert!(Cluster::of(&Secret::default()).is_err());
    }
}
