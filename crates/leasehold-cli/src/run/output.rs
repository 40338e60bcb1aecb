//! What children print, passed on line by line. A thread of its own writes, so that a terminal or a pipe that does not
//! take it holds up the children and nothing else.

use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::process::{ChildStderr, ChildStdout, Stdio};
use std::sync::Arc;
use std::time::Duration;

use leasehold::tasks::Tasks;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};

use super::one::message::{Answer, ChildLine};

/// A line without an end is passed on in parts of this size.
const LINE_BYTES_MAX: usize = 64 * 1024;

/// How long the last lines may take to be written at the end.
const FLUSH_WITHIN: Duration = Duration::from_secs(10);

/// How much of what a child prints beside its answers waits for a slow reader. Beyond that its pipe is not read.
const WAITING_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Where the lines of all children come together.
#[derive(Debug)]
pub(super) struct Printer {
    sink: Sink,
    raw: bool,
    /// Follows the children's pipes; ends with the printer.
    tasks: Tasks,
    /// How many pipes are followed.
    followed: Arc<watch::Sender<usize>>,
}

/// Takes lines.
#[derive(Clone, Debug)]
struct Sink(mpsc::Sender<Item>);

/// Standard output or standard error.
#[derive(Clone, Copy, Debug)]
pub(super) enum Side {
    Out,
    Err,
}

#[derive(Debug)]
enum Item {
    Line(Side, Vec<u8>),
    Flush(oneshot::Sender<()>),
}

impl Printer {
    /// Starts the writing thread. `raw` children print for themselves.
    pub(super) fn start(raw: bool) -> io::Result<Self> {
        let (lines, mut inbox) = mpsc::channel::<Item>(1024);
        std::thread::Builder::new().name("lh-output".to_owned()).spawn(move || {
            while let Some(item) = inbox.blocking_recv() {
                // If the reader is gone, the children's lines are dropped and the children continue.
                let _ = match item {
                    Item::Line(Side::Out, line) => {
                        io::stdout().lock().write_all(&line).and_then(|()| io::stdout().flush())
                    }
                    Item::Line(Side::Err, line) => io::stderr().lock().write_all(&line),
                    Item::Flush(done) => done.send(()).map_err(|()| io::ErrorKind::Other.into()),
                };
            }
        })?;
        let tasks = Tasks::on(tokio::runtime::Handle::current());
        Ok(Printer { sink: Sink(lines), raw, tasks, followed: Arc::new(watch::Sender::new(0)) })
    }

    /// What a child's output is connected to.
    pub(super) fn stdio(&self) -> Stdio {
        if self.raw { Stdio::inherit() } else { Stdio::piped() }
    }

    /// Passes on what a child prints, each line with the prefix, until its pipes end.
    pub(super) fn follow(&self, (stdout, stderr): (Option<ChildStdout>, Option<ChildStderr>), prefix: &str) {
        self.follow_one(Side::Out, stdout.map(OwnedFd::from), prefix);
        self.follow_one(Side::Err, stderr.map(OwnedFd::from), prefix);
    }

    /// Passes on one pipe.
    pub(super) fn follow_one(&self, side: Side, pipe: Option<OwnedFd>, prefix: &str) {
        let Some(pipe) = pipe else { return };
        let (sink, prefix, followed) = (self.sink.clone(), prefix.to_owned(), self.followed.clone());
        followed.send_modify(|count| *count += 1);
        self.tasks.spawn(async move {
            sink.pump(side, pipe, &prefix).await;
            followed.send_modify(|count| *count -= 1);
        });
    }

    /// Passes on what a child prints beside its answers, which go to `answers` without waiting for a slow reader.
    pub(super) fn follow_answers(&self, pipe: OwnedFd, answers: mpsc::Sender<Answer>) {
        let (waiting, mut lines) = mpsc::unbounded_channel();
        let (sink, followed) = (self.sink.clone(), self.followed.clone());
        followed.send_modify(|count| *count += 1);
        self.tasks.spawn(listen(pipe, answers, waiting));
        self.tasks.spawn(async move {
            while let Some(Waiting { line, room: _room }) = lines.recv().await {
                let _ = sink.0.send(Item::Line(Side::Out, line)).await;
            }
            followed.send_modify(|count| *count -= 1);
        });
    }

