//! A member's metrics, from the port that clients use.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::dial::{self, Speaking};
use crate::options::Options;

const WITHIN: Duration = Duration::from_secs(2);
const BYTES_MAX: u64 = 8 << 20;

/// A member's `/metrics`; empty if they are not available, which is not an error.
pub(crate) struct Metrics(String);

impl Metrics {
    pub(crate) async fn of(options: &Options, member: usize) -> Self {
        Metrics(tokio::time::timeout(WITHIN, page(options, member)).await.ok().flatten().unwrap_or_default())
    }

    pub(crate) fn number(&self, name: &str) -> Option<f64> {
        let value = self.0.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
        value.trim().parse().ok()
    }
}

async fn page(options: &Options, member: usize) -> Option<String> {
    let host = options.names().swap_remove(member);
    let mut stream = dial::stream(options, member, Speaking::Http1).await.ok()?;
    // The older version answers in one piece and closes the connection.
    let question = format!("GET /metrics HTTP/1.0\r\nHost: {host}\r\n\r\n");
    stream.write_all(question.as_bytes()).await.ok()?;
    let mut answer = Vec::new();
    stream.take(BYTES_MAX).read_to_end(&mut answer).await.ok()?;
    String::from_utf8(answer).ok()
}
