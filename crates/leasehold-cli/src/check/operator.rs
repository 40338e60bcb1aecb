use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold::Client;
use leasehold::tasks::Tasks;
use leasehold_core::NodeName;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

/// Drains nodes and takes that back, one wish after the other, however long the store does not answer.
#[derive(Debug)]
pub(super) struct Operator {
    wishes: mpsc::UnboundedSender<Wish>,
    waiting: Arc<AtomicUsize>,
    _tasks: Tasks,
}

/// What an operator wants.
#[derive(Clone, Debug)]
pub(super) enum Wish {
    Drain(NodeName),
    Undrain(NodeName),
}

impl Operator {
    pub(super) fn of(client: Client) -> Operator {
        let (wishes, mut wished) = mpsc::unbounded_channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let tasks = Tasks::on(Handle::current());
        let still = waiting.clone();
        tasks.spawn(async move {
            while let Some(wish) = wished.recv().await {
                while !granted(&client, &wish).await {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                still.fetch_sub(1, Ordering::AcqRel);
            }
        });
        Operator { wishes, waiting, _tasks: tasks }
    }

    pub(super) fn wish(&self, wish: Wish) {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        let _ = self.wishes.send(wish);
    }

    /// Whether the store has all wishes.
    pub(super) fn is_done(&self) -> bool {
        self.waiting.load(Ordering::Acquire) == 0
    }
}

/// A wish may be made twice: the second time changes nothing.
async fn granted(client: &Client, wish: &Wish) -> bool {
    let made = match wish {
        Wish::Drain(node) => client.drain(node, "leasehold check").await,
        Wish::Undrain(node) => client.undrain(node).await,
    };
    made.is_ok()
}
