use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::Instant;

use super::{Direction, Mode};

/// How many bytes are taken at once.
const CHUNK: usize = 16 * 1024;
/// How many chunks may be on their way in one direction; then the sender has to wait.
const ON_THE_WAY: usize = 256;

/// What becomes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It lives, in this mode.
    Live(Mode),
    /// Both sides are told that it is over.
    Reset,
    /// Neither side is told, and nothing passes ever again.
    Forgotten,
}

/// Carries one client's bytes to the upstream and back until either side ends it, its fate does, or the gate is gone.
pub(super) async fn carry(
    client: TcpStream,
    upstream: String,
    fate: watch::Receiver<Fate>,
    gate: watch::Receiver<()>,
) {
    let server = tokio::select! {
        server = connect(&upstream, fate.clone()) => server,
        end = ended(fate.clone()) => return over(end, &[&client], gate).await,
    };
    let Ok(server) = server else {
        let _ = client.set_zero_linger();
        return;
    };
    let (mut to_store, mut from_store) =
        (Pump::new(Direction::ToStore, fate.clone()), Pump::new(Direction::FromStore, fate.clone()));
    let both = async {
        tokio::try_join!(to_store.carry(&client, &server), from_store.carry(&server, &client)).map(|_| ())
    };
    let end = tokio::select! {
        biased;
        end = ended(fate.clone()) => Some(end),
        result = both => result.err().map(|_| Fate::Reset),
    };
    if let Some(end) = end {
        over(end, &[&client, &server], gate).await;
    }
}

/// Connects as soon as the mode lets anything through to the upstream.
async fn connect(upstream: &str, mut fate: watch::Receiver<Fate>) -> io::Result<TcpStream> {
    let passes = |fate: &Fate| matches!(fate, Fate::Live(mode) if mode.delay(Direction::ToStore).is_some());
    fate.wait_for(passes).await.map_err(io::Error::other)?;
    let server = TcpStream::connect(upstream).await?;
    server.set_nodelay(true)?;
    Ok(server)
}

/// Waits for a fate that is an end.
async fn ended(mut fate: watch::Receiver<Fate>) -> Fate {
    let end = fate.wait_for(|fate| !matches!(fate, Fate::Live(_))).await;
    end.map_or(Fate::Reset, |end| *end)
}

/// The client's stream comes first.
async fn over(end: Fate, streams: &[&TcpStream], mut gate: watch::Receiver<()>) {
    if end == Fate::Forgotten {
        tokio::select! {
            () = swallow(streams[0]) => {}
            _ = gate.changed() => {}
        }
    }
    for stream in streams {
        let _ = stream.set_zero_linger();
    }
}

/// Reads on without an answer until the client gives up.
async fn swallow(client: &TcpStream) {
    let mut nowhere = vec![0; CHUNK];
    while client.readable().await.is_ok() {
        match client.try_read(&mut nowhere) {
            Ok(0) => return,
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return,
            _ => {}
        }
    }
}

/// One direction of one connection.
struct Pump {
    direction: Direction,
    fate: watch::Receiver<Fate>,
    /// What was read, and when it may be written.
    queue: VecDeque<(Instant, Vec<u8>)>,
    buffer: Vec<u8>,
    read_all: bool,
}

impl Pump {
    fn new(direction: Direction, fate: watch::Receiver<Fate>) -> Self {
        Pump { direction, fate, queue: VecDeque::new(), buffer: vec![0; CHUNK], read_all: false }
    }

    /// Ends when everything was read and written, and the end was passed on.
    async fn carry(&mut self, from: &TcpStream, to: &TcpStream) -> io::Result<()> {
        let _ = from.set_nodelay(true);
        loop {
            let open = delay(*self.fate.borrow_and_update(), self.direction).is_some();
            if open && self.read_all && self.queue.is_empty() {
                return finish(to);
            }
            let due_at = self.queue.front().map(|(due_at, _)| *due_at);
            tokio::select! {
                changed = self.fate.changed() => changed.map_err(io::Error::other)?,
                () = writable(to, due_at), if open => self.write(to)?,
                ready = from.readable(), if open && !self.read_all && self.queue.len() < ON_THE_WAY => {
                    ready?;
                    self.read(from)?;
                }
            }
        }
    }

    /// The mode is held while the bytes are taken, so that none is taken after it was changed.
    fn read(&mut self, from: &TcpStream) -> io::Result<()> {
        let fate = self.fate.borrow();
        let Some(delay) = delay(*fate, self.direction) else { return Ok(()) };
        match from.try_read(&mut self.buffer) {
            Ok(0) => self.read_all = true,
            Ok(count) => self.queue.push_back((now() + delay, self.buffer[..count].to_vec())),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn write(&mut self, to: &TcpStream) -> io::Result<()> {
        let fate = self.fate.borrow();
        if delay(*fate, self.direction).is_none() {
            return Ok(());
        }
        let Some((_, bytes)) = self.queue.front_mut() else { return Ok(()) };
        match to.try_write(bytes) {
            Ok(count) if count == bytes.len() => drop(self.queue.pop_front()),
            Ok(count) => drop(bytes.drain(..count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// Waits until the first bytes of the queue are due and can be written. A broken connection shows when writing.
async fn writable(to: &TcpStream, due_at: Option<Instant>) {
    let Some(due_at) = due_at else { return std::future::pending().await };
    tokio::time::sleep_until(due_at).await;
    let _ = to.writable().await;
}

fn delay(fate: Fate, direction: Direction) -> Option<Duration> {
    match fate {
        Fate::Live(mode) => mode.delay(direction),
        Fate::Reset | Fate::Forgotten => None,
    }
}

/// Tells the other side that nothing more comes.
fn finish(to: &TcpStream) -> io::Result<()> {
    rustix::net::shutdown(to, rustix::net::Shutdown::Write).map_err(io::Error::from)
}

#[allow(clippy::disallowed_methods, reason = "how late bytes arrive decides nothing about ownership")]
fn now() -> Instant {
    Instant::now()
}
