//! Accepts connections and serves each of them, within limits, until it is told to stop.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::AsyncWriteExt;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::listener::{Listener, Stream};
use crate::problem::Kind;

/// The pause after a connection could not be accepted, for example because this process has too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Above the limit, this many connections at a time are told so; all others are closed without a word.
const TURNED_AWAY_MAX: usize = 16;
/// The time for telling one of them.
const TURNED_AWAY_WITHIN: Duration = Duration::from_secs(1);

/// What one server takes on at a time.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Open connections.
    pub connections_max: usize,
    /// How long a request's headers may take, which is also how long an idle connection stays open.
    pub header_within: Duration,
    /// The size of a request's line and headers, in bytes: at least 8,192.
    pub header_bytes_max: usize,
    /// The number of a request's headers.
    pub headers_max: usize,
    /// How long a connection may last, however slowly its client reads; `None` for streams without an end.
    pub connection_within: Option<Duration>,
    /// How long connections may take to end when the server stops.
    pub close_within: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections_max: 32,
            header_within: Duration::from_secs(10),
            header_bytes_max: 16 * 1024,
            headers_max: 64,
            connection_within: Some(Duration::from_secs(600)),
            close_within: Duration::from_secs(1),
        }
    }
}

/// Serves until `stop` is ready; then it closes the listener, and lets connections finish the request that they are at.
pub async fn serve(listener: Listener, router: Router, limits: Limits, stop: impl Future<Output = ()>) {
    let mut stop = pin!(stop);
    let closing = CancellationToken::new();
    let serving = Arc::new(Semaphore::new(limits.connections_max));
    let turning_away = Arc::new(Semaphore::new(TURNED_AWAY_MAX));
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            () = &mut stop => break,
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
        };
        let stream = match accepted {
            Ok(stream) => stream,
            Err(error) => {
                tracing::debug!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        if let Ok(permit) = serving.clone().try_acquire_owned() {
            let (router, limits, closing) = (router.clone(), limits.clone(), closing.clone());
            connections.spawn(async move {
                connection(stream, router, &limits, &closing).await;
                drop(permit);
            });
        } else if let Ok(permit) = turning_away.clone().try_acquire_owned() {
            connections.spawn(async move {
                let _ = tokio::time::timeout(TURNED_AWAY_WITHIN, turn_away(stream)).await;
                drop(permit);
            });
        }
    }
    drop(listener);
    closing.cancel();
    let ended = async { while connections.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(limits.close_within, ended).await;
}

async fn connection(stream: Stream, router: Router, limits: &Limits, closing: &CancellationToken) {
    let service = TowerToHyperService::new(router);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_within)
        .max_buf_size(limits.header_bytes_max)
        .max_headers(limits.headers_max)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let too_long = async {
        match limits.connection_within {
            Some(within) => tokio::time::sleep(within).await,
            None => std::future::pending().await,
        }
    };
    // What goes wrong on a connection is its client's to tell.
    tokio::select! {
        _ = &mut connection => return,
        () = closing.cancelled() => {}
        () = too_long => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = tokio::time::timeout(limits.close_within, connection).await;
}

async fn turn_away(mut stream: Stream) {
    let body = Kind::TooMany.body("this server has as many connections as it takes");
    let head = format!(
        "HTTP/1.1 {}\r\ncontent-type: application/problem+json\r\ncontent-length: {}\r\nretry-after: 1\r\nconnection: close\r\n\r\n",
        Kind::TooMany.status(),
        body.len(),
    );
    let _ = stream.write_all(head.as_bytes()).await;
    let _ = stream.write_all(body.as_bytes()).await;
    let _ = stream.shutdown().await;
}
