//! The HTTP client: HTTP/1.1 over rustls with ring, one pool per lane, and a note of every response.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use http_body_util::BodyExt;
use hyper::Uri;
use hyper::body::{Body, Bytes, Frame, SizeHint};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector as Connects, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody,
    HttpResponse, HttpResponseBody, HttpService,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::sync::Barrier;

/// How long a request waits for others to be sent with it.
const GATE_WITHIN: Duration = Duration::from_secs(2);

tokio::task_local! {
    /// What the bodies of the requests of the call that runs now wait for.
    static GATE: Arc<Barrier>;
    /// What the call that runs now was answered.
    static ANSWER: Arc<Mutex<Answer>>;
}

/// The server's own response, in addition to the client library's error.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    /// The status; `None` if there was no answer.
    pub(crate) status: Option<u16>,
    /// The server's clock, as it wrote it. For people, and for the age of objects on that same clock.
    pub(crate) date: Option<String>,
    /// Where the bucket is, if the server says so.
    pub(crate) region: Option<String>,
    /// How many requests were sent.
    pub(crate) requests: u32,
}

/// Carries out a call, and says what the server answered.
pub(crate) async fn noted<T>(call: impl Future<Output = T>) -> (T, Answer) {
    let note = Arc::new(Mutex::new(Answer::default()));
    let outcome = ANSWER.scope(note.clone(), call).await;
    let answer = note.lock().unwrap_or_else(PoisonError::into_inner).clone();
    (outcome, answer)
}

/// Carries out calls so that all that they write reaches the server at the same time: each sends all but the last byte,
/// and waits for the others.
pub(crate) async fn together<T>(calls: impl ExactSizeIterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let gate = Arc::new(Barrier::new(calls.len()));
    join_all(calls.map(|call| GATE.scope(gate.clone(), call))).await
}

/// Makes clients for the client library. Each has connections of its own.
#[derive(Clone, Debug)]
pub(crate) struct Connector {
    tls: rustls::ClientConfig,
    connect_within: Duration,
    via: Option<Uri>,
}

impl Connector {
    /// Trusts what the system trusts, and the certificates in this file.
    pub(crate) fn new(ca: Option<&str>, connect_within: Duration) -> Result<Self, String> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add_parsable_certificates(system_certificates().iter().cloned());
        if let Some(path) = ca {
            let wrong = |e: &dyn fmt::Display| format!("the certificates in {path} cannot be used: {e}");
            for found in CertificateDer::pem_file_iter(path).map_err(|e| wrong(&e))? {
                roots.add(found.map_err(|e| wrong(&e))?).map_err(|e| wrong(&e))?;
            }
        }
        // Named, so that it does not matter which provider the process has as its default, if any.
        let ring = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(ring)
            .with_safe_default_protocol_versions()
            .map_err(|e| format!("TLS cannot be set up: {e}"))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Connector { tls, connect_within, via: None })
    }

    /// The same, but all connections go to this host and port, which pass them on. Names and certificates are
    /// unchanged.
    pub(crate) fn via(mut self, place: &str) -> Result<Self, String> {
        let via = Uri::builder().scheme("http").authority(place).path_and_query("/").build();
        let via = via.ok().filter(|uri| uri.port().is_some());
        self.via = Some(via.ok_or_else(|| format!("`via={place}`: write host:port"))?);
        Ok(self)
    }
}

/// What the system trusts; read once, which takes a while.
fn system_certificates() -> &'static [CertificateDer<'static>] {
    static FOUND: OnceLock<Vec<CertificateDer<'static>>> = OnceLock::new();
    FOUND.get_or_init(|| rustls_native_certs::load_native_certs().certs)
}

impl Connects for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(self.connect_within));
        let https = hyper_rustls::HttpsConnectorBuilder::new()
            .with_tls_config(self.tls.clone())
            .https_or_http()
            .enable_http1()
            .wrap_connector(By { tcp, via: self.via.clone() });
        let client = Client::builder(TokioExecutor::new())
            // A request is sent once: whatever becomes of it, its outcome is told.
            .retry_canceled_requests(false)
            .pool_idle_timeout(Duration::from_secs(20))
            .pool_timer(hyper_util::rt::TokioTimer::new())
            .build(https);
        Ok(HttpClient::new(Service(client)))
    }
}

