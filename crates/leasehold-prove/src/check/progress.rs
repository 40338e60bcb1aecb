use std::io::{IsTerminal, Write};

use leasehold::clock;
use leasehold_core::Moment;

/// Says what happens while it happens: lines to standard output, or to standard error where standard output is for
/// programs; and on a terminal a last line that shows the current state.
#[derive(Debug)]
pub(crate) struct Progress {
    began_at: Moment,
    to_programs: bool,
    terminal: bool,
    shown_at: Moment,
}

impl Progress {
    pub(crate) fn new(to_programs: bool) -> Progress {
        let terminal = std::io::stderr().is_terminal();
        Progress { began_at: clock::now(), to_programs, terminal, shown_at: Moment::ZERO }
    }

    /// Says something for good.
    pub(crate) fn say(&mut self, what: impl AsRef<str>) {
        self.wipe();
        let seconds = clock::now().since(self.began_at).as_secs_f64();
        let line = format!("{seconds:>7.2} s  {}", what.as_ref());
        if self.to_programs { eprintln!("{line}") } else { println!("{line}") }
    }

    /// Shows the current state until the next line. At most ten times a second.
    pub(crate) fn status(&mut self, what: &str) {
        let now = clock::now();
        if self.terminal && now.since(self.shown_at).as_millis() >= 100 {
            self.shown_at = now;
            let seconds = now.since(self.began_at).as_secs_f64();
            eprint!("\r\x1b[K{seconds:>7.2} s  {what}");
            let _ = std::io::stderr().flush();
        }
    }

    /// Takes the last line away.
    pub(crate) fn wipe(&self) {
        if self.terminal {
            eprint!("\r\x1b[K");
        }
    }
}
