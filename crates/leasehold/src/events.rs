//! The stream of a node's events.

use std::sync::Arc;

use futures::Stream;
use leasehold_core::Notice;
use tokio::sync::broadcast;

/// How many events are kept for a slow reader.
pub(crate) const WAITING_MAX: usize = 4096;

/// An event, with the wall-clock time for people.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeEvent {
    /// When, in milliseconds since 1970.
    pub unix_ms: u64,
    /// What.
    pub notice: Notice,
}

/// The events of a node, from the moment when this was created. A reader that is too slow misses the oldest events;
/// [`missed`](Events::missed) says how many. Log lines and metrics tell the same: [`observe`](crate::observe).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), leasehold::BoxError> {
/// use leasehold::{Group, Node, Notice};
///
/// let node = Node::solo().hold(Group::leader("scheduler")).start().await?;
/// let mut events = node.events();
/// while let Some(event) = events.next().await {
///     println!("{} {}", event.unix_ms, event.notice); // a sentence
///     if let Notice::Started { shard, epoch, .. } = &event.notice {
///         assert_eq!((shard.to_string().as_str(), epoch.0), ("scheduler/0", 1));
///         break;
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Events {
    inbox: broadcast::Receiver<Arc<NodeEvent>>,
    missed: u64,
}

impl Events {
    pub(crate) fn new(inbox: broadcast::Receiver<Arc<NodeEvent>>) -> Self {
        Events { inbox, missed: 0 }
    }

    /// The next event; `None` when the node is gone.
    pub async fn next(&mut self) -> Option<Arc<NodeEvent>> {
        loop {
            match self.inbox.recv().await {
                Ok(told) => return Some(told),
                Err(broadcast::error::RecvError::Lagged(count)) => self.missed += count,
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }

    /// How many events this reader has missed so far.
    pub fn missed(&self) -> u64 {
        self.missed
    }

    /// The same events as a stream.
    pub fn into_stream(self) -> impl Stream<Item = Arc<NodeEvent>> + Send {
        futures::stream::unfold(self, |mut events| async move { Some((events.next().await?, events)) })
    }
}
