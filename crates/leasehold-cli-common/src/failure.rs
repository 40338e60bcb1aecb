//! How the program fails: a sentence for people, and an exit code for programs.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

use leasehold_core::store::{StoreError, StoreErrorKind};

use crate::log;
use crate::sanitize::{sanitize, sanitize_lines};
use crate::settings::Problems;

/// Why a command failed.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub code: Code,
    /// What happened, for people.
    pub message: String,
    /// What may say more.
    advice: Option<&'static str>,
}

/// The exit codes, all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// Something went wrong that has no code of its own.
    Failed = 1,
    /// The command line or the settings are wrong. Nothing was started.
    Usage = 2,
    /// The store cannot be reached, refuses, or is damaged.
    Store = 3,
    /// There is no such shard, node, group, key or namespace.
    NotFound = 4,
    /// Another live process uses this node's name, or has registered this key.
    NameTaken = 5,
    /// A check failed (`doctor`, `config check`, `status --check`, `demo`, `check`, `sim`).
    Unhealthy = 6,
    /// The node left, but could not confirm that everything was handed over.
    Unconfirmed = 7,
    /// What was waited for did not happen in time (`wait`, `--wait`).
    TimedOut = 8,
}

/// What `--help` says about them.
pub const EXIT_CODES: &str = "\
Exit codes:
  0  success
  1  any other error
  2  invalid arguments or settings; nothing was started
  3  the store is unreachable, refuses requests or is damaged
  4  unknown shard, node, group, key or namespace
  5  another live process uses this node name or has registered this key
  6  a check failed
  7  the node left, but the store did not confirm the handover
  8  what was waited for did not happen in time";

impl Failure {
    /// A failure without further advice.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Failure { code, message: message.into(), advice: None }
    }

    /// Prints the message to standard error, and returns the exit code.
    pub fn report(&self) -> ExitCode {
        if log::is_for_programs() {
            tracing::error!(exit_code = self.code as u8, advice = self.advice, "{}", self.message);
            log::flush();
            return ExitCode::from(self.code as u8);
        }
        let advice = self.advice.map(|advice| format!("\n  {advice}")).unwrap_or_default();
        log::last_words(format!("leasehold: {}{advice}\n", sanitize_lines(&self.message)));
        ExitCode::from(self.code as u8)
    }
}

impl From<Problems> for Failure {
    fn from(problems: Problems) -> Self {
        Failure::new(Code::Usage, problems.to_string())
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let advice = match error.kind {
            StoreErrorKind::Unreachable | StoreErrorKind::TimedOut | StoreErrorKind::Busy => {
                "try again, or run `leasehold doctor` to find the cause"
            }
            _ => "run `leasehold doctor` to find the cause",
        };
        Failure {
            advice: Some(advice),
            ..Failure::new(Code::Store, sanitize(&error.to_string()).into_owned())
        }
    }
}

impl From<leasehold::Error> for Failure {
    fn from(error: leasehold::Error) -> Self {
        let code = match &error {
            leasehold::Error::Config(_) | leasehold::Error::Name(_) => Code::Usage,
            leasehold::Error::Open(_)
            | leasehold::Error::Store { .. }
            | leasehold::Error::Unread { .. }
            | leasehold::Error::Record { .. } => Code::Store,
            leasehold::Error::UnknownGroup(_)
            | leasehold::Error::UnknownShard(_)
            | leasehold::Error::NotServed(_)
            | leasehold::Error::Invalid(_) => Code::NotFound,
            _ => Code::Failed,
        };
        let told = error.to_string();
        // Only a list of settings has lines of ours.
        let told = if code == Code::Usage { told } else { sanitize(&told).into_owned() };
        Failure::new(code, told)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Failure::new(Code::Failed, error.to_string())
    }
}

/// Prints to standard output. A closed reader (`| head`) is not a failure; any other error ends the program.
pub fn print(text: fmt::Arguments<'_>) {
    let mut out = io::stdout().lock();
    if let Err(error) = out.write_fmt(text).and_then(|()| out.flush())
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        let failure = Failure::new(Code::Failed, format!("cannot write the output: {error}"));
        let _ = failure.report();
        std::process::exit(failure.code as i32);
    }
}
