//! Metrics for Prometheus, and health for a load balancer: `/metrics` and `/healthz` beside a node.
//!
//! Leasehold counts through the `metrics` facade; any exporter for it will do. Install it before the node starts.
//! The table of all metrics is in [`leasehold::observe`].

mod sink;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use leasehold::notice::SessionState;
use leasehold::store::MemoryServer;
use leasehold::{BoxError, Builder, Grant, Group, Node, Outcome};
use metrics_exporter_prometheus::PrometheusBuilder;
use sink::Sink;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let signal = leasehold::shutdown_signal();
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [address, name, listen] = &args[..] {
        let node = Node::builder(leasehold::store::open(address, "example")?);
        return serve(node, name, TcpListener::bind(listen).await?, signal).await;
    }
    // The same, ended by the caller of the page.
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let at = listener.local_addr()?;
    let ends = async move {
        tokio::select! {
            () = signal => Ok(()),
            shown = show(at) => shown,
        }
    };
    let (tell, shown) = tokio::sync::oneshot::channel();
    let node = Node::builder(MemoryServer::new().open("example")).new_namespace();
    serve(node, "worker-1", listener, async { tell.send(ends.await) }).await?;
    shown.await?
}

/// A whole program: works, and shows its metrics, until the signal.
async fn serve(
    node: Builder,
    name: &str,
    listener: TcpListener,
    signal: impl Future,
) -> Result<(), BoxError> {
    let metrics = PrometheusBuilder::new().install_recorder()?;
    let sink = Arc::new(Sink::default());
    let work = move |grant| work(grant, sink.clone());
    let node = Arc::new(node.name(name).group(Group::numbered("orders", 8), work).start().await?);

    let (page, examined, left) = (metrics.clone(), node.clone(), node.clone());
    let app = Router::new()
        .route("/metrics", get(move || std::future::ready(page.render())))
        .route("/healthz", get(move || std::future::ready(health(&examined))));
    let server =
        axum::serve(listener, app).with_graceful_shutdown(async move { _ = left.until_left().await });
    // Histograms are drained here, also if nobody reads the page.
    let upkeep = async {
        loop {
            tokio::time::sleep(Duration::from_secs(5)).await;
            metrics.run_upkeep();
        }
    };
    let serving = async {
        tokio::select! {
            served = async { server.await } => served,
            () = upkeep => Ok(()),
        }
    };
    let (served, finish) = tokio::join!(serving, node.leave_on(signal));
    println!("{name} leaves: {finish:?}");
    Ok(served?)
}

/// Ready is a node that has a session: without one it runs nothing, and recovers by itself when the store is back.
fn health(node: &Node) -> (StatusCode, String) {
    let view = node.view();
    let state = view.me.as_ref().map(|me| me.session_state);
    let code = match state {
        Some(SessionState::Attached | SessionState::Degraded) => StatusCode::OK,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    (code, format!("{}\n", state.map_or("starting", SessionState::as_str)))
}

async fn work(grant: Grant, sink: Arc<Sink>) -> Outcome {
    let mut done = 0;
    let mut orders = tokio::time::interval(Duration::from_millis(20));
    while grant.stopping().run_until_cancelled(orders.tick()).await.is_some() {
        done += 1;
        metrics::counter!("orders_total", "group" => "orders").increment(1);
    }
    match grant.stop_reason() {
        Some(why) if why.is_planned() => {
            grant.check()?;
            sink.add(grant.shard(), grant.epoch(), done)?;
        }
        // Worth an alarm of its own, beside leasehold_session_state_changes_total{to="detached"}.
        _ => metrics::counter!("orders_dropped_total").increment(done),
    }
    Ok(())
}

/// Reads the page until all shards run, and shows some of it.
async fn show(at: std::net::SocketAddr) -> Result<(), BoxError> {
    for _ in 0..200 {
        let page = read(at, "/metrics").await?;
        if page.lines().any(|line| line.starts_with("leasehold_shards_owned{") && line.ends_with(" 8")) {
            for line in page.lines().filter(|line| line.starts_with("leasehold_") && line.contains("shards"))
            {
                println!("{line}");
            }
            println!("/healthz: {}", read(at, "/healthz").await?.lines().last().unwrap_or_default());
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Err("the page never showed 8 shards".into())
}

async fn read(at: std::net::SocketAddr, path: &str) -> Result<String, BoxError> {
    let mut stream = TcpStream::connect(at).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}
