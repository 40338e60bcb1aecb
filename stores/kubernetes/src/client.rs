use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use http::{HeaderMap, Request, header};
use k8s_openapi::jiff::{Timestamp, fmt::rfc2822};
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::core::{Status, WatchEvent};
use kube::{Client, Config};
use leasehold_store::{StoreError, StoreErrorKind};
use serde::de::DeserializeOwned;
use tokio::sync::{Semaphore, oneshot};
use tracing::instrument::WithSubscriber;
use tracing::subscriber::NoSubscriber;

use crate::error::{ApiError, refused};
use crate::options::Options;

/// How long connecting may take.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// How many threads may wait for programs that make credentials.
const ASIDE_MAX: usize = 8;

/// A client with its own connections to the API server, so that nothing delays a renewal.
///
/// A call that fails without an answer, or is dropped before it has one, closes the connections: the next call opens new
/// ones and reads the credentials again. There are no retries.
pub(crate) struct ApiClient {
    options: Options,
    current: Mutex<Current>,
    making: tokio::sync::Mutex<()>,
    aside: Arc<Semaphore>,
}

#[derive(Default)]
struct Current {
    number: u64,
    made: Option<Made>,
}

#[derive(Clone)]
struct Made {
    client: Client,
    /// A program makes the credentials. The client starts it when they run out, and lets nothing else run until it
    /// ends, so every call that may come to this is made aside.
    by_program: bool,
}

impl fmt::Debug for ApiClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiClient")
    }
}

impl ApiClient {
    pub(crate) fn new(options: Options) -> Self {
        ApiClient {
            options,
            current: Mutex::default(),
            making: tokio::sync::Mutex::default(),
            aside: Arc::new(Semaphore::new(ASIDE_MAX)),
        }
    }

    /// The Kubernetes namespace that is asked.
    pub(crate) async fn namespace(&self) -> Result<String, StoreError> {
        match &self.options.kube_namespace {
            Some(namespace) => Ok(namespace.clone()),
            None => {
                let (_, made) = tokio::time::timeout(CONNECT_WITHIN, self.made())
                    .await
                    .map_err(|_| no_credentials())??;
                Ok(made.client.default_namespace().to_owned())
            }
        }
    }

