//! Questions to user code: its weight, its health, and whether to take a shard.

use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use leasehold_core::ShardId;
use leasehold_core::event::Verdict;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::clock::Clock;
use crate::tasks;

/// A question without an argument.
pub(crate) type Ask<T> = Arc<dyn Fn() -> BoxFuture<'static, T> + Send + Sync>;
/// The acquire gate.
pub(crate) type AskGate = Arc<dyn Fn(ShardId) -> BoxFuture<'static, Verdict> + Send + Sync>;

/// Whether the program is able to run shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// It is able to.
    Healthy,
    /// It is not: the node takes no new shards and hands over those that others can take.
    Unhealthy,
}

/// The hooks of one node. They run on the user's runtime. The time limit runs elsewhere, so a runtime that is stuck
/// counts as a bad answer.
#[derive(Clone, Default)]
pub(crate) struct Hooks {
    pub(crate) weight: Option<Ask<u32>>,
    pub(crate) health: Option<Ask<Health>>,
    pub(crate) gate: Option<AskGate>,
}

impl Hooks {
    /// Whether there are no hooks.
    pub(crate) fn is_empty(&self) -> bool {
        self.weight.is_none() && self.health.is_none() && self.gate.is_none()
    }
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks")
            .field("weight", &self.weight.is_some())
            .field("health", &self.health.is_some())
            .field("gate", &self.gate.is_some())
            .finish()
    }
}

/// Asks user code on its own runtime. Returns `None` if the hook panicked or did not answer in time; it is then
/// dropped.
pub(crate) async fn ask<T: Send + 'static>(
    runtime: &Handle,
    clock: &Clock,
    within: Duration,
    question: impl Future<Output = T> + Send + 'static,
) -> Option<T> {
    let (mut answer, waiting) = oneshot::channel();
    tasks::spawn_on(runtime, async move {
        let outcome = tokio::select! {
            biased;
            () = answer.closed() => None,
            outcome = AssertUnwindSafe(question).catch_unwind() => outcome.ok(),
        };
        if let Some(outcome) = outcome {
            let _ = answer.send(outcome);
        }
    });
    clock.timeout_at(clock.now() + within, waiting).await?.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_hook_that_hangs_or_panics_is_no_answer() {
        let (runtime, clock) = (Handle::current(), Clock::virtual_time());
        let second = Duration::from_secs(1);
        let token = Arc::new(());
        let held = token.clone();
        let hung = async move {
            let _held = held;
            std::future::pending::<u32>().await
        };
        assert_eq!(ask(&runtime, &clock, second, async { 7 }).await, Some(7));
        assert_eq!(ask(&runtime, &clock, second, hung).await, None);
        assert_eq!(ask::<u32>(&runtime, &clock, second, async { panic!("no") }).await, None);
        tokio::time::sleep(second).await;
        assert_eq!(Arc::strong_count(&token), 1, "a hook that nobody waits for is dropped");
    }
}
