//! `leasehold probe`: asks the node of `run --listen` whether it is alive or ready, for service managers that can run a
//! command but cannot reach the node's loopback address or socket, such as Kubernetes and Docker.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use leasehold::clock::Clock;
use leasehold_cli_common::failure::{Code, Failure};
use leasehold_cli_common::sanitize::sanitize_lines;
use leasehold_cli_common::settings::Settings;

use crate::args::{Probe, ProbeWhat};

/// Where a node listens, if nothing else is said.
const LISTEN_DEFAULT: &str = "127.0.0.1:9464";

/// No answer is longer. What comes after it is not read.
const ANSWER_MAX: usize = 16 * 1024;

/// Asks, and fails unless the answer is 200.
pub(crate) fn probe(settings: &Settings, what: &Probe) -> Result<(), Failure> {
    let set = settings.text("listen").filter(|listen| *listen != "off");
    let address = Address::parse(what.listen.as_deref().or(set).unwrap_or(LISTEN_DEFAULT))?;
    let path = match (what.what, what.share) {
        (ProbeWhat::Live, _) => "/livez".to_owned(),
        (ProbeWhat::Ready, None) => "/readyz".to_owned(),
        (ProbeWhat::Ready, Some(share)) => format!("/readyz?share={share}"),
    };
    let unhealthy = |what: String| Failure::new(Code::Unhealthy, what);
    let answer = address.ask(&path, settings.text("listen_token"), what.timeout).map_err(|error| {
        unhealthy(format!(
            "{address} does not answer: {error}\n  is the node running, with the same `listen`?"
        ))
    })?;
    let (status, body) = read_answer(&answer)
        .ok_or_else(|| unhealthy(format!("{address} does not speak HTTP: is it the address of the node?")))?;
    let body = sanitize_lines(body.trim_end());
    match status {
        200 => {
            println!("{body}");
            Ok(())
        }
        _ => Err(unhealthy(format!("{path} answered {status}: {body}"))),
    }
}

/// Where the node listens.
#[derive(Debug, PartialEq, Eq)]
enum Address {
    Tcp(SocketAddr),
    Unix(String),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => address.fmt(f),
            Address::Unix(path) => write!(f, "unix:{path}"),
        }
    }
}

impl Address {
    fn parse(text: &str) -> Result<Address, Failure> {
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(Address::Unix(path.to_owned()));
        }
        let mut address: SocketAddr = text.parse().map_err(|_| {
            let what = format!("invalid address {text:?}: use an IP address and a port, or unix:PATH");
            Failure::new(Code::Usage, format!("{what}, for example {LISTEN_DEFAULT}"))
        })?;
        // A node that listens on all addresses also listens on the loopback address.
        match address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
            IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
            _ => {}
        }
        Ok(Address::Tcp(address))
    }

    fn ask(&self, path: &str, token: Option<&str>, within: Duration) -> io::Result<Vec<u8>> {
        let deadline = Deadline::new(within);
        match self {
            Address::Tcp(address) => {
                let stream = TcpStream::connect_timeout(address, deadline.left()?)?;
                let request = request(&address.to_string(), path, token);
                talk(stream, &request, &deadline, |stream, left| stream.set_read_timeout(Some(left)))
            }
            Address::Unix(place) => {
                let stream = UnixStream::connect(place)?;
                let request = request("localhost", path, token);
                talk(stream, &request, &deadline, |stream, left| stream.set_read_timeout(Some(left)))
            }
        }
    }
}

/// When an answer must be there.
struct Deadline {
    clock: Clock,
    at: leasehold_core::Moment,
    within: Duration,
}

impl Deadline {
    fn new(within: Duration) -> Self {
        let clock = Clock::boot();
        let at = clock.now() + within;
        Deadline { clock, at, within }
    }

