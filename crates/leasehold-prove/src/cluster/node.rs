//! One node, in a process of its own. What it must know it reads from its standard input, so that no list of
//! processes shows the address of a store.

use std::io::BufRead;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use leasehold::{Events, Group, Node, Notice, Returning, clock};
use leasehold_chaos::record::{Recorder, Who};
use leasehold_chaos::worker::{self, Manner, Obedience};
use leasehold_core::config::Config;
use leasehold_core::record::Policy;
use leasehold_store::wrap::{Call, Counting, Counts};
use leasehold_store::{Charged, StoreErrorKind, StoreExt};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::signal::unix::{SignalKind, signal};

use super::GROUP;

/// The hidden command that makes this program a node.
pub(super) const HIDDEN: &str = "trial-node";
/// How often a node prints its status.
const SAY_EVERY: Duration = Duration::from_millis(200);
/// How long handing everything over may take: the default of `run`.
const DRAIN_WITHIN: Duration = Duration::from_secs(30);
/// How often it writes down what it asked of the store.
const COUNT_EVERY: Duration = Duration::from_secs(1);

/// What a node process is started with.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct NodeOptions {
    pub(super) url: String,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) session: String,
    pub(super) shards: u32,
    pub(super) ttl_ms: u64,
    pub(super) weight: u32,
    pub(super) policy: Policy,
    pub(super) log: PathBuf,
    pub(super) beat_every_ms: u64,
    pub(super) misbehaves: bool,
}

/// The status that a node prints, one line at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeStatus {
    pub(crate) session_state: String,
    pub(crate) held: usize,
    /// When it stops its work unless it can renew, on the boot clock.
    pub(crate) stop_at_ns: u64,
    pub(crate) cause: String,
    /// The current error of the store, if any.
    pub(crate) store_failure: Option<StoreFailure>,
}

/// An error of a store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoreFailure {
    pub(crate) error: String,
    /// Whether only an operator can fix it.
    pub(crate) needs_operator: bool,
}

/// The hidden way to start this program as a node.
pub fn hidden_main() -> Option<ExitCode> {
    (std::env::args_os().nth(1)? == HIDDEN).then_some(())?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).ok()?;
    Some(match serde_json::from_str(&line) {
        Ok(options) => main(options),
        Err(_) => ExitCode::FAILURE,
    })
}

/// Runs a node until it is told to leave, or until its starter is gone.
fn main(options: NodeOptions) -> ExitCode {
    let Ok(runtime) = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()
    else {
        return ExitCode::FAILURE;
    };
    let code = match runtime.block_on(live(options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("leasehold: a node failed: {error}");
            ExitCode::FAILURE
        }
    };
    runtime.shutdown_background();
    code
}

async fn live(options: NodeOptions) -> Result<(), leasehold::BoxError> {
    let who = Who { node: options.name.clone(), session: options.session.clone() };
    let recorder = Arc::new(Recorder::open(&options.log, who)?);
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let inner = open(&options).await?;
    let store = Arc::new(Counting::new(inner.clone()));
    let ttl = Duration::from_millis(options.ttl_ms);
    let manner = Manner {
        beat_every: Duration::from_millis(options.beat_every_ms),
        margin: Config::with_ttl(options.name.parse()?, ttl).margin,
        obedience: if options.misbehaves { Obedience::IgnoresItsLease } else { Obedience::Obeys },
    };
    let work = recorder.clone();
    let node = Node::builder(store.clone())
        .name(options.name)
        .ttl(ttl)
        .weight(options.weight)
        .new_namespace()
        // All nodes of the cluster are started at once: each takes its own share.
        .configure(|config| config.gather = Some(config.debounce * 2))
        .group(Group::numbered(GROUP, options.shards).policy(options.policy), move |grant| {
            worker::work(work.clone(), manner, grant)
        })
        .start()
        .await?;
    let mut starter = pipe::Receiver::from_owned_fd(std::io::stdin().as_fd().try_clone_to_owned()?)?;
    let mut byte = [0u8; 1];
    let mut events = node.events();
    let mut count_at = clock::now();
    loop {
        if clock::now() >= count_at {
            note_counts(&recorder, &store.counts(), inner.charged())?;
            count_at = count_at + COUNT_EVERY;
        }
        say(&node, &store.counts());
        tokio::select! {
            _ = terminate.recv() => break,
            // Ctrl-C reaches the whole terminal: the starter decides what happens to the nodes.
            _ = interrupt.recv() => {}
            // The starter holds the other end, and writes nothing more: this ends with it.
            _ = starter.read(&mut byte) => break,
            () = note_events(&recorder, &mut events) => {}
            () = tokio::time::sleep(SAY_EVERY) => {}
        }
    }
    let leaving = node.leave_within(DRAIN_WITHIN, Returning::No);
    tokio::select! {
        _ = leaving => {}
        () = note_events(&recorder, &mut events) => {}
    }
    note_counts(&recorder, &store.counts(), inner.charged())?;
    Ok(())
}

