//! The watch: a listing, then what changes after it.
//!
//! The server ends every watch after some minutes; it goes on where it stood, and nothing is missed. When the server has
//! forgotten that place (410), the connection broke or ended early, or it was silent for longer than bookmarks are
//! apart, the watch reports an interruption and starts again with a listing: the server that answers next may be
//! another one, or have been restored from a backup.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, BoxStream, ReadyChunks};
use futures::{StreamExt, stream::unfold};
use leasehold_core::Moment;
use leasehold_store::{Key, Listing, StoreError, Stored, Watch, WatchEvent, rng};

use crate::api_types::Lease;
use crate::error::{ApiCall, ApiError};
use crate::kubernetes::Inner;
use crate::layout::Entry;
use crate::leases::{Page, WATCH_FOR};
use crate::{client, clock};

/// Bookmarks come about once a minute, renewals of any node far more often.
const SILENT_FOR_MAX: Duration = Duration::from_secs(75);
/// The most changes in one event.
const CHANGES_MAX: usize = 256;
/// How long to pause before a new listing, at first and at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

type Events = ReadyChunks<BoxStream<'static, kube::Result<kube::core::WatchEvent<Lease>>>>;

/// Starts a watch.
pub(crate) async fn start(inner: Arc<Inner>) -> Result<Watch, StoreError> {
    let mut watcher = Watcher { inner, state: State::Lost, pause: PAUSE.0, opened_at: Moment::ZERO };
    watcher.begin().await?;
    let told = unfold(watcher, |mut watcher| async move {
        let event = watcher.next().await;
        Some((event, watcher))
    });
    Ok(Box::pin(told))
}

struct Watcher {
    inner: Arc<Inner>,
    state: State,
    pause: Duration,
    opened_at: Moment,
}

enum State {
    /// Listed and followed from there; nothing is delivered yet.
    Begun(Listing, Events, String),
    /// Followed, and delivered up to here.
    Open(Events, String),
    /// To be followed from here.
    At(String),
    /// To be listed again.
    Lost,
}

/// What a batch of events comes to.
#[derive(Default)]
struct Batch {
    changes: BTreeMap<Key, Option<Stored>>,
    resource_version: Option<String>,
    broken: Option<String>,
}

impl Watcher {
    async fn next(&mut self) -> WatchEvent {
        loop {
            match std::mem::replace(&mut self.state, State::Lost) {
                State::Begun(listing, events, place) => {
                    self.state = State::Open(events, place);
                    return WatchEvent::Snapshot(listing);
                }
                State::Open(events, place) => {
                    if let Some(event) = self.hear(events, place).await {
                        return event;
                    }
                }
                State::At(place) => match self.open(&place).await {
                    Ok(events) => self.state = State::Open(events, place),
                    Err(why) => return WatchEvent::Interrupted(why.message),
                },
                State::Lost => self.restart().await,
            }
        }
    }

    /// Lists, and follows from there at once.
    async fn begin(&mut self) -> Result<(), StoreError> {
        let Page { listing, resource_version } = self.inner.leases.list(&self.inner.watch).await?;
        let events = self.open(&resource_version).await?;
        self.state = State::Begun(listing, events, resource_version);
        Ok(())
    }

    async fn restart(&mut self) {
        tokio::time::sleep(self.pause + rng::up_to(self.pause)).await;
        self.pause = (self.pause * 2).min(PAUSE.1);
        if let Err(error) = self.begin().await {
            tracing::debug!(%error, "cannot reopen the watch yet");
        }
    }

    async fn open(&mut self, place: &str) -> Result<Events, StoreError> {
        let Inner { leases, watch, .. } = &*self.inner;
        let events = leases.follow(watch, place).await?;
        self.opened_at = clock::now();
        Ok(events.ready_chunks(CHANGES_MAX))
    }

    /// Waits for news. Should this be dropped, the watch goes on with a listing.
    async fn hear(&mut self, mut events: Events, place: String) -> Option<WatchEvent> {
        let Ok(heard) = tokio::time::timeout(SILENT_FOR_MAX, client::quiet(events.next())).await else {
            return Some(WatchEvent::Interrupted(format!("the watch was silent for {SILENT_FOR_MAX:?}")));
        };
        let Some(heard) = heard else {
            if clock::now().since(self.opened_at) < WATCH_FOR {
                return Some(WatchEvent::Interrupted("the server ended the watch early".to_owned()));
            }
            self.state = State::At(place);
            return None;
        };
        let batch = self.gather(heard);
        match batch.broken {
            Some(why) if batch.changes.is_empty() => return Some(WatchEvent::Interrupted(why)),
            Some(why) => {
                // What came before the break is delivered now, and the break next.
                let broken =
                    stream::once(async move { Err(kube::Error::ReadEvents(std::io::Error::other(why))) });
                self.state = State::Open(broken.boxed().ready_chunks(1), place);
            }
            None => {
                self.pause = PAUSE.0;
                self.state = State::Open(events, batch.resource_version.unwrap_or(place));
            }
        }
        let changes: Vec<_> = batch.changes.into_iter().collect();
        (!changes.is_empty()).then_some(WatchEvent::Changed(changes))
    }

    /// Of several states of one record only the last is delivered.
    fn gather(&self, heard: Vec<kube::Result<kube::core::WatchEvent<Lease>>>) -> Batch {
        use kube::core::WatchEvent::{Added, Bookmark, Deleted, Error, Modified};
        let mut batch = Batch::default();
        for event in heard {
            let (lease, there) = match event {
                Ok(Added(lease) | Modified(lease)) => (lease, true),
                Ok(Deleted(lease)) => (lease, false),
                Ok(Bookmark(bookmark)) => {
                    batch.resource_version = Some(bookmark.metadata.resource_version);
                    continue;
                }
                Ok(Error(status)) => {
                    batch.broken =
                        Some(format!("the server ended the watch ({}: {})", status.code, status.message));
                    break;
                }
                Err(error) => {
                    let call = ApiCall::of_leases("watch", "");
                    batch.broken = Some(ApiError::from(error).into_store_error(&call).message);
                    break;
                }
            };
            match there {
                true => self.inner.leases.references.note(&lease.metadata),
                false => self.inner.leases.references.forget(&lease.metadata.uid),
            }
            match self.inner.leases.layout.entry(&lease) {
                Entry::Record(key, stored) => drop(batch.changes.insert(key, there.then_some(stored))),
                // Another generation comes with a listing, and so do the records that went with the old one.
                Entry::Anchor(_) if !there => {
                    batch.broken = Some("the store's anchor was removed".to_owned())
                }
                Entry::Anchor(_) | Entry::Foreign(_) => {}
            }
            batch.resource_version = Some(lease.metadata.resource_version);
        }
        batch
    }
}