    fn left(&self) -> io::Result<Duration> {
        let left = self.at.since(self.clock.now());
        if left.is_zero() {
            let what = format!("no complete answer within {} ms", self.within.as_millis());
            return Err(io::Error::new(io::ErrorKind::TimedOut, what));
        }
        Ok(left)
    }
}

/// Without keep-alive and chunks, the answer is all that comes.
fn request(host: &str, path: &str, token: Option<&str>) -> String {
    let authorization = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    format!("GET {path} HTTP/1.0\r\nHost: {host}\r\n{authorization}Connection: close\r\n\r\n")
}

fn talk<S: Read + Write>(
    mut stream: S,
    request: &str,
    deadline: &Deadline,
    set_timeout: impl Fn(&mut S, Duration) -> io::Result<()>,
) -> io::Result<Vec<u8>> {
    stream.write_all(request.as_bytes())?;
    let (mut answer, mut part) = (Vec::new(), [0; 4096]);
    while answer.len() < ANSWER_MAX {
        set_timeout(&mut stream, deadline.left()?)?;
        match stream.read(&mut part) {
            Ok(0) => break,
            Ok(count) => answer.extend_from_slice(&part[..count]),
            Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(answer)
}

/// The status and the body of an answer.
fn read_answer(answer: &[u8]) -> Option<(u16, String)> {
    let text = String::from_utf8_lossy(answer);
    let (head, body) = text.split_once("\r\n\r\n")?;
    let mut words = head.lines().next()?.split(' ');
    words.next().filter(|version| version.starts_with("HTTP/1."))?;
    Some((words.next()?.parse().ok()?, body.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn addresses_are_those_of_listen() {
        let parse = |text: &str| Address::parse(text).map(|address| address.to_string());
        assert_eq!(parse("127.0.0.1:9464").unwrap(), "127.0.0.1:9464");
        assert_eq!(parse("0.0.0.0:80").unwrap(), "127.0.0.1:80");
        assert_eq!(parse("[::]:80").unwrap(), "[::1]:80");
        assert_eq!(parse("unix:/run/x.sock").unwrap(), "unix:/run/x.sock");
        for wrong in ["", "unix:", "9464", "localhost", "127.0.0.1"] {
            assert_eq!(parse(wrong).unwrap_err().code, Code::Usage, "{wrong}");
        }
    }

    #[test]
    fn answers_are_read_or_refused() {
        assert_eq!(read_answer(b"HTTP/1.1 200 OK\r\na: b\r\n\r\nok\n"), Some((200, "ok\n".into())));
        assert_eq!(read_answer(b"HTTP/1.0 503\r\n\r\n"), Some((503, String::new())));
        for wrong in [&b""[..], b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 2x0 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\n"] {
            assert_eq!(read_answer(wrong), None);
        }
    }

    /// A process that is stopped accepts connections and stays silent.
    #[test]
    fn a_silent_node_is_given_up_in_time() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address::Tcp(listener.local_addr().unwrap());
        let error = address.ask("/livez", None, Duration::from_millis(50)).unwrap_err();
        assert_eq!(error.to_string(), "no complete answer within 50 ms");
    }

    #[test]
    fn the_request_names_the_host_and_brings_the_token() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let place = listener.local_addr().unwrap();
        let server = std::thread::Builder::new().spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let mut letter = [0];
                stream.read_exact(&mut letter).unwrap();
                request.push(letter[0]);
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nready\n").unwrap();
            String::from_utf8(request).unwrap()
        });
        let address = Address::Tcp(place);
        let answer = address.ask("/readyz?share=0.9", Some("hush"), Duration::from_secs(60)).unwrap();
        assert_eq!(read_answer(&answer), Some((200, "ready\n".into())));
        let wanted = format!(
            "GET /readyz?share=0.9 HTTP/1.0\r\nHost: {place}\r\nAuthorization: Bearer hush\r\nConnection: close\r\n\r\n"
        );
        assert_eq!(server.unwrap().join().unwrap(), wanted);
    }
}
