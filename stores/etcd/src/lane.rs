//! A thread with its own connection to etcd.
//!
//! A store may be used from several async runtimes (a node, a registry and a client each have their own), and a connection
//! dies with the runtime that opened it. So connections live here. One thread is for renewals and one for everything else:
//! a large listing never delays a renewal.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use leasehold_store::StoreError;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::Status;

use crate::connection::Connection;
use crate::dial;
use crate::error::{Blame, blame, damaged, refused, status_error, timed_out};
use crate::options::Options;

/// How long one request may take. Callers have shorter limits of their own.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// The thread, started at first use.
#[derive(Debug)]
pub(crate) struct LaneThread {
    name: &'static str,
    thread: Mutex<Option<Thread>>,
    switch: Arc<Switch>,
}

#[derive(Debug)]
struct Thread {
    runtime: Handle,
    /// The thread ends when this is dropped.
    _alive: oneshot::Sender<()>,
}

/// Which connection is in use, and which member is tried next.
pub(crate) struct Switch {
    options: Arc<Options>,
    at: Mutex<At>,
}

struct At {
    connection: Option<Connection>,
    /// A connection that is being made. It goes on when the caller stops waiting: TLS and authentication may
    /// take longer than one call has time.
    dial: Option<Dial>,
    next: usize,
}

type Dial = Shared<BoxFuture<'static, Result<Connection, StoreError>>>;

impl std::fmt::Debug for Switch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Switch").field("options", &self.options).finish_non_exhaustive()
    }
}

impl LaneThread {
    pub(crate) fn new(name: &'static str, options: Arc<Options>, first: usize) -> Self {
        let at = Mutex::new(At { connection: None, dial: None, next: first });
        let switch = Arc::new(Switch { options, at });
        LaneThread { name, thread: Mutex::new(None), switch }
    }

    /// Runs a future on the thread. If this call is dropped, so is the future.
    pub(crate) async fn run<T, F>(&self, work: impl FnOnce(Arc<Switch>) -> F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let mut task = self.spawn(work(Arc::clone(&self.switch)))?;
        match (&mut task.0).await {
            Ok(outcome) => outcome,
            Err(error) => Err(damaged(format!("the etcd client failed: {error}"))),
        }
    }

    /// Starts a task on the thread that goes on until the handle is dropped.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<Task<T>, StoreError> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        let runtime = match &*thread {
            Some(thread) => &thread.runtime,
            None => &thread.insert(start(self.name)?).runtime,
        };
        Ok(Task(runtime.spawn(work)))
    }
}

fn start(name: &str) -> Result<Thread, StoreError> {
    let failed = |e: std::io::Error| refused(format!("cannot start a thread for etcd ({e})"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let handle = runtime.handle().clone();
    let (alive, ended) = oneshot::channel();
    let body = move || {
        let _ = runtime.block_on(ended);
        // A DNS lookup that is under way must not delay the end.
        runtime.shutdown_background();
    };
    std::thread::Builder::new().name(name.to_owned()).spawn(body).map_err(failed)?;
    Ok(Thread { runtime: handle, _alive: alive })
}

/// A task on a lane. It is aborted when this is dropped.
#[derive(Debug)]
pub(crate) struct Task<T>(JoinHandle<T>);

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Switch {
    /// Sends a request over the connection of this lane, which is opened if need be, with a time limit. After an error or
    /// a timeout the next request uses another connection, to another member if there is one.
    pub(crate) async fn ask<T, F>(
        self: &Arc<Self>,
        question: impl Fn(Connection) -> F,
    ) -> Result<T, CallError>
    where
        F: Future<Output = Result<T, Status>>,
    {
        let mut fresh_token = false;
        loop {
            let connection = self.connection().await?;
            let mut doubt = Doubt { switch: self, connection: &connection, justified: true };
            let answer = tokio::time::timeout(ANSWER_WITHIN, question(connection.clone())).await;
            let name = self.name(connection.member);
            let Ok(answer) = answer else {
                return Err(timed_out(format!("{name}: no answer within {ANSWER_WITHIN:?}")).into());
            };
            let blamed = answer.as_ref().err().map(blame);
            doubt.justified = matches!(blamed, Some(Blame::Connection | Blame::Token));
            drop(doubt);
            match answer {
                Ok(answer) => return Ok(answer),
                // etcd checks the token first: the call was not carried out.
                Err(_) if blamed == Some(Blame::Token) && !fresh_token => fresh_token = true,
                Err(status) => {
                    return Err(CallError { error: status_error(&name, &status), status: Some(status) });
                }
            }
        }
    }

    async fn connection(self: &Arc<Self>) -> Result<Connection, StoreError> {
        let dial = {
            let mut at = self.at();
            at.connection.take_if(|connection| connection.is_closed());
            if let Some(connection) = &at.connection {
                return Ok(connection.clone());
            }
            match &at.dial {
                Some(dial) => dial.clone(),
                None => {
                    let dial = self.dial(at.next);
                    at.dial.insert(dial).clone()
                }
            }
        };
        dial.await
    }

    /// Makes a connection, beginning with this member, on the runtime of the lane.
    fn dial(self: &Arc<Self>, first: usize) -> Dial {
        let (options, switch) = (Arc::clone(&self.options), Arc::downgrade(self));
        let dial = async move {
            let dialled = dial::any(&options, first).await;
            if let Some(switch) = switch.upgrade() {
                let mut at = switch.at();
                at.dial = None;
                at.connection = dialled.as_ref().ok().cloned();
                at.next = (first + 1) % options.hosts.len();
            }
            dialled
        };
        let dial = dial.boxed().shared();
        drop(Handle::current().spawn(dial.clone().map(drop)));
        dial
    }

    /// Stops using this connection; the next one goes to the next member.
    fn leave(&self, connection: &Connection) {
        let mut at = self.at();
        if at.connection.take_if(|current| current.is(connection)).is_some() {
            at.next = (connection.member + 1) % self.options.hosts.len();
        }
    }

    fn at(&self) -> std::sync::MutexGuard<'_, At> {
        self.at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn name(&self, member: usize) -> String {
        self.options.names().swap_remove(member)
    }
}

/// Leaves a connection whose request was not answered, also when the caller stopped waiting.
struct Doubt<'a> {
    switch: &'a Switch,
    connection: &'a Connection,
    justified: bool,
}

impl Drop for Doubt<'_> {
    fn drop(&mut self) {
        if self.justified {
            self.switch.leave(self.connection);
        }
    }
}

/// The error for the caller, and the status that etcd returned, if it did.
#[derive(Debug)]
pub(crate) struct CallError {
    pub(crate) error: StoreError,
    pub(crate) status: Option<Status>,
}

impl From<StoreError> for CallError {
    fn from(error: StoreError) -> Self {
        CallError { error, status: None }
    }
}

impl From<CallError> for StoreError {
    fn from(failed: CallError) -> Self {
        failed.error
    }
}
