//! One node of the demo, in a process of its own.

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use leasehold::{Grant, Group, Node, Outcome, clock};
use leasehold_core::event::Returning;
use leasehold_core::record::Policy;
use leasehold_local::Local;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::signal::unix::{SignalKind, signal};

use super::diary::Diary;

/// The group of the demo.
pub(super) const GROUP: &str = "demo";
/// How often a worker does its work.
const BEAT_EVERY: Duration = Duration::from_millis(10);
/// How often a node says how it is.
const SAY_EVERY: Duration = Duration::from_millis(200);

/// What a node process is started with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Birth {
    pub(super) folder: PathBuf,
    pub(super) name: String,
    pub(super) shards: u32,
    pub(super) ttl_ms: u64,
    pub(super) weight: u32,
}

/// What a node says of itself, one line at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Says {
    pub(super) standing: String,
    pub(super) held: usize,
    /// When it stops its work unless it can renew, on the boot clock.
    pub(super) stop_at_ns: u64,
    pub(super) cause: String,
}

/// The store of the demo.
pub(super) fn store_file(folder: &std::path::Path) -> PathBuf {
    folder.join("demo.db")
}

/// The notes of one node.
pub(super) fn diary_file(folder: &std::path::Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.diary"))
}

/// Runs a node until it is told to leave, or until the demo is gone.
pub(super) fn main(birth: Birth) -> ExitCode {
    let Ok(runtime) = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()
    else {
        return ExitCode::FAILURE;
    };
    let code = match runtime.block_on(live(birth)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("leasehold: a node of the demo ended: {error}");
            ExitCode::FAILURE
        }
    };
    runtime.shutdown_background();
    code
}

async fn live(birth: Birth) -> Result<(), leasehold::BoxError> {
    let store = Arc::new(Local::open(store_file(&birth.folder), "demo")?);
    let diary = Arc::new(Diary::open(&diary_file(&birth.folder, &birth.name))?);
    let policy = Policy { cooldown_ms: 500, min_run_ms: 200, ..Policy::default() };
    let group = Group::numbered(GROUP, birth.shards).policy(policy);
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let node = Node::builder(store)
        .name(birth.name)
        .ttl(Duration::from_millis(birth.ttl_ms))
        .weight(birth.weight)
        .new_namespace()
        .group(group, move |grant| work(diary.clone(), grant))
        .start()
        .await?;
    let mut demo = pipe::Receiver::from_owned_fd(std::io::stdin().as_fd().try_clone_to_owned()?)?;
    let mut byte = [0u8; 1];
    loop {
        say(&node);
        tokio::select! {
            _ = terminate.recv() => break,
            // Ctrl-C reaches the whole terminal: the demo itself decides what becomes of its nodes.
            _ = interrupt.recv() => {}
            // The demo holds the other end, and never writes: this ends with the demo.
            _ = demo.read(&mut byte) => break,
            () = tokio::time::sleep(SAY_EVERY) => {}
        }
    }
    node.leave_within(Duration::from_secs(5), Returning::No).await;
    Ok(())
}

/// Works on a shard: asks before each step whether it may, and notes when it did.
async fn work(diary: Arc<Diary>, grant: Grant) -> Outcome {
    let now = clock::now();
    if grant.check().is_err() {
        return Ok(());
    }
    let page = diary.begin(grant.slot().unwrap_or(0), grant.epoch(), now)?;
    while !grant.stopping().is_cancelled() {
        // The clock comes first: what is noted is a moment at which the grant is known to have held.
        let now = clock::now();
        if grant.check().is_err() {
            break;
        }
        page.beat(now)?;
        tokio::select! {
            () = grant.stopped() => {}
            () = tokio::time::sleep(BEAT_EVERY) => {}
        }
    }
    Ok(())
}

fn say(node: &Node) {
    let view = node.view();
    let Some(me) = &view.me else { return };
    let stop_in = Duration::from_millis(me.stop_in_ms.unwrap_or(0));
    let says = Says {
        standing: me.standing.to_owned(),
        held: me.held,
        stop_at_ns: (clock::now() + stop_in).as_nanos(),
        cause: me.cause.clone(),
    };
    if let Ok(line) = serde_json::to_string(&says) {
        println!("{line}");
    }
}
