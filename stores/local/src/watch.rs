//! Changes as they happen: a thread that the kernel wakes after each commit, of whichever process.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use futures::stream;
use leasehold_core::Moment;
use leasehold_store::{StoreError, Watch, WatchEvent};
use tokio::sync::mpsc;

use crate::census::Census;
use crate::clock;
use crate::ears::{Ears, Heard};
use crate::link::{Link, Shared};
use crate::local;
use crate::patience::Patience;
use crate::records;
use crate::trouble::refused;

/// Events that wait for a slow reader. Beyond these the thread waits, and later tells only the newest states.
const EVENTS_QUEUED_MAX: usize = 16;
/// The longest pause between two looks at a file that gives trouble.
const RETRY_MAX: Duration = Duration::from_secs(1);

/// How often the locks are looked at after one was closed: after 1, 2, 4, … ms.
const PROBES_AFTER_CLOSE: u32 = 6;

/// Starts to watch.
pub(crate) fn start(shared: Arc<Shared>) -> Result<Watch, StoreError> {
    let (events, mut queue) = mpsc::channel(EVENTS_QUEUED_MAX);
    // Before the first look, so that nothing can happen unheard in between.
    let ears = Ears::new(shared.place.clone());
    let census = Census::default();
    let watcher = Watcher {
        link: Link::unopened(shared),
        events,
        ears,
        census,
        told: None,
        trouble: 0,
        probes_left: 0,
        probe_at: Moment::ZERO,
    };
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
    ears: Ears,
    census: Census,
    /// `None` before the first snapshot and after every gap.
    told: Option<Told>,
    /// Looks that failed in a row.
    trouble: u32,
    /// How many more times to look at the locks in quick succession.
    probes_left: u32,
    /// When to look at them even if nothing was heard.
    probe_at: Moment,
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
                    self.census.note(&event);
                    self.tell(event)?;
                }
                self.link.shared.options.look_every
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
        self.tell_of_the_gone()?;
        if self.events.is_closed() {
            return Err(NobodyListens);
        }
        self.wait(pause);
        Ok(())
    }

    /// Looks at the locks if one was closed, if the nodes are other ones, or if it has been a while.
    fn tell_of_the_gone(&mut self) -> Result<(), NobodyListens> {
        let now = clock::now();
        if self.probes_left == 0 && !self.census.take_changed() && now < self.probe_at {
            return Ok(());
        }
        self.probe_at = now + self.link.shared.options.look_every;
        for session in self.census.newly_gone(&self.link.shared.place) {
            self.tell(WatchEvent::ProcessGone(session))?;
        }
        Ok(())
    }

    /// Waits for the kernel's word. It tells of a closed lock file an instant before the lock is free, so the locks are
    /// then looked at a few more times.
    fn wait(&mut self, pause: Duration) {
        let soon = Duration::from_millis(1) * 2u32.pow(PROBES_AFTER_CLOSE - self.probes_left);
        let pause = if self.probes_left > 0 { pause.min(soon) } else { pause };
        self.probes_left = self.probes_left.saturating_sub(1);
        if self.ears.wait(pause) == Heard::LockClosed {
            self.probes_left = PROBES_AFTER_CLOSE;
        }
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
