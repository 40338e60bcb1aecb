//! A temporary namespace on the user's store, which disturbs no other and is deleted afterwards.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use leasehold_cli_common::failure::{Code, Failure};
use leasehold_cli_common::settings::{Problem, Problems, Settings, redacted};
use leasehold_cli_common::stores;
use leasehold_store::{Store, StoreExt, Throwaway};

use super::route::{self, Kind};

/// How long the store may take to answer the first question.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the check of conditional writes may take: a bucket is tried with many writes.
const VETTED_WITHIN: Duration = Duration::from_secs(120);
/// How long clearing may take: some stores remove one record at a time.
const CLEARED_WITHIN: Duration = Duration::from_secs(120);

/// A namespace of our own; on a local store a file of our own, beside the one that was named, because a process that holds
/// its write lock blocks all others; in a bucket a folder of our own, because a bucket is checked beside its namespaces.
pub(crate) struct Scratch {
    /// Where nodes find it. It may hold secrets.
    pub(crate) url: String,
    /// The same for people.
    pub(crate) shown: String,
    pub(crate) kind: Kind,
    pub(crate) namespace: String,
    pub(crate) store: Arc<dyn Store>,
    throwaway: Throwaway,
}

impl Scratch {
    /// Opens it, and sees that the store answers.
    pub(crate) async fn open(settings: &Settings, purpose: &str) -> Result<Scratch, Failure> {
        let url = stores::understood(settings)?;
        let refused = |what: &str, advice: &str| {
            Failure::from(Problems(vec![Problem::new(settings.place_of("store"), what, advice)]))
        };
        if url.starts_with("memory:") {
            return Err(refused(
                "a memory store exists only in one process, but each node is a separate process",
                "use a store that processes can share, for example local:./leasehold.db",
            ));
        }
        let kind = route::kind(url).await.map_err(|what| refused(&what, "fix the URL"))?;
        let throwaway = Throwaway::new(purpose)?;
        let mark = throwaway.name();
        let (url, kind) = match kind {
            Kind::File(path) => {
                let path = beside(&path, mark);
                (format!("local:{}", path.display()), Kind::File(path))
            }
            other if is_bucket(url) => (below(url, mark), other),
            other => (url.to_owned(), other),
        };
        let store = leasehold::store::open(&url, mark)?;
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
        Ok(Scratch { url, shown, kind, namespace: mark.to_owned(), store, throwaway })
    }

    /// Sees that the store may be trusted with records: no node need be started to learn that it may not. What this writes
    /// is cleared with all else.
    pub(crate) async fn vet(&self) -> Result<(), Failure> {
        let vetting = stores::vet(&*self.store, |what| eprintln!("{what}"));
        match tokio::time::timeout(VETTED_WITHIN, vetting).await {
            Ok(vetted) => Ok(vetted?),
            Err(_) => {
                let message = format!(
                    "the store {} could not be tested within {} s; run `leasehold doctor`",
                    self.shown,
                    VETTED_WITHIN.as_secs()
                );
                Err(Failure::new(Code::Store, message))
            }
        }
    }

    /// Clears it, and says what could not be removed. All nodes and clients must have ended.
    pub(crate) async fn clear(self) -> Option<String> {
        if let Kind::File(path) = &self.kind {
            let path = path.clone();
            drop(self.store);
            return remove_files(&path)
                .err()
                .map(|error| format!("cannot delete {}: {error}", path.display()));
        }
        let stays =
            |why: String| Some(format!("cannot delete {} from {}: {why}", self.throwaway, self.shown));
        match tokio::time::timeout(CLEARED_WITHIN, self.store.discard(&self.throwaway)).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => stays(error.to_string()),
            Err(_) => stays(format!("timed out after {} s", CLEARED_WITHIN.as_secs())),
        }
    }
}

fn is_bucket(url: &str) -> bool {
    ["s3://", "gs://", "az://"].into_iter().any(|scheme| url.starts_with(scheme))
}

/// The URL of a folder in a bucket.
fn below(url: &str, folder: &str) -> String {
    let (place, question) = url.split_at(url.find('?').unwrap_or(url.len()));
    format!("{}/{folder}{question}", place.trim_end_matches('/'))
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

#[cfg(test)]
mod tests {
    #[test]
    fn a_folder_goes_before_the_question_mark() {
        for (url, expected) in [
            ("s3://b", "s3://b/f"),
            ("s3://b/", "s3://b/f"),
            ("gs://u:p@b/x/y?a=1/2", "gs://u:p@b/x/y/f?a=1/2"),
        ] {
            assert_eq!(super::below(url, "f"), expected);
        }
    }
}
