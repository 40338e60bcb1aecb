//! The log on standard error. A separate thread writes it, so that a blocked terminal or pipe delays no renewal, no signal
//! and no exit.

mod format;
mod layer;

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, SyncSender};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tracing::Level;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::settings::Settings;

use format::Format;
use layer::Lines;

/// How many lines are buffered for a slow reader. Further lines are dropped and counted.
const WAITING_MAX: usize = 4096;

/// How long the program waits at its end until the log is written.
const LAST_WORDS_WITHIN: Duration = Duration::from_secs(2);

static LOG: OnceLock<Log> = OnceLock::new();

/// Logs to standard error from now on.
pub fn start(settings: &Settings) -> io::Result<()> {
    let level = match settings.text("log") {
        Some("error") => LevelFilter::ERROR,
        Some("warn") => LevelFilter::WARN,
        Some("debug") => LevelFilter::DEBUG,
        _ => LevelFilter::INFO,
    };
    let format = Format::of(settings.text("log_format"));
    let log = Log::start(io::stderr(), format)?;
    let lines = Lines::new(format, LOG.get_or_init(|| log).clone());
    tracing_subscriber::registry().with(level).with(lines).init();
    Ok(())
}

/// Whether programs read the log, so that everything on standard error must be a line of it.
pub(crate) fn is_for_programs() -> bool {
    LOG.get().is_some_and(|log| log.format != Format::Text)
}

/// Waits a short time until everything logged is written.
pub fn flush() {
    if let Some(log) = LOG.get() {
        log.flush(LAST_WORDS_WITHIN);
    }
}

/// Writes the final message of the program to standard error; gives up after a short time.
pub fn last_words(text: String) {
    flush();
    let (done, waiting) = mpsc::channel();
    let write = move || {
        // Standard error may be closed.
        let _ = io::stderr().write_all(text.as_bytes());
        let _ = done.send(());
    };
    if std::thread::Builder::new().spawn(write).is_ok() {
        let _ = waiting.recv_timeout(LAST_WORDS_WITHIN);
    }
}

/// Accepts lines without ever blocking.
#[derive(Clone, Debug)]
struct Log {
    lines: SyncSender<Item>,
    missing: Arc<AtomicU64>,
    format: Format,
}

enum Item {
    Line(Vec<u8>),
    Flush(mpsc::Sender<()>),
}

impl Log {
    fn start(mut to: impl Write + Send + 'static, format: Format) -> io::Result<Log> {
        let (lines, inbox) = mpsc::sync_channel(WAITING_MAX);
        let missing = Arc::new(AtomicU64::new(0));
        let dropped = missing.clone();
        std::thread::Builder::new().name("lh-log".to_owned()).spawn(move || {
            for item in inbox {
                // If standard error is closed, the log is dropped and the program continues.
                match item {
                    Item::Line(line) => drop(to.write_all(&line)),
                    Item::Flush(done) => drop(done.send(())),
                }
                let count = dropped.swap(0, Ordering::Relaxed);
                if count > 0 {
                    let what =
                        format!("{count} log lines were dropped: standard error was blocked for too long");
                    let _ = to.write_all(layer::own(format, Level::WARN, what).as_bytes());
                }
            }
        })?;
        Ok(Log { lines, missing, format })
    }

    fn flush(&self, within: Duration) {
        let (done, waiting) = mpsc::channel();
        if self.lines.try_send(Item::Flush(done)).is_ok() {
            let _ = waiting.recv_timeout(within);
        }
    }
}

impl Write for Log {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.lines.try_send(Item::Line(line.to_vec())).is_err() {
            self.missing.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader that blocks until it is told to continue.
    struct Stuck(mpsc::Receiver<()>, mpsc::Sender<String>);

    impl Write for Stuck {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.0.recv();
            let _ = self.1.send(String::from_utf8_lossy(bytes).into_owned());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn logging_does_not_wait_for_the_reader() {
        let ((go, wait), (wrote, written)) = (mpsc::channel(), mpsc::channel());
        let mut log = Log::start(Stuck(wait, wrote), Format::Text).unwrap();
        for line in 0..2 * WAITING_MAX {
            log.write_all(format!("line {line}\n").as_bytes()).unwrap();
        }
        drop(go);
        log.flush(Duration::from_secs(60));
        drop(log);
        let all: String = written.iter().collect();
        assert!(all.starts_with("line 0\n"), "{all}");
        assert!(all.contains("log lines were dropped"), "{all}");
    }
}
