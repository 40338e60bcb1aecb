use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold::Client;
use leasehold::tasks::Tasks;
use leasehold_core::NodeName;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

/// Drains nodes and takes that back, one request after the other, however long the store does not answer.
#[derive(Debug)]
pub(super) struct Operator {
    requests: mpsc::UnboundedSender<OperatorRequest>,
    waiting: Arc<AtomicUsize>,
    _tasks: Tasks,
}

/// An operator's request.
#[derive(Clone, Debug)]
pub(super) enum OperatorRequest {
    Drain(NodeName),
    Undrain(NodeName),
}

impl Operator {
    pub(super) fn of(client: Client) -> Operator {
        let (requests, mut inbox) = mpsc::unbounded_channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let tasks = Tasks::on(Handle::current());
        let still = waiting.clone();
        tasks.spawn(async move {
            while let Some(request) = inbox.recv().await {
                while !granted(&client, &request).await {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                still.fetch_sub(1, Ordering::AcqRel);
            }
        });
        Operator { requests, waiting, _tasks: tasks }
    }

    pub(super) fn send(&self, request: OperatorRequest) {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        let _ = self.requests.send(request);
    }

    /// Whether the store has all requests.
    pub(super) fn is_done(&self) -> bool {
        self.waiting.load(Ordering::Acquire) == 0
    }
}

/// A request may be made twice: the second time changes nothing.
async fn granted(client: &Client, request: &OperatorRequest) -> bool {
    let made = match request {
        OperatorRequest::Drain(node) => client.drain(node, "leasehold check").await,
        OperatorRequest::Undrain(node) => client.undrain(node).await,
    };
    made.is_ok()
}
