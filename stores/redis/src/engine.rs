//! The thread that talks to the servers. It has its own runtime, so that calls may come from any runtime, or from several,
//! and so that code that blocks one of those does not delay a renewal.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold_store::{StoreError, StoreErrorKind, rng};
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use crate::discovery;
use crate::error::{RedisError, Written};
use crate::options::{Options, ServerAddress, Setup};
use crate::pipeline::Pipeline;
use crate::resp::{Command, Value};
use crate::script::{self, Call};
use crate::socket::within;

/// How often a call is sent again after a server refused it without doing anything.
const TRIES_MAX: usize = 3;
/// How many servers of a cluster are remembered.
const KNOWN_MAX: usize = 16;

/// An error, and what it means for the write.
pub(crate) type Failure = (RedisError, Written);

/// A thread with one connection.
#[derive(Debug)]
pub(crate) struct Engine {
    handle: Handle,
    connection: Arc<MasterConnection>,
    /// The thread ends when this is dropped.
    _end: oneshot::Sender<()>,
}

/// The connection of an engine; only its own tasks use it.
#[derive(Debug)]
pub(crate) struct MasterConnection {
    pub(crate) options: Arc<Options>,
    pipeline: tokio::sync::Mutex<Option<Pipeline>>,
    known: Mutex<Vec<ServerAddress>>,
}

impl Engine {
    /// Starts the thread. Nothing is connected before the first call.
    pub(crate) fn start(name: &str, options: Arc<Options>) -> Result<Self, StoreError> {
        let refused = |e: std::io::Error| {
            StoreError::new(StoreErrorKind::Refused, format!("cannot start a thread ({e})"))
        };
        let runtime = Builder::new_current_thread().enable_all().build().map_err(refused)?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel::<()>();
        let run = move || drop(runtime.block_on(ended));
        std::thread::Builder::new().name(name.to_owned()).spawn(run).map_err(refused)?;
        let connection =
            MasterConnection { options, pipeline: tokio::sync::Mutex::default(), known: Mutex::default() };
        Ok(Engine { handle, connection: Arc::new(connection), _end: end })
    }

    /// Runs a future on the thread. It is dropped when the caller stops waiting.
    pub(crate) async fn run<T, F>(
        &self,
        work: impl FnOnce(Arc<MasterConnection>) -> F,
    ) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let (mut reply, answer) = oneshot::channel();
        let work = work(self.connection.clone());
        self.handle.spawn(async move {
            tokio::select! {
                done = work => drop(reply.send(done)),
                () = reply.closed() => {}
            }
        });
        let ended = |_| {
            StoreError::new(
                StoreErrorKind::Unreachable,
                "the store's thread has ended; it is unknown whether the call was carried out",
            )
        };
        answer.await.map_err(ended)?
    }

    /// Starts a background task.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.handle.spawn(work);
    }

    pub(crate) fn connection(&self) -> Arc<MasterConnection> {
        self.connection.clone()
    }
}

/// Whether replicas are waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// For none.
    No,
    /// For this many.
    For(u32),
}

impl MasterConnection {
    /// Calls a script, within the time that a call may take.
    pub(crate) async fn call(&self, call: &Call, wait: Wait) -> Result<Value, Failure> {
        let time = self.options.timeout;
        match tokio::time::timeout(time, self.call_on_and_on(call, wait)).await {
            Ok(answer) => answer,
            Err(_) => Err((RedisError::TimedOut(format!("no answer within {time:?}.")), Written::Unknown)),
        }
    }

    /// A server that refused without doing anything is asked again, or the one that it names.
    async fn call_on_and_on(&self, call: &Call, wait: Wait) -> Result<Value, Failure> {
        let mut tries = 0;
        loop {
            tries += 1;
            let pipeline = self.pipeline().await.map_err(|error| (error, Written::Nothing))?;
            match self.call_once(&pipeline, call, wait).await {
                Err((RedisError::NotMaster(next, _), Written::Nothing)) if tries < TRIES_MAX => {
                    next.into_iter().for_each(|next| self.remember(next));
                }
                Err((RedisError::NoScript, _)) if tries < TRIES_MAX => {
                    let loads = script::load_all();
                    self.ask(&pipeline, &loads).await.map_err(|error| (error, Written::Nothing))?;
                }
                answer => return answer,
            }
        }
    }

