//! All descendants of a process, found through `/proc`.
//!
//! The caller is a *subreaper*: whatever loses its parent becomes its child. So nothing below it can escape upwards, and
//! "no child is left" means that nothing is left, not even processes that started a session of their own.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitOptions};

/// One process as `/proc` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ProcessInfo {
    parent: i32,
    /// When it started, in ticks: tells a process from a later one with the same number.
    started: u64,
}

/// Makes this process the one that orphans below it come to.
pub(crate) fn adopt_orphans() -> io::Result<()> {
    Ok(rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?)
}

/// Whether `/proc` shows what is needed here: this process at least, with its parent.
pub(crate) fn proc_is_readable() -> bool {
    matches!(process_info(me()), Ok(Some(_)))
}

/// Kills everything below this process and reaps it, as [`kill_all_but`] does. Returns when the kernel says that no child
/// is left, whatever `/proc` shows.
pub(crate) fn kill_all(
    wakes: Option<BorrowedFd<'_>>,
    mut reaped: impl FnMut(i32, rustix::process::WaitStatus),
) {
    loop {
        kill_all_but(|_| false, wakes, &mut reaped);
        if !has_children() {
            return;
        }
        pause(None, UNSEEN);
    }
}

/// Kills everything below this process but the processes in `spare` (and what is below those), and reaps it. Returns
/// when nothing is left: as long as `/proc` cannot be read, something may be. `reaped` hears of every process that ended.
/// `wakes` is readable when a child has ended.
pub(crate) fn kill_all_but(
    spare: impl Fn(i32) -> bool,
    wakes: Option<BorrowedFd<'_>>,
    mut reaped: impl FnMut(i32, rustix::process::WaitStatus),
) {
    loop {
        let Ok(victims) = below(me(), &spare) else {
            pause(None, UNSEEN);
            continue;
        };
        for (pid, seen) in &victims {
            kill(*pid, *seen);
        }
        for (pid, _) in &victims {
            // Only our own children can be waited for; the others come to us when their parents end.
            if let Some(pid) = Pid::from_raw(*pid)
                && let Ok(Some((pid, status))) = rustix::process::waitpid(Some(pid), WaitOptions::NOHANG)
            {
                reaped(pid.as_raw_nonzero().get(), status);
            }
        }
        // A process that was being reparented to us during the first look shows up in a second one.
        if victims.is_empty() && below(me(), &spare).is_ok_and(|left| left.is_empty()) {
            return;
        }
        pause(wakes, Duration::from_millis(1));
    }
}

/// How long to wait before looking again where nothing could be seen.
const UNSEEN: Duration = Duration::from_millis(10);

fn me() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

/// Whether this process has a child, dead or alive, by what the kernel says.
fn has_children() -> bool {
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    !matches!(rustix::process::waitid(WaitId::All, look), Err(Errno::CHILD))
}

/// Waits until a child ended, or for that long.
fn pause(wakes: Option<BorrowedFd<'_>>, span: Duration) {
    let span = Timespec { tv_sec: 0, tv_nsec: span.subsec_nanos().into() };
    match wakes {
        Some(fd) => drop(poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&span))),
        None => drop(poll(&mut [], Some(&span))),
    }
}

/// Everything below a process, parents before children.
fn below(top: i32, spare: &impl Fn(i32) -> bool) -> io::Result<Vec<(i32, ProcessInfo)>> {
    let all = everything()?;
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for (pid, seen) in &all {
        children.entry(seen.parent).or_default().push(*pid);
    }
    let mut found = Vec::new();
    let mut next = vec![top];
    while let Some(parent) = next.pop() {
        for pid in children.remove(&parent).unwrap_or_default() {
            if !spare(pid) {
                found.push((pid, all[&pid]));
                next.push(pid);
            }
        }
    }
    Ok(found)
}

/// All processes. An error means that some may be missing, and so that nothing is known.
fn everything() -> io::Result<BTreeMap<i32, ProcessInfo>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        if let Some(seen) = process_info(pid)? {
            all.insert(pid, seen);
        }
    }
    Ok(all)
}

/// A process; nothing if it is gone, or is hidden from us as other users' can be.
fn process_info(pid: i32) -> io::Result<Option<ProcessInfo>> {
    let unseen = |error: &io::Error| {
        matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied)
            || error.raw_os_error() == Some(Errno::SRCH.raw_os_error())
    };
    match fs::read(format!("/proc/{pid}/stat")) {
        Ok(stat) => parse_stat(&stat).map(Some).ok_or_else(|| io::ErrorKind::InvalidData.into()),
        Err(error) if unseen(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// `pid (name) state ppid … starttime …`; the name may hold any bytes: brackets, and invalid UTF-8.
fn parse_stat(stat: &[u8]) -> Option<ProcessInfo> {
    let name_end = stat.windows(2).rposition(|two| two == b") ")?;
    let mut fields = std::str::from_utf8(&stat[name_end + 2..]).ok()?.split_ascii_whitespace();
    let parent = fields.nth(1)?.parse().ok()?;
    let started = fields.nth(17)?.parse().ok()?;
    Some(ProcessInfo { parent, started })
}

/// Kills this very process, and not another one that got its number in between.
fn kill(pid: i32, expected: ProcessInfo) {
    let Some(raw) = Pid::from_raw(pid) else { return };
    match rustix::process::pidfd_open(raw, PidfdFlags::empty()) {
        Ok(handle) => {
            if matches!(process_info(pid), Ok(Some(now)) if now.started == expected.started) {
                let _ = rustix::process::pidfd_send_signal(handle, Signal::KILL);
            }
        }
        Err(Errno::SRCH) => {}
        // Old kernels, or no descriptors left: the number was looked up an instant ago.
        Err(_) => drop(rustix::process::kill_process(raw, Signal::KILL)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_names_do_not_mislead() {
        let rest = b") S 7 42 42 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 12345 100 1";
        for name in [&b"a) b (c"[..], b"cut in a letter \xc3", b"\xff\xfe", b""] {
            let stat = [b"42 (", name, rest].concat();
            assert_eq!(parse_stat(&stat), Some(ProcessInfo { parent: 7, started: 12345 }), "{name:?}");
        }
        assert_eq!(parse_stat(b"42 (x"), None);
    }

    #[test]
    fn this_process_is_seen_below_its_parent() {
        let me = me();
        let parent = process_info(me).unwrap().expect("we run").parent;
        let finds_me = |found: Vec<(i32, ProcessInfo)>| found.iter().any(|(pid, _)| *pid == me);
        assert!(finds_me(below(parent, &|_| false).unwrap()));
        assert!(!finds_me(below(parent, &|pid| pid == me).unwrap()));
    }
}
