//! A place of our own on somebody's store, which disturbs nobody and is cleared afterwards.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use leasehold::clock;
use leasehold_core::store::{Lane, Swap};
use leasehold_store::Store;

use super::stage::{self, Kind};
use crate::failure::{Code, Failure};
use crate::settings::{Problem, Problems, Settings, redacted};
use crate::stores;

/// How long the store may take to answer the first question.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often clearing is tried while the last writes of nodes may still arrive.
const ROUNDS: usize = 5;

/// A namespace of our own; on a local store a file of our own, beside the one that was named, because whoever holds
/// its write lock holds up everybody.
pub(crate) struct Scratch {
    /// Where nodes find it. It may hold secrets.
    pub(crate) url: String,
    /// The same for people.
    pub(crate) shown: String,
    pub(crate) kind: Kind,
    pub(crate) namespace: String,
    pub(crate) store: Arc<dyn Store>,
}

impl Scratch {
    /// Opens it, and sees that the store answers.
    pub(crate) async fn open(settings: &Settings, purpose: &str) -> Result<Scratch, Failure> {
        let url = stores::address(settings)?;
        let refused = |what: &str, advice: &str| {
            Failure::from(Problems(vec![Problem::new(settings.place_of("store"), what, advice)]))
        };
        if url.starts_with("memory:") {
            return Err(refused(
                "a memory store lives in one process, and here every node is a process of its own",
                "name a store that processes share, such as local:./leasehold.db",
            ));
        }
        let kind = stage::kind(url).map_err(|what| refused(&what, "mend the URL"))?;
        let mark = format!("leasehold-{purpose}-{}-{:x}", std::process::id(), clock::unix_ms());
        let (url, kind) = match kind {
            Kind::File(path) => {
                let path = beside(&path, &mark);
                (format!("local:{}", path.display()), Kind::File(path))
            }
            other => (url.to_owned(), other),
        };
        let store = leasehold::store::open(&url, &mark)?;
        let shown = redacted(stores::address(settings)?);
        match tokio::time::timeout(PATIENCE, store.list()).await {
            Ok(listing) => drop(listing?),
            Err(_) => {
                let message = format!(
                    "the store {shown} did not answer within {} s; run `leasehold doctor`",
                    PATIENCE.as_secs()
                );
                return Err(Failure::new(Code::Store, message));
            }
        }
        Ok(Scratch { url, shown, kind, namespace: mark, store })
    }

    /// Clears it, and says what could not be removed.
    pub(crate) async fn clear(self) -> Option<String> {
        let stays = format!("the namespace {} stays on {}", self.namespace, self.shown);
        if let Kind::File(path) = &self.kind {
            let path = path.clone();
            drop(self.store);
            return remove_files(&path).err().map(|error| format!("{} stays: {error}", path.display()));
        }
        if !self.store.facts().removes {
            return Some(format!("{stays}: this store removes nothing"));
        }
        let mut trouble = String::from("records kept appearing");
        for _ in 0..ROUNDS {
            match self.sweep().await {
                Ok(0) => return self.marks(),
                Ok(_) => {}
                Err(error) => trouble = error,
            }
        }
        Some(format!("{stays}: {trouble}"))
    }

    /// What is in the store beside records, and cannot be removed through it.
    fn marks(&self) -> Option<String> {
        let name = &self.namespace;
        self.url.starts_with("redis").then(|| {
            format!("Two keys that tell the state of a namespace stay on {}: {{{name}}}:store and {{{name}}}:removed.", self.shown)
        })
    }

    /// Removes every record that is there now; the answer is how many there were.
    async fn sweep(&self) -> Result<usize, String> {
        let listing = self.store.list().await.map_err(|error| error.to_string())?;
        let swaps: Vec<Swap> = listing
            .entries
            .into_iter()
            .map(|(key, stored)| Swap { key, expect: Some(stored.version), value: None })
            .collect();
        for some in swaps.chunks(self.store.facts().swaps_max.max(1)) {
            self.store.swap(Lane::Work, some).await.map_err(|error| error.to_string())?;
        }
        Ok(swaps.len())
    }
}

fn beside(path: &Path, mark: &str) -> PathBuf {
    path.with_file_name(format!("{}.{mark}", path.file_name().unwrap_or_default().to_string_lossy()))
}

/// A local store is its file, what SQLite keeps beside it, and a folder of locks.
fn remove_files(path: &Path) -> std::io::Result<()> {
    let with = |ending: &str| PathBuf::from(format!("{}{ending}", path.display()));
    std::fs::remove_dir_all(with("-live"))?;
    for ending in ["-wal", "-shm", ""] {
        match std::fs::remove_file(with(ending)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}
