//! The supervisor's end of a guarded child.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use leasehold_cli_common::settings::redacted;
use leasehold_core::Moment;
use leasehold_store::Address;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};

use super::descriptor::send_fd;
use super::wire::{GuardCommand, Leash, Report};
use super::{Isolation, tree};

/// The variable of the environment that may hold the address of the store, with its password.
pub(super) const STORE_VARIABLE: &str = "LEASEHOLD_STORE";
const LISTEN_TOKEN_VARIABLE: &str = "LEASEHOLD_LISTEN_TOKEN";

/// The guards and short commands of this process that have not been waited for. Held while one is started, so that a
/// search for orphans never takes it for one.
pub(super) static GUARDS: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

/// What to start.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) command: Vec<OsString>,
    /// Added to our own environment, of which the store's password is not handed on.
    pub(crate) env: Vec<(&'static str, String)>,
    pub(crate) leash: Leash,
    pub(crate) isolation: Isolation,
    pub(crate) stdin: Stdin,
    pub(crate) stdout: Stdio,
    pub(crate) stderr: Stdio,
}

/// Where the child has its standard input from.
#[derive(Debug)]
pub(crate) enum Stdin {
    /// Nothing to read.
    Null,
    /// This descriptor.
    From(OwnedFd),
}

/// A child behind its guard. Dropping it kills the child with all that it started, and waits until they are dead:
/// afterwards the work has ended.
#[derive(Debug)]
pub(crate) struct Guarded {
    /// Orders go out here; never blocks.
    control: UnixStream,
    reports: Lines<BufReader<tokio::net::UnixStream>>,
    guard: Child,
    /// The guard said that nothing is left.
    gone: bool,
}

/// Lets orphans of guards that were killed come to this process, which then kills them. Once, at the start.
pub(crate) fn adopt_orphans() -> io::Result<()> {
    tree::adopt_orphans()
}

/// Whether an address is one that is not shown to people as it is, because a password may be in it.
pub(super) fn holds_a_secret(address: &OsStr) -> bool {
    address.to_str().is_none_or(|address| redacted(address) != address)
}

impl Guarded {
    /// Starts a guard, which starts the child. Must be called within a runtime.
    pub(crate) fn start(launch: Launch) -> io::Result<Guarded> {
        let (ours, theirs) = UnixStream::pair()?;
        let stdin_word = match &launch.stdin {
            Stdin::Null => "null",
            Stdin::From(_) => "sent",
        };
        let mut command = Command::new("/proc/self/exe");
        command
            .arg0("leasehold-guard")
            .arg("guard")
            .arg(launch.leash.kill_at.as_nanos().to_string())
            .arg(launch.leash.valid_until.as_nanos().to_string())
            .arg(stdin_word)
            .arg(launch.isolation.word())
            .arg("--")
            .args(&launch.command)
            // It is only for us: a worker needs no access to the ownership records.
            .env_remove(Address::PASSWORD_VARIABLE)
            .env_remove(LISTEN_TOKEN_VARIABLE)
            .envs(launch.env)
            .stdin(OwnedFd::from(theirs))
            .stdout(launch.stdout)
            .stderr(launch.stderr)
            .process_group(0);
        if std::env::var_os(STORE_VARIABLE).is_some_and(|address| holds_a_secret(&address)) {
            command.env_remove(STORE_VARIABLE);
        }
        let guard = {
            let mut guards = GUARDS.lock().unwrap_or_else(PoisonError::into_inner);
            let guard = command.spawn()?;
            guards.insert(guard.id() as i32);
            guard
        };
        // Our copies of the guard's ends are closed, so that its end is seen here.
        drop(command);
        if let Stdin::From(fd) = launch.stdin {
            send_fd(&ours, &fd)?;
        }
        ours.set_nonblocking(true)?;
        let reports = BufReader::new(tokio::net::UnixStream::from_std(ours.try_clone()?)?).lines();
        Ok(Guarded { control: ours, reports, guard, gone: false })
    }

    /// What the child prints, if it was asked for.
    pub(crate) fn take_output(&mut self) -> (Option<ChildStdout>, Option<ChildStderr>) {
        (self.guard.stdout.take(), self.guard.stderr.take())
    }

    /// What the guard says next; `None` when it is gone.
    pub(crate) async fn next(&mut self) -> Option<Report> {
        loop {
            let line = self.reports.next_line().await.ok().flatten()?;
            let report = Report::parse(&line);
            self.gone |= report == Some(Report::Gone);
            if report.is_some() {
                return report;
            }
        }
    }

    /// The lease was renewed. A guard that does not take it in kills earlier than it must, which is safe.
    pub(crate) fn extend(&mut self, leash: Leash) {
        self.send(GuardCommand::Extend(leash));
    }

    /// Asks the child to end, and kills what is left at that moment.
    pub(crate) fn terminate(&mut self, kill_at: Moment) {
        self.send(GuardCommand::Terminate(kill_at));
    }

    /// Kills what is left at that moment, without asking again.
    pub(crate) fn kill_at(&mut self, kill_at: Moment) {
        self.send(GuardCommand::KillAt(kill_at));
    }

    /// Kills everything now.
    pub(crate) fn kill(&mut self) {
        self.send(GuardCommand::Kill);
    }

    fn send(&mut self, command: GuardCommand) {
        if let Err(error) = self.control.write_all(command.line().as_bytes()) {
            tracing::warn!(%error, guard = self.guard.id(), "a guard process does not respond: its child is killed at its last deadline");
        }
    }

    /// Waits until the guard has ended, and then kills what it could not.
    fn finish(&mut self) {
        let _ = self.control.shutdown(std::net::Shutdown::Write);
        let _ = self.control.set_nonblocking(false);
        let mut rest = Vec::new();
        let _ = self.control.read_to_end(&mut rest);
        let _ = self.guard.wait();
        let orderly = self.gone || rest.split(|byte| *byte == b'\n').any(|line| line == b"gone");
        let mut guards = GUARDS.lock().unwrap_or_else(PoisonError::into_inner);
        guards.remove(&(self.guard.id() as i32));
        if !orderly {
            // The guard was killed. Its child died with it; its orphans are now our children.
            tree::kill_all_but(|pid| guards.contains(&pid), None, |_, _| {});
        }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.finish();
    }
}
