//! The worker process: one node on the local store, whose work logs when it ran.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::{Grant, Group, Node, clock};
use leasehold_local::Local;
use leasehold_store::{Facts, Store};

use crate::{SHARDS, TTL};

/// How often work logs that it runs.
const TICK: Duration = Duration::from_millis(10);

pub(crate) fn database(folder: &Path) -> PathBuf {
    folder.join("shared.db")
}

pub(crate) fn facts() -> Facts {
    let folder = tempfile::tempdir().expect("a temporary folder");
    Local::open(database(folder.path()), "chaos").expect("a database").facts()
}

pub(crate) fn run(folder: &Path) {
    let name = std::env::var("CHAOS_NODE").expect("the parent names the node");
    let life = std::env::var("CHAOS_LIFE").expect("the parent counts the lives");
    let file = std::fs::File::create(folder.join(format!("{name}-{life}.log"))).expect("a log");
    let log = Arc::new(Mutex::new(file));
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("tokio");
    runtime.block_on(async {
        let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())
            .expect("a signal handler");
        let store = loop {
            match Local::open(database(folder), "chaos") {
                Ok(store) => break store,
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        };
        let node = Node::builder(Arc::new(store))
            .name(name)
            .ttl(TTL)
            .new_namespace()
            .group(Group::numbered("work", SHARDS), move |grant| work(grant, log.clone()))
            .start()
            .await
            .expect("a valid configuration");
        terminate.recv().await;
        node.leave().await;
    });
}

/// Logs `start`, then a tick as long as the grant holds. The time is read before the check, so that a tick says: at
/// that time this work ran, and its grant was good at or after it.
async fn work(grant: Grant, log: Arc<Mutex<std::fs::File>>) -> leasehold::Outcome {
    let line = |word: &str, at: leasehold_core::Moment| {
        let text = format!("{word} {} {} {}\n", grant.shard().name, grant.epoch(), at.as_nanos());
        log.lock().expect("no poison").write_all(text.as_bytes()).expect("the log can be written");
    };
    let mut first = true;
    loop {
        let at = clock::now();
        if grant.check().is_err() || grant.stopping().is_cancelled() {
            return Ok(());
        }
        line(if first { "start" } else { "tick" }, at);
        first = false;
        tokio::select! {
            () = grant.stopped() => {}
            () = tokio::time::sleep(TICK) => {}
        }
    }
}
