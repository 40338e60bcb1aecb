//! Watches a namespace by polling: often while records change, rarely at rest.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::stream;
use leasehold_store::{Key, Listing, Stored, Version, Watch, WatchEvent};

use crate::cache::Sweep;
use crate::namespace::{Looked, Namespace};
use crate::probe::Probe;

/// Starts a watch. It polls only while its reader waits.
pub(crate) fn start(namespace: Arc<Namespace>, probe: Arc<Probe>) -> Watch {
    let pause = namespace.options.poll_first;
    let watcher = Watcher { namespace, probe, told: None, pause, interrupted: false };
    Box::pin(stream::unfold(watcher, |mut watcher| async move {
        let event = watcher.next().await;
        Some((event, watcher))
    }))
}

struct Watcher {
    namespace: Arc<Namespace>,
    probe: Arc<Probe>,
    /// What the reader got; `None` before the first snapshot and after every gap.
    told: Option<BTreeMap<Key, Version>>,
    pause: Duration,
    interrupted: bool,
}

impl Watcher {
    async fn next(&mut self) -> WatchEvent {
        loop {
            if self.told.is_some() || self.interrupted {
                self.wait().await;
            }
            let looked = match self.probe.check_verdict() {
                Ok(()) => self.namespace.look(Sweep::IfMarked).await,
                // Nothing is delivered from a bucket that does not honour conditions.
                Err(error) => Err(error),
            };
            match looked {
                Ok(looked) => {
                    self.interrupted = false;
                    // Renewals that were read on the side are told as well, and are no reason to hurry.
                    if looked == Looked::Changes {
                        self.pause = self.namespace.options.poll_first;
                    }
                    if let Some(event) = self.news() {
                        return event;
                    }
                }
                Err(error) => {
                    self.told = None;
                    if !std::mem::replace(&mut self.interrupted, true) {
                        return WatchEvent::Interrupted(error.to_string());
                    }
                }
            }
        }
    }

    /// Waits for the next look, and less if this client wrote something.
    async fn wait(&mut self) {
        // A little more than asked for, never less, so that the looks of many nodes spread.
        let pause = self.pause + leasehold_store::rng::up_to(self.pause / 10);
        self.pause = (self.pause + self.pause / 2).min(self.namespace.options.poll_every);
        if tokio::time::timeout(pause, self.namespace.changed.notified()).await.is_ok() {
            self.pause = self.namespace.options.poll_first;
        }
    }

    /// What the reader has not been told yet.
    fn news(&mut self) -> Option<WatchEvent> {
        let listing = self.namespace.listing();
        let now: BTreeMap<Key, Version> =
            listing.entries.iter().map(|(key, stored)| (key.clone(), stored.version.clone())).collect();
        match self.told.replace(now) {
            None => Some(WatchEvent::Snapshot(listing)),
            Some(told) => {
                let changed = changes(&told, listing);
                (!changed.is_empty()).then_some(WatchEvent::Changed(changed))
            }
        }
    }
}

fn changes(told: &BTreeMap<Key, Version>, listing: Listing) -> Vec<(Key, Option<Stored>)> {
    let mut gone = told.clone();
    let mut changed = Vec::new();
    for (key, stored) in listing.entries {
        if gone.remove(&key).is_none_or(|version| version != stored.version) {
            changed.push((key, Some(stored)));
        }
    }
    changed.extend(gone.into_keys().map(|key| (key, None)));
    changed
}
