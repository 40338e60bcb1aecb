use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Duration;

use tempfile::TempDir;

use crate::{Process, Program, find, free_port, wait_until};

/// The access key that the servers know.
pub const S3_KEY: &str = "AKIALEASEHOLDTEST";
/// The secret that belongs to it.
pub const S3_SECRET: &str = "hush/hush+never=printed";

/// A server that speaks S3.
#[derive(Debug)]
pub struct S3Server {
    process: Process,
    program: Program,
    port: u16,
    /// Where buckets are made, if not through S3 itself.
    filer_port: u16,
    args: Vec<String>,
    folder: TempDir,
}

impl S3Server {
    /// Starts SeaweedFS, moto or rclone. `None`, after a loud note, if it is not on this machine.
    ///
    /// # Panics
    /// If it does not come up, or if the program is none of those.
    pub fn start(program: Program) -> Option<Self> {
        let path = executable(program)?;
        let folder = tempfile::Builder::new()
            .prefix("leasehold-s3-")
            .tempdir()
            .expect("a temporary folder can be made");
        let (port, filer_port) = (free_port(), free_port());
        let args = match program {
            Program::SeaweedFs => seaweed(&folder, port, filer_port),
            Program::Moto => moto(port),
            Program::Rclone => rclone(&folder, port),
            other => panic!("{} does not speak S3", other.name()),
        };
        let process = Process::start(program.name(), &path, folder.path(), &args);
        let mut server = S3Server { process, program, port, filer_port, args, folder };
        server.wait_ready();
        Some(server)
    }

    /// Where it answers.
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The port on which it answers.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The process itself, to be stopped and killed.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Makes a bucket.
    ///
    /// # Panics
    /// If that cannot be done.
    pub fn make_bucket(&self, bucket: &str) {
        let make = || match self.program {
            Program::SeaweedFs => {
                request(self.filer_port, "POST", &format!("/buckets/{bucket}/"));
                // A bucket gets its room with its first object.
                let path = format!("/buckets/{bucket}/ready-for-tests");
                exchange(self.filer_port, "PUT", &path, b"x").map(|(status, _)| status)
            }
            Program::Rclone => {
                std::fs::create_dir_all(self.folder.path().join("served").join(bucket)).ok().map(|()| 200)
            }
            _ => request(self.port, "PUT", &format!("/{bucket}")),
        };
        // On a busy machine a server that answers may still be starting inside.
        let made = || make().is_some_and(|status| (200..300).contains(&status));
        assert!(
            wait_until(Duration::from_secs(20), made),
            "no bucket {bucket} was made: {}",
            self.process.log_end()
        );
    }

    /// An address for the store.
    pub fn address(&self, bucket: &str, more: &str) -> String {
        self.address_at(&self.endpoint(), bucket, more)
    }

    /// The same by way of another endpoint, such as a proxy.
    pub fn address_at(&self, endpoint: &str, bucket: &str, more: &str) -> String {
        let secret = S3_SECRET.replace('/', "%2F").replace('+', "%2B").replace('=', "%3D");
        let endpoint = format!("endpoint={endpoint}&allow_http=true&region=us-east-1");
        format!("s3://{S3_KEY}:{secret}@{bucket}/leasehold?{endpoint}{more}")
    }

    /// Kills it and starts it again on the same ports and data. What moto had is gone.
    pub fn restart(&mut self) {
        let path = executable(self.program).expect("it was there before");
        self.process.stop();
        self.process = Process::start(self.program.name(), &path, self.folder.path(), &self.args);
        self.wait_ready();
    }

    /// All objects below a folder, behind every client's back. Not of rclone.
    pub fn objects(&self, bucket: &str, folder: &str) -> Vec<String> {
        let mut found = Vec::new();
        match self.program {
            Program::SeaweedFs => self.walk(&format!("/buckets/{bucket}/{folder}/"), &mut found),
            _ => {
                let path = format!("/{bucket}?list-type=2&max-keys=1000&prefix={folder}/");
                let (_, body) = exchange(self.port, "GET", &path, b"").unwrap_or_default();
                let text = String::from_utf8_lossy(&body).into_owned();
                found.extend(between(&text, "<Key>", "</Key>"));
            }
        }
        let root = format!("/buckets/{bucket}/");
        found.into_iter().map(|path| path.strip_prefix(&root).unwrap_or(&path).to_owned()).collect()
    }

    /// An object's bytes, behind every client's back.
    pub fn get_object(&self, bucket: &str, object: &str) -> Option<Vec<u8>> {
        let (port, path) = self.back_door(bucket, object);
        exchange(port, "GET", &path, b"").filter(|(status, _)| *status == 200).map(|(_, body)| body)
    }

    /// Writes an object without any condition, behind every client's back.
    pub fn put_object(&self, bucket: &str, object: &str, body: &[u8]) {
        let (port, path) = self.back_door(bucket, object);
        let written = exchange(port, "PUT", &path, body).map(|(status, _)| status);
        assert!(
            written.is_some_and(|status| (200..300).contains(&status)),
            "{object} was not written: {written:?}"
        );
    }

    /// Deletes an object, behind every client's back.
    pub fn delete_object(&self, bucket: &str, object: &str) {
        let (port, path) = self.back_door(bucket, object);
        exchange(port, "DELETE", &path, b"");
    }

