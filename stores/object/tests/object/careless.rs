//! A small S3 server that does not keep its word, each kind in its own way, to see that it is found out.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What it gets wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// Nothing: so that it is known that the flaws are what is found.
    None,
    /// It creates what is there.
    IgnoresIfNoneMatch,
    /// It replaces what has changed.
    IgnoresIfMatch,
    /// It looks first and writes later, and others write in between, as servers on plain files do.
    LooksThenWrites,
}

type Objects = Arc<Mutex<BTreeMap<String, (u64, Vec<u8>)>>>;

/// Starts one, and says where. It ends with the test's runtime.
pub(crate) async fn careless(flaw: Flaw) -> (String, tokio::task::JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let objects = Objects::default();
    let mut server = tokio::task::JoinSet::new();
    server.spawn(async move {
        let mut clients = tokio::task::JoinSet::new();
        while let Ok((client, _)) = listener.accept().await {
            clients.spawn(serve(client, objects.clone(), flaw));
        }
    });
    (endpoint, server)
}

async fn serve(mut client: TcpStream, objects: Objects, flaw: Flaw) {
    let mut bytes = Vec::new();
    loop {
        let Some((head, body)) = request(&mut client, &mut bytes).await else { return };
        let answer = answer(&head, body, &objects, flaw).await;
        if client.write_all(&answer).await.is_err() {
            return;
        }
    }
}

/// The next request: its head and its body.
async fn request(client: &mut TcpStream, bytes: &mut Vec<u8>) -> Option<(String, Vec<u8>)> {
    loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
            let length = header(&head, "content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
            if bytes.len() >= end + 4 + length {
                let body = bytes[end + 4..end + 4 + length].to_vec();
                bytes.drain(..end + 4 + length);
                return Some((head, body));
            }
        }
        let mut some = [0; 4096];
        match client.read(&mut some).await {
            Ok(0) | Err(_) => return None,
            Ok(count) => bytes.extend_from_slice(&some[..count]),
        }
    }
}

fn header(head: &str, name: &str) -> Option<String> {
    let mut lines = head.lines().skip(1).filter_map(|line| line.split_once(": "));
    lines.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned())
}

async fn answer(head: &str, body: Vec<u8>, objects: &Objects, flaw: Flaw) -> Vec<u8> {
    let mut words = head.split(' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default().to_owned());
    let found = || objects.lock().unwrap().get(&path).cloned();
    let etag = |mark: u64| format!("\"{mark:032x}\"");
    if method == "PUT" {
        let holds = || {
            let there = found().map(|(mark, _)| etag(mark));
            let absent = header(head, "if-none-match").is_none() || there.is_none();
            let same = header(head, "if-match").is_none_or(|wanted| Some(wanted) == there);
            (absent || flaw == Flaw::IgnoresIfNoneMatch) && (same || flaw == Flaw::IgnoresIfMatch)
        };
        if !holds() {
            return told("412 Precondition Failed", "", b"<Error><Code>PreconditionFailed</Code></Error>");
        }
        if flaw == Flaw::LooksThenWrites {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let mut objects = objects.lock().unwrap();
        let mark = objects.values().map(|(mark, _)| *mark).max().unwrap_or(0) + 1;
        objects.insert(path, (mark, body));
        return told("200 OK", &format!("ETag: {}\r\n", etag(mark)), b"");
    }
    if path.contains("list-type=2") {
        return told("200 OK", "", b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>");
    }
    match found() {
        Some((mark, body)) => {
            let more = format!("ETag: {}\r\nLast-Modified: Mon, 02 Nov 2026 10:00:00 GMT\r\n", etag(mark));
            told("200 OK", &more, &body)
        }
        None => told("404 Not Found", "", b"<Error><Code>NoSuchKey</Code></Error>"),
    }
}

fn told(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}
