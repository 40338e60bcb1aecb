//! Whether a command gets a process namespace of its own.

use std::process::Stdio;
use std::time::Duration;

use leasehold::clock;

use super::wire::{Exit, Leash, Report};
use super::{Guarded, Launch, Stdin};

/// The hidden command that does nothing.
pub(super) const NOTHING: &str = "guard-nothing";

/// How long a try may take on a very busy machine.
const TRY_WITHIN: Duration = Duration::from_secs(20);

/// Whether a command gets a process namespace of its own, with which everything in it dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Isolation {
    /// It sees the machine's processes, and is seen by its number.
    Off,
    /// It sees only what it started.
    Pid,
}

impl Isolation {
    pub(super) fn word(self) -> &'static str {
        match self {
            Isolation::Off => "off",
            Isolation::Pid => "pid",
        }
    }

    pub(super) fn read(word: &str) -> Option<Isolation> {
        [Isolation::Off, Isolation::Pid].into_iter().find(|isolation| isolation.word() == word)
    }

    /// Starts a command that does nothing like this, to see whether the machine lets us. Must be called within a
    /// runtime.
    pub(crate) async fn try_out(self) -> Result<(), String> {
        let kill_at = clock::now() + TRY_WITHIN;
        let launch = Launch {
            command: vec!["/proc/self/exe".into(), NOTHING.into()],
            env: Vec::new(),
            leash: Leash { kill_at, valid_until: kill_at + Duration::from_secs(1) },
            isolation: self,
            stdin: Stdin::Null,
            stdout: Stdio::null(),
            stderr: Stdio::null(),
        };
        let mut guarded = Guarded::start(launch).map_err(|error| error.to_string())?;
        let mut outcome = Err("the guard process exited unexpectedly".to_owned());
        while let Some(report) = guarded.next().await {
            match report {
                Report::Exited(Exit::Code(0)) => outcome = Ok(()),
                Report::Exited(exit) => outcome = Err(format!("a test process {exit}")),
                Report::Failed(why) => outcome = Err(why),
                Report::Started(_) | Report::Killing(_) | Report::Gone => {}
            }
        }
        outcome
    }
}
