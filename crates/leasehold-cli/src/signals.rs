//! Being asked to end.

use std::time::Duration;

use leasehold::clock;
use leasehold_core::Moment;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What comes so soon after a signal is the same wish: `timeout` tells a process first and its group then.
const SAME_WISH: Duration = Duration::from_secs(1);

/// SIGTERM and Ctrl-C, from when this was made.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Option<Signal>,
    heeded_at: Option<Moment>,
}

impl Signals {
    pub(crate) fn listen() -> std::io::Result<Self> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: None,
            heeded_at: None,
        })
    }

    /// Also the end of the terminal, unless whoever started us wants us to outlive it (`nohup`).
    pub(crate) fn or_hangup(mut self) -> std::io::Result<Self> {
        if !hangup_is_ignored(&std::fs::read_to_string("/proc/self/status")?) {
            self.hangup = Some(signal(SignalKind::hangup())?);
        }
        Ok(self)
    }

    /// Waits for the next one that is a wish of its own.
    pub(crate) async fn next(&mut self) {
        loop {
            let hangup = async {
                match &mut self.hangup {
                    Some(hangup) => hangup.recv().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = self.terminate.recv() => {}
                _ = self.interrupt.recv() => {}
                _ = hangup => {}
            }
            let now = clock::now();
            if self.heeded_at.is_none_or(|before| now.since(before) >= SAME_WISH) {
                self.heeded_at = Some(now);
                return;
            }
            tracing::debug!("a signal that comes within a second of another one is taken for the same wish");
        }
    }
}

/// By what the kernel says of a process; SIGHUP is the lowest bit.
fn hangup_is_ignored(status: &str) -> bool {
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_hangup_that_nobody_wants_to_hear_of_is_known() {
        for (status, ignored) in [
            ("Name:\tx\nSigIgn:\t0000000000000001\nSigCgt:\t0\n", true),
            ("SigIgn:\t0000000000001000\n", false),
            ("SigBlk:\t0000000000000001\n", false),
        ] {
            assert_eq!(super::hangup_is_ignored(status), ignored, "{status}");
        }
    }
}
