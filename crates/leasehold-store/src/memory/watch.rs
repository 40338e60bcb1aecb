use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use futures::Stream;
use leasehold_core::store::WatchEvent;

use super::server::MemoryServer;

/// The server's side of one watch.
#[derive(Debug)]
pub(super) struct Watcher {
    pub(super) namespace: String,
    waiting: VecDeque<WatchEvent>,
    interrupted: Option<String>,
    snapshot: Snapshot,
    waker: Option<Waker>,
}

/// Whether the next thing to tell is everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Snapshot {
    Due,
    Told,
}

impl Watcher {
    pub(super) fn new(namespace: &str) -> Self {
        Watcher {
            namespace: namespace.to_owned(),
            waiting: VecDeque::new(),
            interrupted: None,
            snapshot: Snapshot::Due,
            waker: None,
        }
    }

    pub(super) fn tell(&mut self, event: WatchEvent, capacity: usize) {
        // A snapshot that is still due is taken when it is told, so it shows this change.
        if self.snapshot == Snapshot::Due && matches!(event, WatchEvent::Changed(_)) {
            return;
        }
        if self.waiting.len() >= capacity {
            return self.interrupt(&format!("{capacity} changes were waiting to be read"));
        }
        self.waiting.push_back(event);
        self.wake();
    }

    pub(super) fn interrupt(&mut self, why: &str) {
        self.interrupted = Some(why.to_owned());
        self.snapshot = Snapshot::Due;
        self.waiting.clear();
        self.wake();
    }

    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// The client's side of one watch. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Watching {
    server: MemoryServer,
    id: u64,
}

impl Watching {
    pub(super) fn begin(server: &MemoryServer, namespace: &str) -> Self {
        let id = server.lock().add_watcher(namespace);
        Watching { server: server.clone(), id }
    }
}

impl Stream for Watching {
    type Item = WatchEvent;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<WatchEvent>> {
        let mut server = self.server.lock();
        let Some(watcher) = server.watchers.get_mut(&self.id) else {
            return Poll::Ready(None);
        };
        if let Some(why) = watcher.interrupted.take() {
            return Poll::Ready(Some(WatchEvent::Interrupted(why)));
        }
        if watcher.snapshot == Snapshot::Due {
            watcher.snapshot = Snapshot::Told;
            let namespace = watcher.namespace.clone();
            return Poll::Ready(Some(WatchEvent::Snapshot(server.listing(&namespace))));
        }
        match watcher.waiting.pop_front() {
            Some(event) => Poll::Ready(Some(event)),
            None => {
                watcher.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.server.lock().watchers.remove(&self.id);
    }
}