    /// Waits until all that children printed is written, though not for long.
    pub(super) async fn flush(&self) {
        let all = async {
            let _ = self.followed.subscribe().wait_for(|count| *count == 0).await;
            let (done, waiting) = oneshot::channel();
            if self.sink.0.send(Item::Flush(done)).await.is_ok() {
                let _ = waiting.await;
            }
        };
        let _ = tokio::time::timeout(FLUSH_WITHIN, all).await;
    }
}

impl Sink {
    async fn pump(&self, side: Side, pipe: OwnedFd, prefix: &str) {
        let Ok(mut pipe) = pipe::Receiver::from_owned_fd(pipe) else { return };
        let mut lines = Lines::default();
        let mut bytes = vec![0; 8192];
        loop {
            let count = match pipe.read(&mut bytes).await {
                Ok(0) | Err(_) => break,
                Ok(count) => count,
            };
            for line in lines.take_in(&bytes[..count]) {
                let _ = self.0.send(Item::Line(side, marked(prefix, &line))).await;
            }
        }
        if let Some(rest) = lines.rest() {
            let _ = self.0.send(Item::Line(side, marked(prefix, &rest))).await;
        }
    }
}

/// A line that waits for the reader, with its part of the room for such lines.
#[derive(Debug)]
struct Waiting {
    line: Vec<u8>,
    room: OwnedSemaphorePermit,
}

/// Reads what a child prints until its pipe ends, and tells answers from lines for people.
async fn listen(pipe: OwnedFd, answers: mpsc::Sender<Answer>, waiting: mpsc::UnboundedSender<Waiting>) {
    let Ok(mut pipe) = pipe::Receiver::from_owned_fd(pipe) else { return };
    let room = Arc::new(Semaphore::new(WAITING_BYTES_MAX));
    let take = async |line: Vec<u8>| match ChildLine::read(line) {
        // The receiver is gone if the child is no longer supervised.
        ChildLine::Answer(answer) => drop(answers.send(answer).await),
        ChildLine::Output(line) => {
            let size = u32::try_from(line.len().min(WAITING_BYTES_MAX)).unwrap_or(u32::MAX);
            if let Ok(room) = room.clone().acquire_many_owned(size).await {
                let _ = waiting.send(Waiting { line, room });
            }
        }
    };
    let mut lines = Lines::default();
    let mut bytes = vec![0; 8192];
    while let Ok(count @ 1..) = pipe.read(&mut bytes).await {
        for line in lines.take_in(&bytes[..count]) {
            take(line).await;
        }
    }
    if let Some(rest) = lines.rest() {
        take(rest).await;
    }
}

fn marked(prefix: &str, line: &[u8]) -> Vec<u8> {
    let mut marked = Vec::with_capacity(prefix.len() + line.len() + 1);
    marked.extend_from_slice(prefix.as_bytes());
    marked.extend_from_slice(line);
    marked.push(b'\n');
    marked
}

/// Cuts a stream of bytes into lines.
#[derive(Debug, Default)]
pub(super) struct Lines(Vec<u8>);

impl Lines {
    /// The lines that are complete now, without their ends.
    pub(super) fn take_in(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        self.0.extend_from_slice(bytes);
        let mut lines = Vec::new();
        while let Some(end) = self.0.iter().position(|byte| *byte == b'\n') {
            let mut line: Vec<u8> = self.0.drain(..=end).collect();
            line.pop();
            lines.push(line);
        }
        if self.0.len() > LINE_BYTES_MAX {
            lines.push(std::mem::take(&mut self.0));
        }
        lines
    }

    /// What is left without an end.
    pub(super) fn rest(self) -> Option<Vec<u8>> {
        (!self.0.is_empty()).then_some(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_wherever_the_pieces_end() {
        let mut lines = Lines::default();
        assert_eq!(lines.take_in(b"a\nb"), [b"a".to_vec()]);
        assert_eq!(lines.take_in(b"c\n\nd"), [b"bc".to_vec(), b"".to_vec()]);
        assert_eq!(lines.take_in(&vec![b'x'; LINE_BYTES_MAX]).len(), 1);
        assert_eq!(lines.rest(), None);
    }
}
