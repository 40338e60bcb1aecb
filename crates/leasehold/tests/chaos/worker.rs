//! The worker process: one node on the local store, whose work writes down when it ran.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use leasehold::{Group, Node};
use leasehold_chaos::record::{Recorder, Who};
use leasehold_chaos::worker::{Manner, Obedience, work};
use leasehold_core::Config;
use leasehold_local::Local;
use leasehold_store::{Facts, Store};

use crate::{GROUP, SHARDS, TTL};

/// How often work asks whether it may go on.
const BEAT: Duration = Duration::from_millis(10);

pub(crate) fn database(folder: &Path) -> PathBuf {
    folder.join("shared.db")
}

pub(crate) fn facts() -> Facts {
    let folder = tempfile::tempdir().expect("a temporary folder");
    Local::open(database(folder.path()), "chaos").expect("a database").facts()
}

/// Who a process is, in the history.
pub(crate) fn who(name: &str, life: u32) -> Who {
    Who { node: name.to_owned(), session: format!("{name}-{life}") }
}

pub(crate) fn run(folder: &Path) {
    let name = std::env::var("CHAOS_NODE").expect("the parent names the node");
    let life = std::env::var("CHAOS_LIFE").expect("the parent counts the lives");
    let who = who(&name, life.parse().expect("a number"));
    let file = folder.join(format!("{}.jsonl", who.session));
    let recorder = Arc::new(Recorder::open(&file, who).expect("a log"));
    let margin = Config::with_ttl(name.parse().expect("a name"), TTL).margin;
    let manner = Manner { beat_every: BEAT, margin, obedience: Obedience::Obeys };
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
            .group(Group::numbered(GROUP, SHARDS), move |grant| work(recorder.clone(), manner, grant))
            .start()
            .await
            .expect("a valid configuration");
        terminate.recv().await;
        node.leave().await;
    });
}