/// Opens the store, and waits for it if it is not there: a node may be started while it is cut off.
async fn open(options: &NodeOptions) -> Result<Arc<dyn leasehold_store::Store>, leasehold::BoxError> {
    loop {
        match leasehold::store::open(&options.url, &options.namespace) {
            Ok(store) => return Ok(store),
            Err(error) if matches!(error.kind, StoreErrorKind::Refused | StoreErrorKind::Damaged) => {
                return Err(error.into());
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// Records the node's session state and how long renewals take. Never returns while the node lives.
async fn note_events(recorder: &Recorder, events: &mut Events) {
    while let Some(told) = events.next().await {
        let now = clock::now();
        let _ = match &told.notice {
            Notice::StateChanged { from, to, cause, after } => {
                let after = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
                recorder.note(
                    "session_state",
                    now,
                    json!({"from": from.as_str(), "to": to.as_str(), "cause": cause.as_str(), "after_ms": after}),
                )
            }
            Notice::Renewed { took } => {
                let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
                recorder.note("renewed", now, json!({"took_us": took}))
            }
            _ => Ok(()),
        };
    }
    std::future::pending().await
}

/// The current error; one that only an operator can fix comes first.
fn store_failure(counts: &Counts) -> Option<StoreFailure> {
    let failures = counts.failing.values().map(|error| StoreFailure {
        error: error.to_string(),
        needs_operator: matches!(error.kind, StoreErrorKind::Refused | StoreErrorKind::Damaged),
    });
    failures.max_by_key(|failure| failure.needs_operator)
}

fn note_counts(recorder: &Recorder, counts: &Counts, charged: Option<Charged>) -> std::io::Result<()> {
    let calls: u64 = counts.calls.values().sum();
    let charged = charged.map(|all| json!({"writes": all.writes, "reads": all.reads, "lists": all.lists}));
    recorder.note(
        "store",
        clock::now(),
        json!({
            "charged": charged,
            "calls": calls, "reads": counts.of(Call::Read), "lists": counts.of(Call::List),
            "swap_calls": counts.of(Call::Swap), "failed": counts.failed, "node_swaps": counts.node_swaps,
            "shard_swaps": counts.shard_swaps, "other_swaps": counts.other_swaps,
            "watch_events": counts.watch_events, "bytes_out": counts.bytes_out, "bytes_in": counts.bytes_in,
        }),
    )
}

fn say(node: &Node, counts: &Counts) {
    let view = node.view();
    let Some(me) = &view.me else { return };
    let stop_in = Duration::from_millis(me.stop_in_ms.unwrap_or(0));
    let status = NodeStatus {
        session_state: me.session_state.to_string(),
        held: me.held,
        stop_at_ns: (clock::now() + stop_in).as_nanos(),
        cause: me.cause.clone(),
        store_failure: store_failure(counts),
    };
    if let Ok(line) = serde_json::to_string(&status) {
        println!("{line}");
    }
}
