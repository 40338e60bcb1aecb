//! The first process of a process namespace, with the command below it.
//!
//! When the first process of a namespace dies, the kernel kills all others in it before any of them can notice: those in
//! sessions of their own, orphans, and processes that are about to fork. This process dies with its guard, by its parent-death
//! signal; the guard dies by its kernel timer at the latest. So nothing outlives the lease, even if supervisor, guard
//! and this process are all stopped or killed in one blow. No process has to be awake for that.
//!
//! The guard itself stays outside, because the kernel lets no timer kill the first process of a namespace.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, ExitCode, Stdio};

use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::process::WaitOptions;

use super::descriptor::receive_fd;
use super::keeper::{exit_of, terminate};
use super::wire::Report;
use super::{StdinPlan, stage};

/// What the guard sends to have the command asked to end.
pub(super) const TERMINATE: &[u8] = b"t";

/// Lets the next process that this one starts be the first of a new namespace. A user without that right also gets
/// a user namespace, where it is allowed; its user and group id stay the same there, and no others exist.
pub(super) fn leave_namespace() -> io::Result<()> {
    match unshare(CloneFlags::CLONE_NEWPID) {
        Err(nix::errno::Errno::EPERM) => {}
        done => return done.map_err(|error| refused("a PID namespace", error.into())),
    }
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWPID)
        .map_err(|error| refused("a user namespace", error.into()))?;
    let map = |file: &str, text: String| {
        std::fs::write(format!("/proc/self/{file}"), text).map_err(|error| refused("a user namespace", error))
    };
    map("setgroups", "deny".to_owned())?;
    map("uid_map", format!("{user} {user} 1"))?;
    map("gid_map", format!("{group} {group} 1"))
}

fn refused(what: &str, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("this machine does not allow {}: {error}", what))
}

/// Runs the first process to its end.
pub(crate) fn main(stdin: StdinPlan, command: &[OsString]) -> ExitCode {
    let Ok(guard) = io::stdin().as_fd().try_clone_to_owned() else { return ExitCode::FAILURE };
    let mut guard = UnixStream::from(guard);
    let last = match live(&mut guard, stdin, command) {
        Ok(last) => last,
        Err(error) => Some(Report::Failed(error.to_string())),
    };
    if let Some(last) = last {
        let _ = guard.write_all(last.line().as_bytes());
    }
    // The kernel kills all that is left.
    ExitCode::SUCCESS
}

/// From the start of the command to its end, which is reported if the guard is still there.
fn live(guard: &mut UnixStream, stdin: StdinPlan, command: &[OsString]) -> io::Result<Option<Report>> {
    stage::die_with_parent()?;
    let mut children = SigSet::empty();
    children.add(Signal::SIGCHLD);
    children.thread_block()?;
    let ended = SignalFd::with_flags(&children, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
    let stdin = match stdin {
        StdinPlan::Null => Stdio::null(),
        StdinPlan::Sent => Stdio::from(receive_fd(guard)?),
    };
    show_own_processes()?;
    guard.set_nonblocking(true)?;
    // The guard may have died before its death was listened for. Its end of the socket was closed then.
    match hear(guard) {
        Heard::Nothing => {}
        Heard::Terminate => return Err(io::Error::other("it was told to stop before it started")),
        Heard::Gone => return Ok(None),
    }
    let child =
        Command::new("/proc/self/exe").args(["guard-stage", "1", "--"]).args(command).stdin(stdin).spawn()?;
    let child = child.id() as i32;
    let _ = guard.write_all(Report::Started(child as u32).line().as_bytes());
    loop {
        let mut fds = [PollFd::new(guard, PollFlags::IN), PollFd::new(&ended, PollFlags::IN)];
        if poll(&mut fds, None).is_err() {
            continue;
        }
        while let Ok(Some(_)) = ended.read_signal() {}
        while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
            if pid.as_raw_nonzero().get() == child {
                return Ok(exit_of(status).map(Report::Exited));
            }
        }
        match hear(guard) {
            Heard::Nothing => {}
            Heard::Terminate => terminate(child),
            Heard::Gone => return Ok(None),
        }
    }
}

/// What the guard wants.
enum Heard {
    Nothing,
    /// The command shall be asked to end.
    Terminate,
    /// It is dead.
    Gone,
}

fn hear(guard: &mut UnixStream) -> Heard {
    let mut bytes = [0u8; 64];
    loop {
        match guard.read(&mut bytes) {
            Ok(0) => return Heard::Gone,
            Ok(_) => return Heard::Terminate,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Heard::Nothing,
            Err(_) => return Heard::Gone,
        }
    }
}

/// Lets `/proc` show the processes of this namespace, under the numbers that they know of themselves.
fn show_own_processes() -> io::Result<()> {
    let done = unshare(CloneFlags::CLONE_NEWNS).map_err(io::Error::from).and_then(|()| {
        mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        Ok(mount("proc", "/proc", "proc", flags, None)?)
    });
    done.map_err(|error| refused("a /proc of its own", error))
}
