//! One connection that many calls share. Answers come in the order of the questions, so a call that is dropped leaves
//! its place in the queue behind, and its answer is thrown away when it comes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, ReadHalf, WriteHalf};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use crate::error::RedisError;
use crate::options::ServerAddress;
use crate::resp::{self, Command, Value};
use crate::socket::{Duplex, Socket};

type Reply = oneshot::Sender<Result<Vec<Value>, RedisError>>;

/// A connection that works on the runtime on which it was made. It closes when the last handle is dropped.
#[derive(Clone, Debug)]
pub(crate) struct Pipeline {
    pub(crate) spot: ServerAddress,
    /// The names under which the server knows our scripts.
    pub(crate) scripts: Arc<Vec<String>>,
    jobs: mpsc::UnboundedSender<Job>,
    spoilt: Arc<AtomicBool>,
    _ends: Arc<Ends>,
}

/// Ends both tasks with the last handle, also when the server has stalled in the middle of a reply.
#[derive(Debug)]
struct Ends([AbortHandle; 2]);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.iter().for_each(AbortHandle::abort);
    }
}

#[derive(Debug)]
struct Job {
    bytes: Vec<u8>,
    place: QueueEntry,
}

/// What waits for answers.
#[derive(Debug)]
struct QueueEntry {
    answers: usize,
    reply: Reply,
}

impl Pipeline {
    /// Lets many calls share this connection.
    pub(crate) fn start(socket: Socket, scripts: Vec<String>) -> Self {
        let Socket { stream, spot, .. } = socket;
        // Nothing is in the buffer: every answer so far was waited for.
        let (reading, writing) = tokio::io::split(stream.into_inner());
        let (jobs, todo) = mpsc::unbounded_channel();
        let (asked, waiting) = mpsc::unbounded_channel();
        let spoilt = Arc::new(AtomicBool::new(false));
        let reading = BufReader::with_capacity(64 << 10, reading);
        let ends = [
            spawn(write_all(writing, todo, asked)),
            spawn(read_all(reading, waiting, spoilt.clone(), spot.clone())),
        ];
        Pipeline { spot, scripts: Arc::new(scripts), jobs, spoilt, _ends: Arc::new(Ends(ends)) }
    }

    /// Sends commands together, and gives the answer to each.
    pub(crate) async fn ask(&self, commands: &[Command]) -> Result<Vec<Value>, RedisError> {
        let mut bytes = Vec::new();
        commands.iter().for_each(|command| command.write_to(&mut bytes));
        let (reply, answer) = oneshot::channel();
        let lost = || RedisError::Unreachable(format!("{}: the connection was lost.", self.spot));
        let place = QueueEntry { answers: commands.len(), reply };
        self.jobs.send(Job { bytes, place }).map_err(|_| lost())?;
        answer.await.map_err(|_| lost())?
    }

    /// Marks this connection as unusable.
    pub(crate) fn spoil(&self) {
        self.spoilt.store(true, Ordering::Relaxed);
    }

    /// Whether it can be asked something.
    pub(crate) fn is_good(&self) -> bool {
        !self.spoilt.load(Ordering::Relaxed) && !self.jobs.is_closed()
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "both tasks end with the connection, and with the engine's runtime"
)]
fn spawn(task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
    tokio::spawn(task).abort_handle()
}

async fn write_all(
    mut stream: WriteHalf<Box<dyn Duplex>>,
    mut todo: mpsc::UnboundedReceiver<Job>,
    asked: mpsc::UnboundedSender<QueueEntry>,
) {
    loop {
        let job = tokio::select! {
            job = todo.recv() => job,
            () = asked.closed() => None,
        };
        let Some(Job { bytes, place }) = job else { break };
        // Its place in the queue comes first: an answer must never find the queue empty.
        if asked.send(place).is_err()
            || stream.write_all(&bytes).await.is_err()
            || stream.flush().await.is_err()
        {
            break;
        }
    }
}

async fn read_all(
    mut stream: BufReader<ReadHalf<Box<dyn Duplex>>>,
    mut waiting: mpsc::UnboundedReceiver<QueueEntry>,
    spoilt: Arc<AtomicBool>,
    spot: ServerAddress,
) {
    loop {
        let place = tokio::select! {
            biased;
            place = waiting.recv() => place,
            // The end of the stream, or a reply without a request: either way this connection is unusable.
            _ = stream.fill_buf() => waiting.try_recv().ok(),
        };
        let Some(QueueEntry { answers, reply }) = place else { break };
        match read_some(&mut stream, answers).await {
            Ok(values) => drop(reply.send(Ok(values))),
            Err(error) => {
                spoilt.store(true, Ordering::Relaxed);
                let _ = reply.send(Err(RedisError::broken(&error, &spot)));
                break;
            }
        }
    }
    spoilt.store(true, Ordering::Relaxed);
}

async fn read_some(
    stream: &mut BufReader<ReadHalf<Box<dyn Duplex>>>,
    answers: usize,
) -> std::io::Result<Vec<Value>> {
    let mut values = Vec::with_capacity(answers);
    for _ in 0..answers {
        values.push(resp::read(stream).await?);
    }
    Ok(values)
}
