//! A small S3 server on plain files that does not keep its word, each kind in its own way, to see that it is found out.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// What it gets wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// Nothing: so that it is known that the flaws are what is found.
    None,
    /// It creates what is there.
    IgnoresIfNoneMatch,
    /// It replaces what has changed.
    IgnoresIfMatch,
    /// It looks first and writes then, as fast as it can, and others may write in between.
    LooksThenWrites,
    /// It lists nothing.
    ListsNothing,
    /// Its clock differs from that of its clients, so it refuses all signed requests.
    ClockIsOff,
}

/// A server; what was written to it goes with it.
pub(crate) struct Careless {
    pub(crate) endpoint: String,
    files: Arc<Files>,
}

struct Files {
    folder: PathBuf,
    flaw: Flaw,
    mended: AtomicBool,
    /// Held from the look to the write, by a server that knows how to.
    lock: Mutex<()>,
    written: AtomicU64,
}

impl Careless {
    /// Starts one. Its threads end with the test's process.
    pub(crate) fn start(flaw: Flaw) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let folder = std::env::temp_dir().join(crate::common::fresh("careless"));
        std::fs::create_dir_all(&folder).unwrap();
        let files = Arc::new(Files {
            folder,
            flaw,
            mended: AtomicBool::new(false),
            lock: Mutex::default(),
            written: AtomicU64::new(0),
        });
        let serving = files.clone();
        spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let files = serving.clone();
                spawn(move || drop(files.serve(client)));
            }
        });
        Careless { endpoint, files }
    }

    /// From now on it keeps its word.
    pub(crate) fn mend(&self) {
        self.files.mended.store(true, Ordering::SeqCst);
    }

    /// The objects in its bucket.
    pub(crate) fn objects(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.files.folder).unwrap().map_while(Result::ok);
        entries.map(|entry| entry.file_name().to_string_lossy().replace('%', "/")).collect()
    }

    /// An address in its bucket. No two have the same prefix.
    pub(crate) fn address(&self) -> String {
        let prefix = crate::common::fresh("p");
        format!("s3://k:s@bucket/{prefix}?endpoint={}&allow_http=true&region=us-east-1", self.endpoint)
    }
}

impl Drop for Careless {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.files.folder);
    }
}

fn spawn(work: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().name("careless".into()).spawn(work).unwrap();
}

impl Files {
    fn serve(&self, client: TcpStream) -> std::io::Result<()> {
        client.set_nodelay(true)?;
        let mut reader = BufReader::new(client.try_clone()?);
        let mut client = client;
        loop {
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                if reader.read_line(&mut head)? == 0 {
                    return Ok(());
                }
            }
            let length = header(&head, "content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
            let mut body = vec![0; length];
            reader.read_exact(&mut body)?;
            client.write_all(&self.answer(&head, &body))?;
        }
    }

    fn answer(&self, head: &str, body: &[u8]) -> Vec<u8> {
        let mut words = head.split(' ');
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let flaw = match self.mended.load(Ordering::SeqCst) {
            true => Flaw::None,
            false => self.flaw,
        };
        if flaw == Flaw::ClockIsOff {
            return told("403 Forbidden", "", &failure("RequestTimeTooSkewed"));
        }
        if let Some((_, query)) = path.split_once('?') {
            return told("200 OK", "Content-Type: application/xml\r\n", self.listing(query).as_bytes());
        }
        let file = self.folder.join(path.trim_start_matches("/bucket/").replace('/', "%"));
        let found = || std::fs::read(&file).ok().map(|body| (etag(&body), body));
        if method != "PUT" {
            return match found() {
                Some((etag, body)) => {
                    let more = format!("ETag: {etag}\r\nLast-Modified: Mon, 02 Nov 2026 10:00:00 GMT\r\n");
                    told("200 OK", &more, &body)
                }
                None => told("404 Not Found", "", &failure("NoSuchKey")),
            };
        }
        let _held = (flaw != Flaw::LooksThenWrites).then(|| self.lock.lock().unwrap());
        let there = found().map(|(etag, _)| etag);
        let absent = header(head, "if-none-match").is_none() || there.is_none();
        let same = header(head, "if-match").is_none_or(|wanted| Some(wanted) == there);
        if !(absent || flaw == Flaw::IgnoresIfNoneMatch) || !(same || flaw == Flaw::IgnoresIfMatch) {
            return told("412 Precondition Failed", "", &failure("PreconditionFailed"));
        }
        let part = self.folder.join(format!("part-{}", self.written.fetch_add(1, Ordering::SeqCst)));
        std::fs::write(&part, body).and_then(|()| std::fs::rename(&part, &file)).unwrap();
        told("200 OK", &format!("ETag: {}\r\n", etag(body)), b"")
    }

    fn listing(&self, query: &str) -> String {
        let prefix = query.split('&').find_map(|pair| pair.strip_prefix("prefix=")).unwrap_or_default();
        let prefix = prefix.replace("%2F", "/");
        let mut contents = String::new();
        for entry in std::fs::read_dir(&self.folder).unwrap().map_while(Result::ok) {
            let key = entry.file_name().to_string_lossy().replace('%', "/");
            if !key.starts_with(&prefix) || self.flaw == Flaw::ListsNothing {
                continue;
            }
            let body = std::fs::read(entry.path()).unwrap_or_default();
            contents.push_str(&format!(
                "<Contents><Key>{key}</Key><ETag>{}</ETag><Size>{}</Size>\
                 <LastModified>2026-11-02T10:00:00.000Z</LastModified></Contents>",
                etag(&body).replace('"', "&quot;"),
                body.len()
            ));
        }
        format!("<ListBucketResult><IsTruncated>false</IsTruncated>{contents}</ListBucketResult>")
    }
}

fn header(head: &str, name: &str) -> Option<String> {
    let mut lines = head.lines().skip(1).filter_map(|line| line.split_once(": "));
    lines.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned())
}

fn etag(body: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    body.hash(&mut hasher);
    format!("\"{:016x}\"", hasher.finish())
}

fn failure(code: &str) -> Vec<u8> {
    format!("<Error><Code>{code}</Code><Message>made up</Message></Error>").into_bytes()
}

fn told(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}