    /// Sends a request once, and waits at most this long for the answer.
    pub(crate) async fn ask<T: DeserializeOwned + Send + 'static>(
        &self,
        within: Duration,
        request: Request<Vec<u8>>,
    ) -> Result<T, ApiError> {
        self.ask_dated(within, request).await.answer
    }

    /// The same, with the time that the server's clock showed.
    pub(crate) async fn ask_dated<T: DeserializeOwned + Send + 'static>(
        &self,
        within: Duration,
        request: Request<Vec<u8>>,
    ) -> Dated<T> {
        let mut by_program = true;
        let asked = async {
            let attempt = match self.attempt().await {
                Ok(attempt) => attempt,
                Err(error) => return Dated { answer: Err(ApiError::Store(error)), at: None },
            };
            by_program = attempt.made.by_program;
            let client = attempt.made.client.clone();
            let call = async move { quiet(exchange(&client, request)).await };
            match self.perform(&attempt.made, call).await {
                Ok(Dated { answer, at }) => Dated { answer: attempt.judge(answer), at },
                Err(error) => Dated { answer: attempt.judge(Err(ApiError::Store(error))), at: None },
            }
        };
        let answer = tokio::time::timeout(within, asked).await;
        answer.unwrap_or_else(|_| Dated { answer: Err(late(by_program)), at: None })
    }

    /// Opens a watch.
    pub(crate) async fn follow<T: Clone + DeserializeOwned + Send + 'static>(
        &self,
        within: Duration,
        request: Request<Vec<u8>>,
    ) -> Result<BoxStream<'static, kube::Result<WatchEvent<T>>>, ApiError> {
        let mut by_program = true;
        let opened = async {
            let attempt = self.attempt().await.map_err(ApiError::Store)?;
            by_program = attempt.made.by_program;
            let client = attempt.made.client.clone();
            let call = async move {
                let events = quiet(client.request_events::<T>(request)).await;
                events.map(|events| events.boxed()).map_err(ApiError::from)
            };
            let answer = self.perform(&attempt.made, call).await.map_err(ApiError::Store).flatten();
            attempt.judge(answer)
        };
        tokio::time::timeout(within, opened).await.unwrap_or_else(|_| Err(late(by_program)))
    }

    async fn attempt(&self) -> Result<Attempt<'_>, StoreError> {
        let (number, made) = self.made().await?;
        Ok(Attempt { link: self, number, made, answered: false })
    }

    async fn made(&self) -> Result<(u64, Made), StoreError> {
        if let Some(found) = self.found() {
            return Ok(found);
        }
        let _only_one_makes_it = self.making.lock().await;
        if let Some(found) = self.found() {
            return Ok(found);
        }
        let options = self.options.clone();
        let made = self.aside(async move { connect(&options).await }).await??;
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.number += 1;
        current.made = Some(made.clone());
        Ok((current.number, made))
    }

    async fn perform<T: Send + 'static>(
        &self,
        made: &Made,
        call: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, StoreError> {
        match made.by_program {
            true => self.aside(call).await,
            false => Ok(call.await),
        }
    }

    /// Does it on a thread of its own, which a program that never ends may keep busy: the caller and the
    /// runtime can stop waiting.
    async fn aside<T: Send + 'static>(
        &self,
        call: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let lost = |_| refused("the thread of a call to the API server ended early".to_owned());
        let permit = self.aside.clone().acquire_owned().await.map_err(|_| lost(()))?;
        let (told, answer) = oneshot::channel();
        let runtime = tokio::runtime::Handle::current();
        let work = move || {
            // The caller may have stopped waiting.
            let _ = told.send(runtime.block_on(call));
            drop(permit);
        };
        std::thread::Builder::new()
            .name("leasehold-kube".to_owned())
            .spawn(work)
            .map_err(|e| refused(format!("cannot start a thread for a call to the API server: {e}")))?;
        answer.await.map_err(|_| lost(()))
    }

    fn found(&self) -> Option<(u64, Made)> {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        Some((current.number, current.made.clone()?))
    }

    fn discard(&self, number: u64) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.number == number {
            current.made = None;
        }
    }
}

/// An answer, good or not, with the time at which the server gave it by its own clock, if it says so.
pub(crate) struct Dated<T> {
    pub(crate) answer: Result<T, ApiError>,
    pub(crate) at: Option<Timestamp>,
}

/// Why there was no answer. Connecting takes no time unless a program makes the credentials.
fn late(by_program: bool) -> ApiError {
    if by_program { ApiError::Store(no_credentials()) } else { ApiError::TimedOut }
}

fn no_credentials() -> StoreError {
    StoreError::new(
        StoreErrorKind::TimedOut,
        "neither the API server nor the program that makes the credentials (exec in the kubeconfig) answered in time",
    )
}

/// One call under way.
struct Attempt<'l> {
    link: &'l ApiClient,
    number: u64,
    made: Made,
    answered: bool,
}

