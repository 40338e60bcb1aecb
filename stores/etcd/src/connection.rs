//! One connection to one member of etcd, and the calls that can be made over it.

use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use prost::Message;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tonic::body::Body;
use tonic::client::Grpc;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::{Request, Status, Streaming};
use tonic_prost::ProstCodec;
use tower_service::Service;

/// How often an open connection is pinged. etcd closes connections that ping more often than every five seconds
/// (`--grpc-keepalive-min-time`).
const PING_EVERY: Duration = Duration::from_secs(6);
/// How long the answer to a ping may take.
const PING_WITHIN: Duration = Duration::from_secs(3);
/// The largest answer: a page of records that are all as large as etcd takes them by default.
const ANSWER_BYTES_MAX: usize = 1 << 30;

/// A connection. It is closed when the last clone is dropped.
#[derive(Clone)]
pub(crate) struct Connection {
    sender: http2::SendRequest<Body>,
    origin: http::Uri,
    token: Option<MetadataValue<Ascii>>,
    /// Which of the members it goes to.
    pub(crate) member: usize,
    task: Arc<Closing>,
}

struct Closing {
    task: AbortHandle,
    /// Why the connection ended; the calls that fail with it are not told.
    cause: Arc<OnceLock<String>>,
}

impl Drop for Closing {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Which call of etcd's API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Method(&'static str);

impl Method {
    pub(crate) const RANGE: Method = Method("/etcdserverpb.KV/Range");
    pub(crate) const PUT: Method = Method("/etcdserverpb.KV/Put");
    pub(crate) const TXN: Method = Method("/etcdserverpb.KV/Txn");
    pub(crate) const WATCH: Method = Method("/etcdserverpb.Watch/Watch");
    pub(crate) const LEASE_GRANT: Method = Method("/etcdserverpb.Lease/LeaseGrant");
    pub(crate) const LEASE_REVOKE: Method = Method("/etcdserverpb.Lease/LeaseRevoke");
    pub(crate) const LEASE_KEEP_ALIVE: Method = Method("/etcdserverpb.Lease/LeaseKeepAlive");
    pub(crate) const AUTHENTICATE: Method = Method("/etcdserverpb.Auth/Authenticate");
    pub(crate) const STATUS: Method = Method("/etcdserverpb.Maintenance/Status");
    pub(crate) const ALARM: Method = Method("/etcdserverpb.Maintenance/Alarm");
    pub(crate) const MEMBER_LIST: Method = Method("/etcdserverpb.Cluster/MemberList");
}

impl Connection {
    /// Speaks HTTP/2 over a stream that is open. Must be called on the runtime that the connection will live on.
    pub(crate) async fn over<S>(stream: S, origin: http::Uri, member: usize) -> Result<Self, Status>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (sender, connection) = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_WITHIN)
            // etcd objects to pings on an idle connection.
            .keep_alive_while_idle(false)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| broken(&error))?;
        let cause = Arc::new(OnceLock::new());
        let noted = Arc::clone(&cause);
        let task = Handle::current().spawn(async move {
            if let Err(error) = connection.await {
                let _ = noted.set(chain(&error));
            }
        });
        let task = Arc::new(Closing { task: task.abort_handle(), cause });
        Ok(Connection { sender, origin, token: None, member, task })
    }

    /// The same connection, authenticated with a token.
    pub(crate) fn with_token(mut self, token: &str) -> Result<Self, Status> {
        self.token = Some(
            token
                .parse()
                .map_err(|_| Status::internal("etcd returned a token that cannot be sent as a header"))?,
        );
        Ok(self)
    }

    /// Whether it has ended, as far as is known.
    pub(crate) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Whether both are the same connection.
    pub(crate) fn is(&self, other: &Connection) -> bool {
        Arc::ptr_eq(&self.task, &other.task)
    }

    /// Asks and waits for the answer.
    pub(crate) async fn ask<Q, A>(&self, method: Method, question: Q) -> Result<A, Status>
    where
        Q: Message + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        let answer =
            self.grpc().unary(self.request(method, question), method.path(), ProstCodec::default()).await?;
        Ok(answer.into_inner())
    }

    /// Opens a stream in both directions. Answers end when the questions do, or with the connection.
    pub(crate) async fn stream<Q, A>(
        &self,
        method: Method,
        questions: impl futures::Stream<Item = Q> + Send + 'static,
    ) -> Result<Streaming<A>, Status>
    where
        Q: Message + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        let request = self.request(method, questions);
        let answers = self.grpc().streaming(request, method.path(), ProstCodec::default()).await?;
        Ok(answers.into_inner())
    }

    fn grpc(&self) -> Grpc<Connection> {
        Grpc::with_origin(self.clone(), self.origin.clone()).max_decoding_message_size(ANSWER_BYTES_MAX)
    }

    fn request<T>(&self, method: Method, question: T) -> Request<T> {
        let mut request = Request::new(question);
        // A member without a leader says so at once, instead of keeping us waiting; its status it tells all the same.
        if method != Method::STATUS {
            request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
        }
        if let Some(token) = &self.token {
            request.metadata_mut().insert("token", token.clone());
        }
        request
    }
}

impl Method {
    fn path(self) -> http::uri::PathAndQuery {
        http::uri::PathAndQuery::from_static(self.0)
    }
}

impl Service<http::Request<Body>> for Connection {
    type Response = http::Response<Incoming>;
    type Error = Status;
    type Future = BoxFuture<'static, Result<Self::Response, Status>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let mut sender = self.sender.clone();
        let task = Arc::clone(&self.task);
        Box::pin(async move {
            let answer = sender.send_request(request).await;
            answer.map_err(|error| task.cause.get().map_or_else(|| broken(&error), |cause| broke(cause)))
        })
    }
}

/// A connection that does not work.
fn broken(error: &hyper::Error) -> Status {
    broke(&chain(error))
}

fn broke(why: &str) -> Status {
    Status::unavailable(format!("the connection broke ({why})"))
}

/// An error with its causes, the last of which is often the only one that says anything.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        cause = error.source();
    }
    text
}
