use std::fmt;
use std::future::Future;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use http::Request;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::WatchEvent;
use kube::{Client, Config};
use leasehold_store::StoreError;
use serde::de::DeserializeOwned;
use tracing::instrument::WithSubscriber;
use tracing::subscriber::NoSubscriber;

use crate::options::Options;
use crate::trouble::{Trouble, refused};

/// How long connecting may take.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// Connections to the API server of one's own, so that nothing waits in front of a renewal.
///
/// A call that fails without an answer, or is dropped before it has one, throws the connections away: the next one
/// starts anew, with credentials read anew. There are no retries.
pub(crate) struct Link {
    options: Options,
    current: Mutex<Current>,
    making: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Current {
    number: u64,
    client: Option<Client>,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Link")
    }
}

impl Link {
    pub(crate) fn new(options: Options) -> Self {
        Link { options, current: Mutex::default(), making: tokio::sync::Mutex::default() }
    }

    /// The Kubernetes namespace that is asked.
    pub(crate) async fn namespace(&self) -> Result<String, StoreError> {
        match &self.options.kube_namespace {
            Some(namespace) => Ok(namespace.clone()),
            None => Ok(self.client().await?.1.default_namespace().to_owned()),
        }
    }

    /// Asks once, and waits at most so long for the answer.
    pub(crate) async fn ask<T: DeserializeOwned>(
        &self,
        within: Duration,
        request: Request<Vec<u8>>,
    ) -> Result<T, Trouble> {
        let attempt = self.attempt().await.map_err(Trouble::Told)?;
        let answer = match tokio::time::timeout(within, quiet(attempt.client.request::<T>(request))).await {
            Ok(answer) => answer.map_err(Trouble::from),
            Err(_) => Err(Trouble::TimedOut),
        };
        attempt.judge(answer)
    }

    /// Opens a watch.
    pub(crate) async fn follow<T: Clone + DeserializeOwned + Send + 'static>(
        &self,
        within: Duration,
        request: Request<Vec<u8>>,
    ) -> Result<BoxStream<'static, kube::Result<WatchEvent<T>>>, Trouble> {
        let attempt = self.attempt().await.map_err(Trouble::Told)?;
        let opening = quiet(attempt.client.request_events::<T>(request));
        let answer = match tokio::time::timeout(within, opening).await {
            Ok(answer) => answer.map(|events| events.boxed()).map_err(Trouble::from),
            Err(_) => Err(Trouble::TimedOut),
        };
        attempt.judge(answer)
    }

    async fn attempt(&self) -> Result<Attempt<'_>, StoreError> {
        let (number, client) = self.client().await?;
        Ok(Attempt { link: self, number, client, answered: false })
    }

    async fn client(&self) -> Result<(u64, Client), StoreError> {
        if let Some(found) = self.found() {
            return Ok(found);
        }
        let _only_one_makes_it = self.making.lock().await;
        if let Some(found) = self.found() {
            return Ok(found);
        }
        let client = connect(&self.options).await?;
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.number += 1;
        current.client = Some(client.clone());
        Ok((current.number, client))
    }

    fn found(&self) -> Option<(u64, Client)> {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        Some((current.number, current.client.clone()?))
    }

    fn discard(&self, number: u64) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.number == number {
            current.client = None;
        }
    }
}

/// One call under way.
struct Attempt<'l> {
    link: &'l Link,
    number: u64,
    client: Client,
    answered: bool,
}

impl Attempt<'_> {
    fn judge<T>(mut self, answer: Result<T, Trouble>) -> Result<T, Trouble> {
        self.answered = match &answer {
            Ok(_) => true,
            // Credentials that were refused are read anew.
            Err(trouble) => trouble.code().is_some_and(|code| code != 401),
        };
        answer
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if !self.answered {
            self.link.discard(self.number);
        }
    }
}

/// The client's own log speaks of every failure, and with whole records; what matters of it is in our errors.
pub(crate) fn quiet<F: Future>(call: F) -> impl Future<Output = F::Output> {
    call.with_subscriber(NoSubscriber::default())
}

async fn connect(options: &Options) -> Result<Client, StoreError> {
    let mut config = configuration(options).await?;
    if let Some(via) = &options.via {
        pass(&mut config, via)?;
    }
    client(config)
}

/// The host and port of the API server.
pub(crate) async fn server(options: &Options) -> Result<Option<String>, StoreError> {
    let url = configuration(options).await?.cluster_url;
    let usual = if url.scheme_str() == Some("http") { 80 } else { 443 };
    Ok(url.host().map(|host| format!("{host}:{}", url.port_u16().unwrap_or(usual))))
}

/// Connects to somebody who passes everything on; the certificate must still be that of the API server.
fn pass(config: &mut Config, via: &str) -> Result<(), StoreError> {
    let host = config.cluster_url.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    config.tls_server_name.get_or_insert(host);
    let mut parts = config.cluster_url.clone().into_parts();
    parts.authority = via.parse().ok();
    config.cluster_url = http::Uri::from_parts(parts)
        .map_err(|e| refused(format!("the API server cannot be reached via {via}: {e}")))?;
    Ok(())
}

/// A client of this configuration that retries nothing.
pub(crate) fn client(mut config: Config) -> Result<Client, StoreError> {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Another thread may have been faster, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    // A retry inside the client could find its own first try, and would outlast the deadlines.
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT_WITHIN);
    config.read_timeout = None;
    config.write_timeout = None;
    Client::try_from(config).map_err(|e| refused(format!("no client for the API server can be made: {e}")))
}

async fn configuration(options: &Options) -> Result<Config, StoreError> {
    let chosen = KubeConfigOptions { context: options.context.clone(), ..KubeConfigOptions::default() };
    let wrong = |e: &dyn std::error::Error| {
        refused(format!(
            "the API server cannot be found: {e}. Name a kubeconfig: k8s://namespace?kubeconfig=…"
        ))
    };
    match &options.kubeconfig {
        Some(path) => {
            let read = Kubeconfig::read_from(path)
                .map_err(|e| refused(format!("the kubeconfig {}: {e}", path.display())))?;
            Config::from_custom_kubeconfig(read, &chosen)
                .await
                .map_err(|e| refused(format!("the kubeconfig {}: {e}", path.display())))
        }
        None if options.context.is_some() => Config::from_kubeconfig(&chosen).await.map_err(|e| wrong(&e)),
        None => Config::infer().await.map_err(|e| wrong(&e)),
    }
}