    async fn call_once(&self, pipeline: &Pipeline, call: &Call, wait: Wait) -> Result<Value, Failure> {
        let mut commands = vec![call.command(&pipeline.scripts)];
        if let Wait::For(replicas) = wait {
            let (replicas, millis) = (replicas.to_string(), self.options.wait_for.as_millis().to_string());
            commands.push(Command::new(["WAIT", &replicas, &millis]));
        }
        let unknown = |error| (error, Written::Unknown);
        let mut answers = self.ask(pipeline, &commands).await.map_err(unknown)?.into_iter();
        let answer = match answers.next() {
            Some(Value::Error(said)) => {
                let error = RedisError::said(&said, &pipeline.spot);
                if !error.keeps_connection() {
                    pipeline.spoil();
                }
                // A script that began may have written something before it failed.
                let began = said.contains("@user_script");
                return Err((error, if began { Written::Unknown } else { Written::Nothing }));
            }
            answer => answer.unwrap_or(Value::Nothing),
        };
        let Wait::For(replicas) = wait else { return Ok(answer) };
        match answers.next() {
            Some(Value::Number(have)) if have >= i64::from(replicas) => Ok(answer),
            Some(Value::Error(error)) => {
                pipeline.spoil();
                Err(unknown(RedisError::said(&error, &pipeline.spot)))
            }
            have => Err(unknown(RedisError::TimedOut(format!(
                "{} of {replicas} replicas of {} confirmed within {:?}, so the write does not count. Bring the replicas \
                 back, or read in docs/redis.md what `wait=0` means.",
                have.and_then(|have| have.number()).unwrap_or(0),
                pipeline.spot,
                self.options.wait_for,
            )))),
        }
    }

    /// Sends commands over a connection. If the caller stops waiting, the connection is not used again.
    pub(crate) async fn ask(
        &self,
        pipeline: &Pipeline,
        commands: &[Command],
    ) -> Result<Vec<Value>, RedisError> {
        struct Impatience<'a>(Option<&'a Pipeline>);
        impl Drop for Impatience<'_> {
            fn drop(&mut self) {
                self.0.iter().for_each(|pipeline| pipeline.spoil());
            }
        }
        let mut impatience = Impatience(Some(pipeline));
        let answers = pipeline.ask(commands).await;
        if answers.is_ok() {
            impatience.0 = None;
        }
        answers
    }

    /// The connection; a new one if the old one broke.
    pub(crate) async fn pipeline(&self) -> Result<Pipeline, RedisError> {
        let mut pipeline = self.pipeline.lock().await;
        if let Some(good) = pipeline.as_ref().filter(|pipeline| pipeline.is_good()) {
            return Ok(good.clone());
        }
        *pipeline = None;
        let master = self.connect().await?;
        let fresh = Pipeline::start(master.socket, master.scripts);
        tracing::debug!(server = %fresh.spot, "connected to Redis");
        Ok(pipeline.insert(fresh).clone())
    }

    /// A new connection to the master.
    pub(crate) async fn connect(&self) -> Result<discovery::Master, RedisError> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let master =
            within(self.options.timeout, "no master was found", discovery::master(&self.options, &known))
                .await?;
        if matches!(self.options.setup, Setup::Cluster) {
            self.remember(master.socket.spot.clone());
        }
        Ok(master)
    }

    fn remember(&self, spot: ServerAddress) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|other| *other != spot);
        known.insert(0, spot);
        known.truncate(KNOWN_MAX);
    }

    /// How long to pause between two tries to connect: longer each time, and random, so that clients spread out.
    pub(crate) fn pause(failures: u32) -> Duration {
        let longest = Duration::from_millis(50 << failures.min(5));
        longest / 2 + rng::up_to(longest / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_differ() {
        let pauses: Vec<Duration> = (0..50).map(|_| MasterConnection::pause(4)).collect();
        let (shortest, longest) = (Duration::from_millis(400), Duration::from_millis(800));
        assert!(pauses.iter().all(|pause| (shortest..=longest).contains(pause)), "{pauses:?}");
        assert!(pauses.iter().any(|pause| *pause != pauses[0]), "not everybody comes back at once");
        assert!(MasterConnection::pause(99) <= Duration::from_millis(1600));
    }
}