    fn back_door(&self, bucket: &str, object: &str) -> (u16, String) {
        match self.program {
            Program::SeaweedFs => (self.filer_port, format!("/buckets/{bucket}/{object}")),
            _ => (self.port, format!("/{bucket}/{object}")),
        }
    }

    fn walk(&self, folder: &str, found: &mut Vec<String>) {
        let path = format!("{folder}?limit=10000");
        let (_, body) = exchange(self.filer_port, "GET", &path, b"").unwrap_or_default();
        let text = String::from_utf8_lossy(&body).into_owned();
        let names = between(&text, "\"FullPath\":\"", "\"");
        let modes = between(&text, "\"Mode\":", ",");
        for (name, mode) in names.into_iter().zip(modes) {
            // The highest bit says that it is a folder.
            match mode.trim().parse::<u64>().is_ok_and(|mode| mode & (1 << 31) != 0) {
                true => self.walk(&format!("{name}/"), found),
                false => found.push(name),
            }
        }
    }

    fn wait_ready(&mut self) {
        let (program, port, filer_port) = (self.program, self.port, self.filer_port);
        self.process.wait_ready(|| match program {
            Program::SeaweedFs => {
                // It can be written to only once all its parts have found each other.
                request(port, "GET", "/status") == Some(200)
                    && exchange(filer_port, "PUT", "/ready-for-tests", b"x")
                        .is_some_and(|(status, _)| status < 300)
            }
            _ => request(port, "GET", "/").is_some(),
        });
    }
}

fn seaweed(folder: &TempDir, port: u16, filer_port: u16) -> Vec<String> {
    let config = folder.path().join("s3.json");
    let identity = format!(
        "{{\"identities\":[{{\"name\":\"test\",\"credentials\":[{{\"accessKey\":\"{S3_KEY}\",\"secretKey\":\"{S3_SECRET}\"}}],\
         \"actions\":[\"Admin\",\"Read\",\"Write\",\"List\",\"Tagging\"]}}]}}"
    );
    std::fs::write(&config, identity).expect("the configuration can be written");
    let data = folder.path().join("data");
    std::fs::create_dir_all(&data).expect("a folder can be made");
    // Each part has a second port for its own traffic, which would be the first plus 10,000 and may be taken.
    let own = |part: &str| format!("-{part}.port.grpc={}", free_port());
    [
        "server".to_owned(),
        "-ip=127.0.0.1".to_owned(),
        "-ip.bind=127.0.0.1".to_owned(),
        format!("-dir={}", data.display()),
        format!("-master.port={}", free_port()),
        own("master"),
        own("volume"),
        own("filer"),
        own("s3"),
        "-master.volumeSizeLimitMB=64".to_owned(),
        format!("-volume.port={}", free_port()),
        // Every bucket takes some; without room for them writes fail.
        "-volume.max=200".to_owned(),
        "-filer".to_owned(),
        format!("-filer.port={filer_port}"),
        "-s3".to_owned(),
        format!("-s3.port={port}"),
        // Services that nobody needs, on ports that a second server would find taken.
        "-s3.port.iceberg=0".to_owned(),
        "-s3.port.lance=0".to_owned(),
        format!("-s3.config={}", config.display()),
    ]
    .into()
}

/// moto compares and writes in two steps. Its threads are not switched in between unless they wait for something, so
/// that conditional writes are as atomic as those of the store that it stands for.
fn moto(port: u16) -> Vec<String> {
    let start = "import sys; sys.setswitchinterval(60); from moto.server import main; main(sys.argv[1:])";
    ["-c".into(), start.into(), "-H".into(), "127.0.0.1".into(), "-p".into(), port.to_string()].into()
}

/// What is run for a program: moto is run by the Python of its environment.
fn executable(program: Program) -> Option<PathBuf> {
    let path = find(program)?;
    Some(if program == Program::Moto { path.with_file_name("python3") } else { path })
}

fn rclone(folder: &TempDir, port: u16) -> Vec<String> {
    let served = folder.path().join("served");
    std::fs::create_dir_all(&served).expect("a folder can be made");
    let addr = format!("--addr=127.0.0.1:{port}");
    [
        "serve".into(),
        "s3".into(),
        addr,
        format!("--auth-key={S3_KEY},{S3_SECRET}"),
        served.display().to_string(),
    ]
    .into()
}

fn between(text: &str, start: &str, end: &str) -> Vec<String> {
    let parts = text.split(start).skip(1);
    parts.filter_map(|part| part.split_once(end)).map(|(found, _)| found.to_owned()).collect()
}

/// The status of an answer to a request without a body.
fn request(port: u16, method: &str, path: &str) -> Option<u16> {
    exchange(port, method, path, b"").map(|(status, _)| status)
}

/// One request over a connection of its own, unsigned: status and body.
fn exchange(port: u16, method: &str, path: &str, body: &[u8]) -> Option<(u16, Vec<u8>)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    // HTTP/1.0, so that the body is not cut into chunks. moto accepts any signature.
    let head = format!(
        "{method} {path} HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\nAccept: application/json\r\n\
         Authorization: AWS4-HMAC-SHA256 Credential=k/20200101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).ok()?;
    stream.write_all(body).ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n")?;
    let status = std::str::from_utf8(answer.get(9..12)?).ok()?.parse().ok()?;
    Some((status, answer.split_off(end + 4)))
}
