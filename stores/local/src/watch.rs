//! Changes as they happen: a thread that the kernel wakes after each commit, of whichever process.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use futures::stream;
use leasehold_store::{StoreError, Watch, WatchEvent};
use tokio::sync::mpsc;

use crate::link::{Link, Shared};
use crate::local;
use crate::patience::Patience;
use crate::records;
use crate::trouble::refused;

/// Events that wait for a slow reader. Beyond these the thread waits, and later tells only the newest states.
const EVENTS_QUEUED_MAX: usize = 16;
/// The longest pause between two looks at a file that gives trouble.
const RETRY_MAX: Duration = Duration::from_secs(1);

/// Starts to watch.
pub(crate) fn start(shared: Arc<Shared>) -> Result<Watch, StoreError> {
    let (events, mut queue) = mpsc::channel(EVENTS_QUEUED_MAX);
    let watcher = Watcher { link: Link::unopened(shared), events, told: None, trouble: 0 };
    thread::Builder::new()
        .name("lh-watch".to_owned())
        .spawn(move || watcher.run())
        .map_err(|e| refused(format!("no thread could be started ({e})")))?;
    Ok(Box::pin(stream::poll_fn(move |context| queue.poll_recv(context))))
}

/// The state that the reader was told of.
#[derive(Debug, PartialEq, Eq)]
struct Told {
    generation: String,
    revision: u64,
}

struct Watcher {
    link: Link,
    events: mpsc::Sender<WatchEvent>,
    /// `None` before the first snapshot and after every gap.
    told: Option<Told>,
    /// Looks that failed in a row.
    trouble: u32,
}

/// The reader is gone.
struct NobodyListens;

impl Watcher {
    fn run(mut self) {
        while self.round().is_ok() {}
    }

    fn round(&mut self) -> Result<(), NobodyListens> {
        let patience = Patience::of(self.link.shared.options.busy_for);
        let pause = match patience.during(|| self.look()) {
            Ok(events) => {
                self.trouble = 0;
                for event in events {
                    self.tell(event)?;
                }
                Duration::from_millis(5)
            }
            Err(error) => {
                if self.trouble == 0 {
                    self.tell(WatchEvent::Interrupted(error.to_string()))?;
                }
                self.told = None;
                self.trouble = self.trouble.saturating_add(1);
                (Duration::from_millis(20) * self.trouble.min(50)).min(RETRY_MAX)
            }
        };
        if self.events.is_closed() {
            return Err(NobodyListens);
        }
        thread::sleep(pause);
        Ok(())
    }

    /// What the reader has to be told now.
    fn look(&mut self) -> Result<Vec<WatchEvent>, StoreError> {
        let Some(told) = &self.told else { return Ok(vec![self.snapshot()?]) };
        let namespace = self.link.shared.namespace.clone();
        let (revision, from) = (told.revision, told.generation.clone());
        let news = self.link.read(|connection, head| {
            if head.revision == revision {
                return Ok(Vec::new());
            }
            records::changed_since(connection, &namespace, revision)
        })?;
        let gap = if news.generation != from {
            "the database is another one"
        } else if news.head.revision < revision {
            "the database went back to an older state"
        } else if news.head.forgotten > revision {
            "this watch fell too far behind"
        } else {
            self.told = Some(Told { generation: from, revision: news.head.revision });
            let events = (!news.value.is_empty()).then_some(WatchEvent::Changed(news.value));
            return Ok(events.into_iter().collect());
        };
        self.told = None;
        Ok(vec![WatchEvent::Interrupted(gap.to_owned()), self.snapshot()?])
    }

    fn snapshot(&mut self) -> Result<WatchEvent, StoreError> {
        let listing = local::list(&mut self.link)?;
        self.told =
            Some(Told { generation: listing.generation.clone(), revision: listing.revision.unwrap_or(0) });
        Ok(WatchEvent::Snapshot(listing))
    }

    fn tell(&mut self, event: WatchEvent) -> Result<(), NobodyListens> {
        self.events.blocking_send(event).map_err(|_| NobodyListens)
    }
}
