//! A thread for the calls of one lane, so that no async task ever waits for a disk.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;

use leasehold_store::{StoreError, StoreErrorKind};
use tokio::sync::oneshot;

use crate::busy_timeout::BusyTimeout;
use crate::connection::FileConnection;

type Call = Box<dyn FnOnce(&mut FileConnection) + Send>;

struct Job {
    abandoned: Arc<AtomicBool>,
    call: Call,
}

/// A handle to one thread. The thread ends when this is dropped and its work is done.
#[derive(Debug)]
pub(crate) struct LaneThread {
    jobs: mpsc::Sender<Job>,
}

/// Which thread writes the `-wal` back into the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Checkpoints {
    /// This one, between two calls.
    Here,
    /// Another one: a slow disk must not keep the next renewal waiting.
    Elsewhere,
}

/// Marks a call as abandoned when its caller has dropped it.
struct Caller(Arc<AtomicBool>);

impl Drop for Caller {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

impl LaneThread {
    /// Starts the thread.
    pub(crate) fn start(
        name: &str,
        connection: FileConnection,
        checkpoints: Checkpoints,
    ) -> io::Result<Self> {
        let (jobs, queue) = mpsc::channel();
        thread::Builder::new().name(name.to_owned()).spawn(move || serve(connection, &queue, checkpoints))?;
        Ok(LaneThread { jobs })
    }

    /// Does work on the thread. If the caller drops this before the work has begun, or while it still waits for another
    /// process's lock, the work is never done.
    pub(crate) async fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut FileConnection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let caller = Caller(Arc::default());
        let (answer, answered) = oneshot::channel();
        let call: Call = Box::new(move |connection| {
            let _ = answer.send(work(connection));
        });
        let ended = || {
            StoreError::new(
                StoreErrorKind::Unreachable,
                "the local store's thread has ended after a panic; restart this process",
            )
        };
        self.jobs.send(Job { abandoned: Arc::clone(&caller.0), call }).map_err(|_| ended())?;
        answered.await.map_err(|_| ended())?
    }
}

fn serve(mut connection: FileConnection, queue: &mpsc::Receiver<Job>, checkpoints: Checkpoints) {
    while let Ok(job) = queue.recv() {
        if job.abandoned.load(Ordering::Acquire) {
            continue;
        }
        let shared = &connection.shared;
        let busy_timeout =
            BusyTimeout::new(shared.options.busy_for, job.abandoned, Arc::clone(&shared.waits));
        busy_timeout.during(|| (job.call)(&mut connection));
        if checkpoints == Checkpoints::Here {
            connection.checkpoint();
        }
    }
}
