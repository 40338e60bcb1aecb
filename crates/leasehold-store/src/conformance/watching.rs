//! Reads a watch and puts its events together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use leasehold_core::store::{Key, Stored, WatchEvent};

use super::Unmet;
use super::trial::Trial;
use super::verdict::ensure;
use crate::{Store, Watch};

/// What came out of a watch, put together.
#[derive(Debug, Default)]
pub(super) struct WatchedState {
    pub(super) records: BTreeMap<Key, Stored>,
    pub(super) snapshots: usize,
    pub(super) interrupted: bool,
    /// A record whose number fell, if one did.
    pub(super) backwards: Option<String>,
    /// All values that were told of.
    pub(super) told: BTreeSet<Arc<[u8]>>,
}

impl WatchedState {
    fn take(&mut self, event: &WatchEvent) {
        match event {
            WatchEvent::Snapshot(listing) => {
                self.snapshots += 1;
                self.records.clear();
                listing.entries.iter().for_each(|(key, stored)| self.set(key, Some(stored)));
            }
            WatchEvent::Changed(changes) => {
                changes.iter().for_each(|(key, stored)| self.set(key, stored.as_ref()));
            }
            WatchEvent::Interrupted(_) => self.interrupted = true,
            WatchEvent::ProcessGone(_) => {}
        }
    }

    fn set(&mut self, key: &Key, stored: Option<&Stored>) {
        let Some(stored) = stored else {
            self.records.remove(key);
            return;
        };
        self.told.insert(stored.value.clone());
        if let Some(before) = self.records.insert(key.clone(), stored.clone())
            && let (Some(before), Some(after)) = (number(&before), number(stored))
            && after < before
        {
            self.backwards = Some(format!("{key}: {before}, then {after}"));
        }
    }
}

fn number(stored: &Stored) -> Option<u64> {
    std::str::from_utf8(&stored.value).ok()?.parse().ok()
}

/// Opens a watch; `None` if the store says that it has none.
pub(super) async fn open_watch(store: &dyn Store) -> Result<Option<Watch>, Unmet> {
    let watch = store.watch().await?;
    ensure!(
        watch.is_some() == store.facts().watch,
        format!("a watch if and only if facts().watch, which is {}", store.facts().watch),
        if watch.is_some() { "a watch" } else { "none" },
        "a node polls only if the facts say that there is no watch",
    );
    Ok(watch)
}

pub(super) async fn needed_watch(store: &dyn Store) -> Result<Watch, Unmet> {
    open_watch(store).await?.ok_or_else(no_watch)
}

pub(super) fn no_watch() -> Unmet {
    Unmet::Skipped("the store has no watch".to_owned())
}

/// The next event, which must come.
pub(super) async fn next(watch: &mut Watch, trial: &Trial<'_>) -> Result<WatchEvent, Unmet> {
    let seen = match tokio::time::timeout(trial.scale.patience, watch.next()).await {
        Ok(Some(event)) => return Ok(event),
        Ok(None) => "its end".to_owned(),
        Err(_) => format!("nothing for {:?}", trial.scale.patience),
    };
    Err(Unmet::failed("another event from a watch", seen, SILENT))
}

const SILENT: &str = "a node believes its watch, and would not hear of anything until the next listing";

/// How long a watch must be silent to count as having told all.
const QUIET: Duration = Duration::from_millis(200);

/// A watch and what came out of it so far.
pub(super) struct Watching {
    watch: Watch,
    pub(super) seen: WatchedState,
}

impl Watching {
    /// Opens a watch and takes in its snapshot, so that what is written from now on must come as changes. `None` if
    /// the store has no watch.
    pub(super) async fn begin(store: &dyn Store, trial: &Trial<'_>) -> Result<Option<Self>, Unmet> {
        let Some(watch) = open_watch(store).await? else { return Ok(None) };
        let mut watching = Watching { watch, seen: WatchedState::default() };
        let first = next(&mut watching.watch, trial).await?;
        watching.seen.take(&first);
        Ok(Some(watching))
    }

    /// A watch whose snapshot has not been taken in.
    pub(super) fn unread(watch: Watch) -> Self {
        Watching { watch, seen: WatchedState::default() }
    }

    /// Reads on until what came is as wanted, or nothing more comes. A watch that ends is a failure.
    pub(super) async fn until(
        &mut self,
        trial: &Trial<'_>,
        wanted: impl Fn(&WatchedState) -> bool,
    ) -> Result<(), Unmet> {
        while !wanted(&self.seen) {
            let Ok(event) = tokio::time::timeout(trial.scale.patience, self.watch.next()).await else {
                break;
            };
            let Some(event) = event else {
                return Err(Unmet::failed("a watch that never ends by itself", "its end", SILENT));
            };
            self.seen.take(&event);
        }
        Ok(())
    }

    /// Takes in what still comes after what was waited for: something older, or from another writer.
    pub(super) async fn drain(&mut self) {
        while let Ok(Some(event)) = tokio::time::timeout(QUIET, self.watch.next()).await {
            self.seen.take(&event);
        }
    }
}
