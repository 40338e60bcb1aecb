//! The last step before the user's command: this process becomes the command itself.
//!
//! It is a program of its own run because of what may be done between fork and exec: a parent-death signal, so that
//! the command dies with its guard (exec keeps it; programs with set-user-id bits clear it), and a session of its own.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal, setsid};

/// What shells say when a command is there but cannot be run.
const NOT_RUNNABLE: u8 = 126;
/// What shells say when there is no such command.
const NOT_FOUND: u8 = 127;

/// Becomes the command, as a child of the guard with this process id.
pub(crate) fn main(guard: i32, command: &[OsString]) -> ExitCode {
    if let Err(error) = prepare(guard) {
        eprintln!(
            "leasehold: the command was not started because it could not be attached to its guard process: {error}"
        );
        return ExitCode::from(NOT_RUNNABLE);
    }
    let Some((program, arguments)) = command.split_first() else { return ExitCode::from(NOT_RUNNABLE) };
    let error = Command::new(program).args(arguments).exec();
    eprintln!("leasehold: cannot start {}: {error}", program.display());
    let missing = error.kind() == std::io::ErrorKind::NotFound;
    ExitCode::from(if missing { NOT_FOUND } else { NOT_RUNNABLE })
}

/// Lets the kernel kill this process when its parent dies.
pub(super) fn die_with_parent() -> std::io::Result<()> {
    Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
}

fn prepare(guard: i32) -> std::io::Result<()> {
    die_with_parent()?;
    // The guard may have died before the signal was asked for.
    if getppid() != Pid::from_raw(guard) {
        return Err(std::io::Error::other("the guard process exited"));
    }
    setsid()?;
    // The guard listens to no signal; the command should hear all of them.
    nix::sys::signal::SigSet::empty().thread_set_mask()?;
    Ok(())
}
