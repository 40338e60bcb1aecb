//! The stream of what happens to a node.

use std::sync::Arc;

use futures::Stream;
use leasehold_core::Notice;
use tokio::sync::broadcast;

/// How many events wait for a reader that is slow.
pub(crate) const WAITING_MAX: usize = 4096;

/// Something that happened, with the wall clock for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// When, in milliseconds since 1970.
    pub unix_ms: u64,
    /// What.
    pub notice: Notice,
}

/// What happens to a node, from when this was made on. A reader that is too slow misses the oldest events, and can
/// see in [`missed`](Events::missed) how many.
#[derive(Debug)]
pub struct Events {
    inbox: broadcast::Receiver<Arc<Told>>,
    missed: u64,
}

impl Events {
    pub(crate) fn new(inbox: broadcast::Receiver<Arc<Told>>) -> Self {
        Events { inbox, missed: 0 }
    }

    /// The next event; `None` when the node is gone.
    pub async fn next(&mut self) -> Option<Arc<Told>> {
        loop {
            match self.inbox.recv().await {
                Ok(told) => return Some(told),
                Err(broadcast::error::RecvError::Lagged(count)) => self.missed += count,
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }

    /// How many events were missed so far.
    pub fn missed(&self) -> u64 {
        self.missed
    }

    /// The same as a stream.
    pub fn into_stream(self) -> impl Stream<Item = Arc<Told>> + Send {
        futures::stream::unfold(self, |mut events| async move { Some((events.next().await?, events)) })
    }
}
