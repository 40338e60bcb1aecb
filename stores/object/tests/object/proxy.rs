//! A small HTTP proxy that injects faults: it answers in the server's place, swallows answers, or tells another time.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use leasehold_store::conformance::Step;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What happens to the next request that fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It does not reach the server, and is answered with this status and code.
    Answered(u16, &'static str),
    /// It reaches the server, but the client is answered with this status and code.
    LandsButAnswered(u16, &'static str),
    /// It reaches the server, and the client is never answered.
    LandsButSilent,
    /// The connection is closed without a word, and nothing reaches the server.
    Dropped,
}

/// The method and the part of the path that a fault waits for.
type Planned = (&'static str, &'static str, Fault);

/// A proxy in front of one server. It ends with the process.
#[derive(Clone)]
pub(crate) struct Proxy {
    port: u16,
    faults: Arc<Mutex<VecDeque<Planned>>>,
    /// By how much the server's clock is told wrong, in seconds.
    pub(crate) clock_off_s: Arc<AtomicI64>,
    /// What happens before each request reaches the server.
    step: Option<Step>,
}

impl Proxy {
    /// Stands before the server on this port.
    pub(crate) fn before(server_port: u16) -> Self {
        Proxy::stepping(server_port, None)
    }

    /// The same, and takes a step before each request.
    pub(crate) fn stepping(server_port: u16, step: Option<Step>) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let proxy = Proxy { port, faults: Arc::default(), clock_off_s: Arc::default(), step };
        let runs = proxy.clone();
        std::thread::Builder::new()
            .name("proxy".into())
            .spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    let listener = TcpListener::from_std(listener).unwrap();
                    let mut tasks = tokio::task::JoinSet::new();
                    while let Ok((client, _)) = listener.accept().await {
                        let runs = runs.clone();
                        tasks.spawn(async move { runs.serve(client, server_port).await });
                    }
                });
            })
            .unwrap();
        proxy
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The next request with this method whose path has this in it meets this fault.
    pub(crate) fn inject(&self, method: &'static str, path: &'static str, fault: Fault) {
        self.faults.lock().unwrap().push_back((method, path, fault));
    }

    /// How many faults have not happened yet.
    pub(crate) fn left(&self) -> usize {
        self.faults.lock().unwrap().len()
    }

    fn fault(&self, head: &str) -> Option<Fault> {
        let mut faults = self.faults.lock().unwrap();
        let line = head.lines().next().unwrap_or_default();
        let fits = |(method, path, _): &Planned| line.starts_with(method) && line.contains(path);
        let at = faults.iter().position(fits)?;
        faults.remove(at).map(|(_, _, fault)| fault)
    }

    /// One request; the connection ends with its answer.
    async fn serve(&self, mut client: TcpStream, server_port: u16) -> Option<()> {
        let (head, body) = read_message(&mut client).await?;
        let fault = self.fault(&head);
        match fault {
            Some(Fault::Dropped) => return None,
            Some(Fault::Answered(status, code)) => return answer(&mut client, status, code).await,
            _ => {}
        }
        if let Some(step) = &self.step {
            step().await;
        }
        let mut server = TcpStream::connect(("127.0.0.1", server_port)).await.ok()?;
        let head = head.replacen("\r\n", "\r\nconnection: close\r\n", 1);
        server.write_all(head.as_bytes()).await.ok()?;
        server.write_all(&body).await.ok()?;
        let mut reply = Vec::new();
        server.read_to_end(&mut reply).await.ok()?;
        match fault {
            Some(Fault::LandsButSilent) => {
                tokio::time::sleep(std::time::Duration::from_secs(30)).await;
                None
            }
            Some(Fault::LandsButAnswered(status, code)) => answer(&mut client, status, code).await,
            _ => {
                client.write_all(&self.retimed(reply)).await.ok()?;
                client.shutdown().await.ok()
            }
        }
    }

    /// The answer with the server's times moved.
    fn retimed(&self, reply: Vec<u8>) -> Vec<u8> {
        let off = self.clock_off_s.load(Ordering::SeqCst);
        let end = reply.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or(0);
        if off == 0 || end == 0 {
            return reply;
        }
        let (head, body) = reply.split_at(end);
        let head = String::from_utf8_lossy(head).into_owned();
        let moved: Vec<String> = head.split("\r\n").map(|line| moved(line, off)).collect();
        [moved.join("\r\n").as_bytes(), body].concat()
    }
}

/// Moves the hour of a date header; good enough for steps of whole hours within a day.
fn moved(line: &str, off_s: i64) -> String {
    let lower = line.to_lowercase();
    if !lower.starts_with("date:") && !lower.starts_with("last-modified:") {
        return line.to_owned();
    }
    let Some(at) = line.find(" GMT").and_then(|end| end.checked_sub(8)) else { return line.to_owned() };
    let hour: i64 = line[at..at + 2].parse().unwrap_or(0);
    let hour = (hour + off_s / 3600).rem_euclid(24);
    format!("{}{hour:02}{}", &line[..at], &line[at + 2..])
}

async fn answer(client: &mut TcpStream, status: u16, code: &str) -> Option<()> {
    let body = format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>made up</Message></Error>");
    let head = format!(
        "HTTP/1.1 {status} Made Up\r\ncontent-type: application/xml\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    client.write_all(format!("{head}{body}").as_bytes()).await.ok()?;
    client.shutdown().await.ok()
}

async fn read_message(client: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    let mut chunk = [0u8; 16 * 1024];
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
        let read = client.read(&mut chunk).await.ok().filter(|read| *read > 0)?;
        bytes.extend_from_slice(&chunk[..read]);
    };
    let mut body = bytes.split_off(end);
    let head = String::from_utf8(bytes).ok()?;
    let length = head
        .lines()
        .find_map(|line| line.to_lowercase().strip_prefix("content-length:").map(|n| n.trim().to_owned()))
        .and_then(|n| n.parse().ok())
        .unwrap_or(0);
    while body.len() < length {
        let read = client.read(&mut chunk).await.ok().filter(|read| *read > 0)?;
        body.extend_from_slice(&chunk[..read]);
    }
    Some((head, body))
}
