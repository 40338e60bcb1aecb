use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::{Process, Program, find, free_port, wait_until};

/// A Prometheus that scrapes what it is told to, and evaluates rules.
#[derive(Debug)]
pub struct Prometheus {
    port: u16,
    process: Process,
    _folder: TempDir,
}

impl Prometheus {
    /// Starts one that scrapes these addresses and evaluates these files of rules, several times a second, and waits until
    /// it has scraped each of them; `None` if the program is missing.
    ///
    /// # Panics
    /// If a file of rules is missing, or an address does not answer.
    pub fn start(targets: &[String], rules: &[&Path]) -> Option<Prometheus> {
        let program = find(Program::Prometheus)?;
        let folder = TempDir::new().expect("a folder for a server");
        let mut config = String::from(
            "global:\n  scrape_interval: 200ms\n  scrape_timeout: 200ms\n  evaluation_interval: 200ms\nrule_files:\n",
        );
        for file in rules {
            let file = file.canonicalize().expect("the rules are there");
            let _ = writeln!(config, "  - {}", file.display());
        }
        config.push_str("scrape_configs:\n  - job_name: leasehold\n    static_configs:\n      - targets:\n");
        for target in targets {
            let _ = writeln!(config, "          - {target:?}");
        }
        std::fs::write(folder.path().join("prometheus.yml"), config).expect("the configuration is written");
        let port = free_port();
        let args = [
            "--config.file=prometheus.yml".to_owned(),
            "--storage.tsdb.path=data".to_owned(),
            format!("--web.listen-address=127.0.0.1:{port}"),
            "--log.level=warn".to_owned(),
        ];
        let process = Process::start("prometheus", &program, folder.path(), &args);
        let mut server = Prometheus { port, process, _folder: folder };
        let ready = || get(port, "/-/ready").is_ok_and(|answer| answer.starts_with("HTTP/1.0 200"));
        server.process.wait_ready(ready);
        // It learns of its targets only some seconds after it is ready.
        let scraped = || {
            targets.is_empty() || server.query("count(up == 1)").contains(&format!("\"{}\"", targets.len()))
        };
        assert!(wait_until(Duration::from_secs(30), scraped), "not all of {targets:?} answer");
        Some(server)
    }

    /// The answer to a query, as JSON; errors are in it.
    pub fn query(&self, query: &str) -> String {
        self.get(&format!("/api/v1/query?query={}", encoded(query)))
    }

    /// The alerts that are pending or firing, as JSON.
    pub fn alerts(&self) -> String {
        self.get("/api/v1/alerts")
    }

    fn get(&self, path: &str) -> String {
        let answer = get(self.port, path).unwrap_or_else(|error| {
            panic!("Prometheus does not answer: {error}\n{}", self.process.log_end())
        });
        answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default()
    }
}

/// Runs `promtool` with these arguments and this input in a folder: whether it was content, and what it said. `None` if
/// it is missing.
///
/// # Panics
/// If it cannot be started.
pub fn promtool(folder: &Path, args: &[&str], input: &str) -> Option<(bool, String)> {
    use std::process::Stdio;
    let mut command = Command::new(find(Program::Promtool)?);
    command.args(args).current_dir(folder);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("promtool can be started");
    // It reads everything before it says anything.
    let _ = child.stdin.take().map(|mut stdin| stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().expect("promtool ends");
    let said = [output.stdout, output.stderr].concat();
    Some((output.status.success(), String::from_utf8_lossy(&said).into_owned()))
}

fn get(port: u16, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Percent-encodes everything that a query may contain.
fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => out.push(char::from(byte)),
            _ => drop(write!(out, "%{byte:02X}")),
        }
        out
    })
}