impl Attempt<'_> {
    fn judge<T>(mut self, answer: Result<T, ApiError>) -> Result<T, ApiError> {
        self.answered = match &answer {
            Ok(_) => true,
            // Rejected credentials are read again.
            Err(error) => error.code().is_some_and(|code| code != 401),
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

async fn exchange<T: DeserializeOwned>(client: &Client, request: Request<Vec<u8>>) -> Dated<T> {
    let answer = match client.send(request.map(Body::from)).await {
        Ok(answer) => answer,
        Err(error) => return Dated { answer: Err(error.into()), at: None },
    };
    let (at, code) = (date(answer.headers()), answer.status());
    let read = async {
        let body = answer.into_body().collect_bytes().await?;
        if code.is_success() {
            return serde_json::from_slice(&body).map_err(kube::Error::SerdeError);
        }
        // A proxy in between may send errors of its own.
        let told = serde_json::from_slice::<Status>(&body).ok().filter(|status| status.code != 0);
        let words = || Status::failure(String::from_utf8_lossy(&body).trim(), "").with_code(code.as_u16());
        Err(kube::Error::Api(Box::new(told.unwrap_or_else(words))))
    };
    Dated { answer: read.await.map_err(ApiError::from), at }
}

fn date(headers: &HeaderMap) -> Option<Timestamp> {
    let text = headers.get(header::DATE)?.to_str().ok()?;
    rfc2822::DateTimeParser::new().relaxed_weekday(true).parse_timestamp(text).ok()
}

/// The client library logs every failure with whole records; our own errors have what matters.
pub(crate) fn quiet<F: Future>(call: F) -> impl Future<Output = F::Output> {
    call.with_subscriber(NoSubscriber::default())
}

async fn connect(options: &Options) -> Result<Made, StoreError> {
    let mut config = configuration(options).await?;
    if let Some(via) = &options.via {
        pass(&mut config, via)?;
    }
    let by_program = config.auth_info.exec.is_some() || config.auth_info.auth_provider.is_some();
    Ok(Made { client: client(config)?, by_program })
}

/// The host and port of the API server.
pub(crate) async fn server(options: &Options) -> Result<Option<String>, StoreError> {
    let url = configuration(options).await?.cluster_url;
    let usual = if url.scheme_str() == Some("http") { 80 } else { 443 };
    Ok(url.host().map(|host| format!("{host}:{}", url.port_u16().unwrap_or(usual))))
}

/// Connects through a tunnel; the certificate must still be that of the API server.
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
        // Another thread may have been faster, which is fine.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    // A retry inside the client could find its own first try, and would outlast the deadlines.
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT_WITHIN);
    config.read_timeout = None;
    config.write_timeout = None;
    Client::try_from(config).map_err(|e| refused(format!("cannot create a client for the API server: {e}")))
}

async fn configuration(options: &Options) -> Result<Config, StoreError> {
    let chosen = KubeConfigOptions { context: options.context.clone(), ..KubeConfigOptions::default() };
    let refused_file =
        |path: &std::path::Path, e| refused(format!("the kubeconfig {}: {}", path.display(), told(&e)));
    let nowhere = |words: String| {
        refused(format!(
            "the API server cannot be found: {words}. Name a kubeconfig: k8s://namespace?kubeconfig=…"
        ))
    };
    match &options.kubeconfig {
        Some(path) => {
            let read = Kubeconfig::read_from(path).map_err(|e| refused_file(path, e))?;
            Config::from_custom_kubeconfig(read, &chosen).await.map_err(|e| refused_file(path, e))
        }
        None if options.context.is_some() => {
            Config::from_kubeconfig(&chosen).await.map_err(|e| nowhere(told(&e)))
        }
        None => Config::infer().await.map_err(|e| {
            let kubeconfig = std::error::Error::source(&e).and_then(|e| e.downcast_ref::<KubeconfigError>());
            match kubeconfig {
                Some(error @ KubeconfigError::Parse(_)) => nowhere(told(error)),
                _ => nowhere(e.to_string()),
            }
        }),
    }
}

/// What is wrong with a kubeconfig, without quoting it: that could show tokens.
pub(crate) fn told(error: &KubeconfigError) -> String {
    match error {
        KubeconfigError::Parse(error) => match error.location() {
            Some(at) => format!(
                "it is not a kubeconfig: line {}, column {} is invalid (not shown here: it may be secret)",
                at.line(),
                at.column()
            ),
            None => "it is not a kubeconfig".to_owned(),
        },
        other => other.to_string(),
    }
}
