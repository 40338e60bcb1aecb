//! The one place where tasks and threads are started. Whatever is started here ends with its owner.

use std::future::Future;
use std::io;

use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

/// Tasks on one runtime. When this is dropped, they are dropped at their current `await`.
#[derive(Debug)]
pub struct Tasks {
    runtime: Handle,
    end: CancellationToken,
}

impl Tasks {
    /// A set of tasks on this runtime.
    pub fn on(runtime: Handle) -> Self {
        Tasks { runtime, end: CancellationToken::new() }
    }

    /// Starts a task in the set.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let end = self.end.clone();
        spawn_on(&self.runtime, async move {
            tokio::select! {
                biased;
                () = end.cancelled() => {}
                () = task => {}
            }
        });
    }

    /// Cancelled when the set ends.
    pub fn end(&self) -> &CancellationToken {
        &self.end
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.end.cancel();
    }
}

/// Starts a task that must end by itself: by a token or a channel of its owner.
#[allow(clippy::disallowed_methods, reason = "the one place where tasks are started")]
pub(crate) fn spawn_on(runtime: &Handle, task: impl Future<Output = ()> + Send + 'static) {
    drop(runtime.spawn(task));
}

/// Runs a blocking closure on a runtime's thread pool. Its owner must count it until it returns.
pub(crate) fn block_on_pool(runtime: &Handle, work: impl FnOnce() + Send + 'static) {
    drop(runtime.spawn_blocking(work));
}

/// Where the driver of a node, or the keeper of registered keys, runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunsOn {
    /// On its own thread and runtime, where user code cannot block it.
    OwnThread,
    /// On the current runtime, for tests under virtual time.
    #[cfg(feature = "test-util")]
    CurrentRuntime,
}

/// Runs a future to its end on a new thread, with its own tokio runtime.
pub(crate) fn on_own_thread<F, M>(name: &str, make: M) -> io::Result<()>
where
    M: FnOnce() -> F + Send + 'static,
    F: Future<Output = ()>,
{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        runtime.block_on(make());
        // A call that blocks a thread of the pool must not delay the end.
        runtime.shutdown_background();
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn tasks_end_with_their_owner() {
        let alive = Arc::new(());
        let tasks = Tasks::on(Handle::current());
        for _ in 0..3 {
            let alive = alive.clone();
            tasks.spawn(async move {
                std::future::pending::<()>().await;
                drop(alive);
            });
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert_eq!(Arc::strong_count(&alive), 4);
        drop(tasks);
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert_eq!(Arc::strong_count(&alive), 1);
    }

    #[test]
    fn a_thread_of_its_own_runs_to_its_end() {
        let (tx, rx) = std::sync::mpsc::channel();
        on_own_thread("leasehold-test", move || async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            tx.send(std::thread::current().name().map(str::to_owned)).unwrap();
        })
        .unwrap();
        let name = rx.recv_timeout(Duration::from_secs(10)).unwrap();
        assert_eq!(name.as_deref(), Some("leasehold-test"));
    }
}
