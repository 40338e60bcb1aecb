//! All that a process has started, and all that those have started, found through `/proc`.
//!
//! The caller is a *subreaper*: whatever loses its parent becomes its child. So nothing below it can escape upwards, and
//! "no child is left" means that nothing is left, also of those who began a session of their own.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::BorrowedFd;
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions};

/// One process as `/proc` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
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
    seen(rustix::process::getpid().as_raw_nonzero().get()).is_some()
}

/// Kills everything below this process but the processes in `spare` (and what is below those), and reaps it. Returns
/// when nothing is left. `reaped` hears of every process that ended. `wakes` is readable when a child has ended.
pub(crate) fn kill_all(
    wakes: Option<BorrowedFd<'_>>,
    spare: impl Fn(i32) -> bool,
    mut reaped: impl FnMut(i32, rustix::process::WaitStatus),
) {
    loop {
        let victims = below(rustix::process::getpid().as_raw_nonzero().get(), &spare);
        for (pid, seen) in &victims {
            kill(*pid, *seen);
        }
        let mut any_left = !victims.is_empty();
        for (pid, _) in &victims {
            // Only our own children can be waited for; the others come to us when their parents end.
            if let Some(pid) = Pid::from_raw(*pid)
                && let Ok(Some((pid, status))) = rustix::process::waitpid(Some(pid), WaitOptions::NOHANG)
            {
                reaped(pid.as_raw_nonzero().get(), status);
            }
        }
        if !any_left {
            any_left = !below(rustix::process::getpid().as_raw_nonzero().get(), &spare).is_empty();
        }
        if !any_left {
            return;
        }
        pause(wakes, Duration::from_millis(1));
    }
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
fn below(top: i32, spare: &impl Fn(i32) -> bool) -> Vec<(i32, Seen)> {
    let all = everything();
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
    found
}

fn everything() -> BTreeMap<i32, Seen> {
    let Ok(folder) = fs::read_dir("/proc") else { return BTreeMap::new() };
    let pids = folder.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(|pid| Some((pid, seen(pid)?))).collect()
}

fn seen(pid: i32) -> Option<Seen> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// `pid (name) state ppid … starttime …`; the name may hold anything, also brackets.
fn parse_stat(stat: &str) -> Option<Seen> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split_ascii_whitespace();
    let parent = fields.nth(1)?.parse().ok()?;
    let started = fields.nth(17)?.parse().ok()?;
    Some(Seen { parent, started })
}

/// Kills this very process, and not another one that got its number in between.
fn kill(pid: i32, expected: Seen) {
    let Some(raw) = Pid::from_raw(pid) else { return };
    match rustix::process::pidfd_open(raw, PidfdFlags::empty()) {
        Ok(handle) => {
            if seen(pid).is_some_and(|now| now.started == expected.started) {
                let _ = rustix::process::pidfd_send_signal(handle, Signal::KILL);
            }
        }
        Err(rustix::io::Errno::SRCH) => {}
        // Old kernels, or no descriptors left: the number was looked up an instant ago.
        Err(_) => drop(rustix::process::kill_process(raw, Signal::KILL)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_names_do_not_mislead() {
        let stat = "42 (a) b (c) S 7 42 42 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 12345 100 1";
        assert_eq!(parse_stat(stat), Some(Seen { parent: 7, started: 12345 }));
        assert_eq!(parse_stat("42 (x"), None);
    }

    #[test]
    fn this_process_is_seen_below_its_parent() {
        let me = rustix::process::getpid().as_raw_nonzero().get();
        let parent = seen(me).expect("we run").parent;
        assert!(below(parent, &|_| false).iter().any(|(pid, _)| *pid == me));
        assert!(!below(parent, &|pid| pid == me).iter().any(|(pid, _)| *pid == me));
    }
}
