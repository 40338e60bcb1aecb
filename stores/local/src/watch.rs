//! Watches a namespace: a thread that the kernel wakes after each commit of any process.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use futures::stream;
use leasehold_core::Moment;
use leasehold_store::{StoreError, Watch, WatchEvent};
use tokio::sync::mpsc;

use crate::busy_timeout::BusyTimeout;
use crate::clock;
use crate::connection::{FileConnection, Shared};
use crate::error::refused;
use crate::listener::{Listener, Wakeup};
use crate::live_sessions::LiveSessions;
use crate::local;
use crate::records;

/// How many events are buffered for a slow reader. Beyond that the thread waits, and later delivers only the newest states.
const EVENTS_QUEUED_MAX: usize = 16;
/// The longest pause between two looks at a file that cannot be read.
const RETRY_MAX: Duration = Duration::from_secs(1);

/// How often the locks are looked at after one was closed: after 1, 2, 4, … ms.
const PROBES_AFTER_CLOSE: u32 = 6;

/// Starts to watch.
pub(crate) fn start(shared: Arc<Shared>) -> Result<Watch, StoreError> {
    let (events, mut queue) = mpsc::channel(EVENTS_QUEUED_MAX);
    // Before the first look, so that no change goes unnoticed in between.
    let listener = Listener::new(shared.db_file.clone());
    let live_sessions = LiveSessions::default();
    let watcher = Watcher {
        connection: FileConnection::unopened(shared),
        events,
        listener,
        live_sessions,
        delivered: None,
        failures: 0,
        probes_left: 0,
        probe_at: Moment::ZERO,
    };
    thread::Builder::new()
        .name("lh-watch".to_owned())
        .spawn(move || watcher.run())
        .map_err(|e| refused(format!("cannot start a thread ({e})")))?;
    Ok(Box::pin(stream::poll_fn(move |context| queue.poll_recv(context))))
}

/// The last state that the reader got.
#[derive(Debug, PartialEq, Eq)]
struct Delivered {
    generation: String,
    revision: u64,
}

struct Watcher {
    connection: FileConnection,
    events: mpsc::Sender<WatchEvent>,
    listener: Listener,
    live_sessions: LiveSessions,
    /// `None` before the first snapshot and after every gap.
    delivered: Option<Delivered>,
    /// Looks that failed in a row.
    failures: u32,
    /// How many more times to look at the locks in quick succession.
    probes_left: u32,
    /// When to look at them even if nothing was heard.
    probe_at: Moment,
}

/// The reader is gone.
struct ReaderGone;

impl Watcher {
    fn run(mut self) {
        while self.round().is_ok() {}
    }

    fn round(&mut self) -> Result<(), ReaderGone> {
        let busy_timeout = BusyTimeout::of(self.connection.shared.options.busy_for);
        let pause = match busy_timeout.during(|| self.look()) {
            Ok(events) => {
                self.failures = 0;
                for event in events {
                    self.live_sessions.note(&event);
                    self.tell(event)?;
                }
                self.connection.shared.options.look_every
            }
            Err(error) => {
                if self.failures == 0 {
                    self.tell(WatchEvent::Interrupted(error.to_string()))?;
                }
                self.delivered = None;
                self.failures = self.failures.saturating_add(1);
                (Duration::from_millis(20) * self.failures.min(50)).min(RETRY_MAX)
            }
        };
        self.tell_of_the_gone()?;
        if self.events.is_closed() {
            return Err(ReaderGone);
        }
        self.wait(pause);
        Ok(())
    }

    /// Looks at the locks if one was closed, if the nodes are other ones, or if it has been a while.
    fn tell_of_the_gone(&mut self) -> Result<(), ReaderGone> {
        let now = clock::now();
        if self.probes_left == 0 && !self.live_sessions.take_changed() && now < self.probe_at {
            return Ok(());
        }
        self.probe_at = now + self.connection.shared.options.look_every;
        for session in self.live_sessions.newly_gone(&self.connection.shared.db_file) {
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
        if self.listener.wait(pause) == Wakeup::LockClosed {
            self.probes_left = PROBES_AFTER_CLOSE;
        }
    }

    /// What the reader has to be told now.
    fn look(&mut self) -> Result<Vec<WatchEvent>, StoreError> {
        let Some(delivered) = &self.delivered else { return Ok(vec![self.snapshot()?]) };
        let namespace = self.connection.shared.namespace.clone();
        let (revision, from) = (delivered.revision, delivered.generation.clone());
        let news = self.connection.read(|connection, head| {
            if head.revision == revision {
                return Ok(Vec::new());
            }
            records::changed_since(connection, &namespace, revision)
        })?;
        let gap = if news.generation != from {
            "the database was replaced"
        } else if news.head.revision < revision {
            "the database went back to an older state"
        } else if news.head.forgotten > revision {
            "this watch fell too far behind"
        } else {
            self.delivered = Some(Delivered { generation: from, revision: news.head.revision });
            let events = (!news.value.is_empty()).then_some(WatchEvent::Changed(news.value));
            return Ok(events.into_iter().collect());
        };
        self.delivered = None;
        Ok(vec![WatchEvent::Interrupted(gap.to_owned()), self.snapshot()?])
    }

    fn snapshot(&mut self) -> Result<WatchEvent, StoreError> {
        let listing = local::list(&mut self.connection)?;
        self.delivered = Some(Delivered {
            generation: listing.generation.clone(),
            revision: listing.revision.unwrap_or(0),
        });
        Ok(WatchEvent::Snapshot(listing))
    }

    fn tell(&mut self, event: WatchEvent) -> Result<(), ReaderGone> {
        self.events.blocking_send(event).map_err(|_| ReaderGone)
    }
}
