//! The signals that ask this process to shut down.

use std::io;
use std::time::Duration;

use leasehold::clock;
use leasehold_core::Moment;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// A signal that follows so soon is the same request: `timeout` signals a process first and then its group.
const SAME_WISH: Duration = Duration::from_secs(1);

/// SIGTERM, Ctrl-C, and SIGHUP, which comes when the terminal is closed.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// Not there if it was ignored at the start, as `nohup` has it: then this process outlives its terminal.
    hangup: Option<Signal>,
    heeded_at: Option<Moment>,
}

impl Signals {
    /// Listens from now on; they no longer end the process by themselves.
    pub fn listen() -> io::Result<Self> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: if ignores_hangup() { None } else { Some(signal(SignalKind::hangup())?) },
            heeded_at: None,
        })
    }

    /// Waits for the next one that is a request of its own.
    pub async fn next(&mut self) {
        loop {
            let hangup = async {
                match &mut self.hangup {
                    Some(hangup) => drop(hangup.recv().await),
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = self.terminate.recv() => {}
                _ = self.interrupt.recv() => {}
                () = hangup => {}
            }
            let now = clock::now();
            if self.heeded_at.is_none_or(|before| now.since(before) >= SAME_WISH) {
                self.heeded_at = Some(now);
                return;
            }
            tracing::debug!("ignored a signal within 1 s of the previous one");
        }
    }
}

fn ignores_hangup() -> bool {
    std::fs::read_to_string("/proc/self/status").is_ok_and(|status| ignored(&status, SignalKind::hangup()))
}

/// Whether a process with this status ignores a signal.
fn ignored(status: &str, kind: SignalKind) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (kind.as_raw_value() - 1) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_the_status() {
        let status = "SigBlk:\t0000000000000001\nSigIgn:\t0000000000001001\nSigCgt:\t0000000000004002\n";
        assert!(ignored(status, SignalKind::hangup()));
        assert!(!ignored(status, SignalKind::interrupt()));
        assert!(!ignored("", SignalKind::hangup()));
    }
}
