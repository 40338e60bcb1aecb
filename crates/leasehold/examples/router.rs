//! Requests that only the owner of a shard may answer: an axum server in every process. One that does not own the shard of a
//! request answers `421 Misdirected Request` with the owner's address, and the caller goes there.
//!
//! Try it with two processes and curl:
//!
//! ```text
//! cargo run -p leasehold --features local --example router -- local:/tmp/work.db a 127.0.0.1:8001
//! cargo run -p leasehold --features local --example router -- local:/tmp/work.db b 127.0.0.1:8002
//! curl -i 127.0.0.1:8001/accounts/ann/add/5
//! ```
//!
//! The question "is it mine?" is a function of ten lines, [`owner`], and not a tower layer: its answer is the grant, which the
//! request needs until its last write. A layer would let requests in, and have to hide that from them.

mod sink;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use leasehold::store::MemoryServer;
use leasehold::{BoxError, Builder, Grant, Group, Node};
use sink::Sink;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const GROUP: &str = "accounts";
const OWNER: &str = "leasehold-owner";

/// What every request sees.
#[derive(Clone)]
struct App {
    node: Arc<Node>,
    accounts: Arc<Sink>,
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let accounts = Arc::new(Sink::default());
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [address, name, listen] = &args[..] {
        let node = Node::builder(leasehold::store::open(address, "example")?);
        return serve(node, name, TcpListener::bind(listen).await?, accounts, leasehold::shutdown_signal())
            .await;
    }
    show(accounts).await
}

/// A whole program: answers requests until the signal, and then hands everything over.
async fn serve(
    node: Builder,
    name: &str,
    listener: TcpListener,
    accounts: Arc<Sink>,
    signal: impl Future,
) -> Result<(), BoxError> {
    let node = node.name(name).address(listener.local_addr()?.to_string());
    // The shards of requests need no work of their own: this only says when they come and go.
    let node = node.group(Group::numbered(GROUP, 16), |grant| async move {
        grant.stopped().await;
        match grant.stop_reason() {
            // Requests under way keep the shard until they are done: each has a guard.
            Some(why) if why.is_planned() => println!("{} is handed over ({why})", grant.shard()),
            _ => println!("{} is lost: requests under way write nothing more", grant.shard()),
        }
    });
    let node = Arc::new(node.start().await?);
    let app = App { node: node.clone(), accounts };
    let app = Router::new().route("/accounts/{account}/add/{amount}", get(add)).with_state(app);
    let left = node.clone();
    let server =
        axum::serve(listener, app).with_graceful_shutdown(async move { _ = left.until_left().await });
    let (served, finish) = tokio::join!(server, node.leave_on(signal));
    println!("{name} leaves: {finish:?}");
    Ok(served?)
}

/// The request itself.
async fn add(
    State(app): State<App>,
    Path((account, amount)): Path<(String, u64)>,
) -> Result<String, Elsewhere> {
    let grant = owner(&app.node, &account)?;
    // The shard is not given away before this request is answered.
    let _guard = grant.guard().map_err(Elsewhere::later)?;
    // … whatever takes time …
    grant.check().map_err(Elsewhere::later)?;
    let sum = app.accounts.add(grant.shard(), grant.epoch(), amount).map_err(Elsewhere::later)?;
    Ok(format!("{sum} on {}\n", app.node.name()))
}

/// The grant for a key, if this process owns its shard.
fn owner(node: &Node, key: &str) -> Result<Grant, Elsewhere> {
    let located = node.locate(GROUP, key).map_err(Elsewhere::later)?;
    if let Some(grant) = node.grant(&located.shard) {
        return Ok(grant);
    }
    // This node may not have seen yet that the shard has left it.
    let address = located.address.filter(|_| located.node.as_ref() != Some(node.name()));
    let between = || Elsewhere::later(format!("{} is between two owners", located.shard));
    Err(Elsewhere::Owner { address: address.ok_or_else(between)? })
}

/// Why this process does not answer.
enum Elsewhere {
    /// Another process owns the shard.
    Owner { address: String },
    /// Nobody does right now: try again in a moment.
    Later { why: String },
}

impl Elsewhere {
    fn later(why: impl ToString) -> Self {
        Elsewhere::Later { why: why.to_string() }
    }
}

impl IntoResponse for Elsewhere {
    fn into_response(self) -> Response {
        match self {
            Elsewhere::Owner { address } => {
                let body = format!("go to {address}\n");
                (StatusCode::MISDIRECTED_REQUEST, [(OWNER, address)], body).into_response()
            }
            Elsewhere::Later { why } => {
                (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "1")], why + "\n").into_response()
            }
        }
    }
}

/// Two servers, and a caller that follows the owner's address.
async fn show(accounts: Arc<Sink>) -> Result<(), BoxError> {
    let server = MemoryServer::new();
    let listeners = [TcpListener::bind("127.0.0.1:0").await?, TcpListener::bind("127.0.0.1:0").await?];
    let first: SocketAddr = listeners[0].local_addr()?;
    let [a, b] = listeners;
    let (done, shown) = tokio::sync::watch::channel(false);
    let signal = || {
        let (signal, mut shown) = (leasehold::shutdown_signal(), shown.clone());
        async move {
            tokio::select! {
                () = signal => {}
                _ = shown.wait_for(|shown| *shown) => {}
            }
        }
    };
    let node = || Node::builder(server.open("example")).new_namespace();
    let caller = async {
        let client = leasehold::Client::open(server.open("example")).await?;
        let shared = |view: &leasehold::View| {
            let holders = view.shards.iter().filter_map(|shard| shard.holder.as_ref());
            holders.clone().count() == 16 && holders.collect::<std::collections::BTreeSet<_>>().len() == 2
        };
        client.until(shared).await;
        for account in ["ann", "ben", "cleo", "dora", "emil"] {
            call(first, account).await?;
        }
        done.send_replace(true);
        Ok::<_, BoxError>(())
    };
    let (a, b, called) = tokio::join!(
        serve(node(), "a", a, accounts.clone(), signal()),
        serve(node(), "b", b, accounts, signal()),
        caller
    );
    a.and(b).and(called)
}

/// Calls one server, and then the one that it names.
async fn call(mut at: SocketAddr, account: &str) -> Result<(), BoxError> {
    for _ in 0..50 {
        let answer = request(at, &format!("/accounts/{account}/add/5")).await?;
        let (head, body) = answer.split_once("\r\n\r\n").ok_or("not an answer")?;
        println!("{account} at {at}: {} {}", &head[9..12], body.trim_end());
        match &head[9..12] {
            "200" => return Ok(()),
            "421" => {
                let owner = head.lines().find_map(|line| line.strip_prefix("leasehold-owner: "));
                at = owner.ok_or("no owner is named")?.parse()?;
            }
            _ => tokio::time::sleep(std::time::Duration::from_millis(100)).await,
        }
    }
    Err(format!("nobody answers for {account}").into())
}

async fn request(at: SocketAddr, path: &str) -> Result<String, BoxError> {
    let mut stream = TcpStream::connect(at).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}