/// Connects to where it was told to, whatever the name is.
#[derive(Clone)]
struct By {
    tcp: HttpConnector,
    via: Option<Uri>,
}

impl tower_service::Service<Uri> for By {
    type Response = <HttpConnector as tower_service::Service<Uri>>::Response;
    type Error = <HttpConnector as tower_service::Service<Uri>>::Error;
    type Future = <HttpConnector as tower_service::Service<Uri>>::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.tcp.poll_ready(cx)
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        self.tcp.call(self.via.clone().unwrap_or(to))
    }
}

struct Service(Client<HttpsConnector<By>, Gated>);

/// A body whose last byte may have to wait before it is sent.
struct Gated {
    body: HttpRequestBody,
    gate: Option<BoxFuture<'static, ()>>,
    last: Option<Bytes>,
}

impl Gated {
    fn new(body: HttpRequestBody) -> Self {
        let wait =
            |gate: Arc<Barrier>| async move { drop(tokio::time::timeout(GATE_WITHIN, gate.wait()).await) };
        let gate = GATE.try_with(Arc::clone).ok().map(|gate| wait(gate).boxed());
        Gated { body, gate, last: None }
    }
}

impl Body for Gated {
    type Data = <HttpRequestBody as Body>::Data;
    type Error = <HttpRequestBody as Body>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        if self.last.is_some()
            && let Some(gate) = &mut self.gate
        {
            std::task::ready!(gate.poll_unpin(cx));
            self.gate = None;
        }
        if let Some(last) = self.last.take() {
            return Poll::Ready(Some(Ok(Frame::data(last))));
        }
        let found = std::task::ready!(Pin::new(&mut self.body).poll_frame(cx));
        Poll::Ready(match found {
            Some(Ok(frame)) if self.gate.is_some() && self.body.is_end_stream() => match frame.into_data() {
                Ok(mut data) if data.len() > 1 => {
                    self.last = Some(data.split_off(data.len() - 1));
                    Some(Ok(Frame::data(data)))
                }
                Ok(data) => Some(Ok(Frame::data(data))),
                Err(frame) => Some(Ok(frame)),
            },
            other => other,
        })
    }

    fn is_end_stream(&self) -> bool {
        self.last.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Service")
    }
}

#[async_trait]
impl HttpService for Service {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        // Responses of credential providers say nothing about the bucket.
        let counts = !gives_credentials(request.uri().host().unwrap_or_default());
        let note = |change: &dyn Fn(&mut Answer)| {
            if counts {
                note(change);
            }
        };
        note(&|answer| {
            answer.requests += 1;
            answer.status = None;
        });
        let response = self.0.request(request.map(Gated::new)).await.map_err(|e| {
            let kind = if e.is_connect() { HttpErrorKind::Connect } else { HttpErrorKind::Unknown };
            HttpError::new(kind, e)
        })?;
        note(&|answer| {
            let header = |name: &str| Some(response.headers().get(name)?.to_str().ok()?.to_owned());
            answer.status = Some(response.status().as_u16());
            answer.date = header("date").or(answer.date.take());
            answer.region = header("x-amz-bucket-region").or(answer.region.take());
        });
        let (head, body) = response.into_parts();
        let body = HttpResponseBody::new(body.map_err(|e| HttpError::new(HttpErrorKind::Unknown, e)));
        Ok(HttpResponse::from_parts(head, body))
    }
}

/// Whether credentials come from this host: the metadata of a machine, or a provider's service for tokens.
fn gives_credentials(host: &str) -> bool {
    host.parse::<std::net::Ipv4Addr>().is_ok_and(|ip| ip.is_link_local())
        || ["metadata", "metadata.google.internal", "oauth2.googleapis.com", "login.microsoftonline.com"]
            .contains(&host)
        || (host.starts_with("sts.") && host.ends_with(".amazonaws.com"))
}

fn note(change: impl FnOnce(&mut Answer)) {
    let _ = ANSWER.try_with(|answer| change(&mut answer.lock().unwrap_or_else(PoisonError::into_inner)));
}
