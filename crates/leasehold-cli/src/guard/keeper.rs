//! The guard process: it starts one command, and kills all that came of it at the end of its lease.
//!
//! It is a small program of its own, in a process group of its own, so that nothing that happens to the supervisor
//! (SIGSTOP, SIGKILL, starvation, a full pipe) stops it. It kills when
//! - the boot clock passes `kill_at`, which only a command of the supervisor moves, and only while it is not yet passed;
//! - the supervisor is gone: the socket closes, and the lease is no longer renewed;
//! - it is told to.
//!
//! Should the guard itself be stopped, a kernel timer kills it halfway between `kill_at` and `valid_until`, and the
//! command dies with it by its parent-death signal. With [`Isolation::Pid`] everything that the command started dies
//! with it too, by the kernel's own hand ([`init`](super::init)).

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, ExitCode, Stdio};

use leasehold::clock;
use leasehold::deadman::DeadMan;
use leasehold_core::Moment;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, WaitOptions, WaitStatus};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};

use super::descriptor::receive_fd;
use super::inside::Inside;
use super::wire::{Exit, GuardCommand, Leash, Report};
use super::{Isolation, StdinPlan, tree};

/// What a guard is started with.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) leash: Leash,
    pub(crate) stdin: StdinPlan,
    pub(crate) isolation: Isolation,
    pub(crate) command: Vec<OsString>,
}

/// Runs the guard to its end.
pub(crate) fn main(plan: Plan) -> ExitCode {
    let Ok(control) = io::stdin().as_fd().try_clone_to_owned() else { return ExitCode::FAILURE };
    let mut control = UnixStream::from(control);
    match Keeper::start(plan, &mut control) {
        Ok(keeper) => keeper.run(control),
        Err(error) => {
            let _ = control.write_all(Report::Failed(error.to_string()).line().as_bytes());
            ExitCode::FAILURE
        }
    }
}

struct Keeper {
    leash: Leash,
    /// Set once the child was asked to end.
    kill_soon_at: Moment,
    timer: OwnedFd,
    dead_man: DeadMan,
    ended: SignalFd,
    /// The process below this one: the command, or the first process of its namespace.
    child: i32,
    /// The way to the first process of the command's namespace, if it has one.
    inside: Option<Inside>,
    exit: Option<Exit>,
    commands: Vec<u8>,
}

/// Why the loop ends.
enum Ending {
    Kill(&'static str),
    ChildEnded,
}

impl Keeper {
    fn start(plan: Plan, control: &mut UnixStream) -> io::Result<Keeper> {
        // What people and terminals send to whole groups is for the supervisor to act on.
        let mut mask = SigSet::empty();
        for signal in [
            Signal::SIGTERM,
            Signal::SIGINT,
            Signal::SIGHUP,
            Signal::SIGQUIT,
            Signal::SIGTSTP,
            Signal::SIGTTIN,
            Signal::SIGTTOU,
            Signal::SIGUSR1,
            Signal::SIGUSR2,
            Signal::SIGCHLD,
        ] {
            mask.add(signal);
        }
        mask.thread_block()?;
        let mut children = SigSet::empty();
        children.add(Signal::SIGCHLD);
        let ended = SignalFd::with_flags(&children, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        if !tree::proc_is_readable() {
            return Err(io::Error::other(
                "/proc is not readable; the guard process needs it to find all processes",
            ));
        }
        tree::adopt_orphans()?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = rustix::time::timerfd_create(TimerfdClockId::Boottime, flags)?;
        let mut keeper = Keeper {
            leash: plan.leash,
            kill_soon_at: Moment::NEVER,
            timer,
            dead_man: DeadMan::new()?,
            ended,
            child: 0,
            inside: None,
            exit: None,
            commands: Vec::new(),
        };
        keeper.set_timers()?;
        let stdin = match plan.stdin {
            StdinPlan::Null => None,
            StdinPlan::Sent => Some(receive_fd(control)?),
        };
        control.set_nonblocking(true)?;
        if clock::now() >= keeper.leash.kill_at {
            return Err(io::Error::other("the lease ended before the command was started"));
        }
        match plan.isolation {
            Isolation::Off => {
                let me = std::process::id().to_string();
                let child = Command::new("/proc/self/exe")
                    .args(["guard-stage", &me, "--"])
                    .args(&plan.command)
                    .stdin(stdin.map_or_else(Stdio::null, Stdio::from))
                    .spawn()?;
                keeper.child = child.id() as i32;
                let _ = control.write_all(Report::Started(child.id()).line().as_bytes());
            }
            Isolation::Pid => {
                let (child, inside) = Inside::start(&plan.command, stdin)?;
                (keeper.child, keeper.inside) = (child, Some(inside));
            }
        }
        Ok(keeper)
    }

    fn run(mut self, mut control: UnixStream) -> ExitCode {
        let ending = loop {
            if let Some(ending) = self.turn(&mut control) {
                break ending;
            }
        };
        if self.inside.is_none() {
            // From here on this process is awake and has one thing to do. Killed halfway, it would leave orphans; a
            // namespace leaves none.
            let _ = self.dead_man.off();
        }
        if let Ending::Kill(why) = ending {
            // At once, without a search: the process has not been reaped, so its id is still its own.
            signal_group(self.child, rustix::process::Signal::KILL);
            let _ = control.write_all(Report::Killing(why.to_owned()).line().as_bytes());
        }
        let (child, mut exit) = (self.child, self.exit);
        tree::kill_all(Some(self.ended.as_fd()), |pid, status| {
            if pid == child {
                exit = exit_of(status);
            }
        });
        if let (None, Some(exit)) = (self.exit, exit) {
            let _ = control.write_all(Report::Exited(exit).line().as_bytes());
        }
        let _ = control.write_all(Report::Gone.line().as_bytes());
        ExitCode::SUCCESS
    }

    /// Sleeps until something happens and takes it in. The clock comes first: an order that arrives after the end of
    /// the lease changes nothing.
    fn turn(&mut self, control: &mut UnixStream) -> Option<Ending> {
        let now = clock::now();
        if now >= self.leash.kill_at {
            return Some(Ending::Kill("the lease ended"));
        }
        if now >= self.kill_soon_at {
            return Some(Ending::Kill("it did not exit in time"));
        }
        let (on_command, on_timer, on_end, on_inside) = {
            let mut fds = vec![
                PollFd::new(control, PollFlags::IN),
                PollFd::new(&self.timer, PollFlags::IN),
                PollFd::new(&self.ended, PollFlags::IN),
            ];
            if let Some(inside) = self.inside.as_ref().filter(|inside| !inside.silent) {
                fds.push(PollFd::new(&inside.socket, PollFlags::IN));
            }
            if poll(&mut fds, None).is_err() {
                return None;
            }
            let hit = |at: usize| fds.get(at).is_some_and(|fd| !fd.revents().is_empty());
            (hit(0), hit(1), hit(2), hit(3))
        };
        if on_timer {
            return None;
        }
        if on_inside {
            self.hear_inside(control);
        }
        if on_end {
            while let Ok(Some(_)) = self.ended.read_signal() {}
            if let Some(exit) = self.reap() {
                self.hear_inside(control);
                // What the command's namespace said of its end is nearer the truth than how that itself ended.
                if self.exit.is_none() && !self.inside.as_ref().is_some_and(|inside| inside.failed) {
                    self.exit = Some(exit);
                    let _ = control.write_all(Report::Exited(exit).line().as_bytes());
                }
                return Some(Ending::ChildEnded);
            }
        }
        if on_command { self.read_commands(control) } else { None }
    }

    fn read_commands(&mut self, control: &mut UnixStream) -> Option<Ending> {
        let mut bytes = [0u8; 4096];
        match control.read(&mut bytes) {
            Ok(0) => return Some(Ending::Kill("the supervisor exited")),
            Ok(count) => self.commands.extend_from_slice(&bytes[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return None,
            Err(_) => return Some(Ending::Kill("the supervisor exited")),
        }
        while let Some(end) = self.commands.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.commands.drain(..=end).collect();
            match GuardCommand::parse(&String::from_utf8_lossy(&line)) {
                Some(GuardCommand::Extend(leash)) => {
                    // The lease may have ended while we read: then it has ended.
                    if clock::now() >= self.leash.kill_at {
                        return Some(Ending::Kill("the lease ended"));
                    }
                    if leash.kill_at > self.leash.kill_at {
                        self.leash = leash;
                    }
                }
                Some(GuardCommand::Terminate(at)) => {
                    self.kill_soon_at = self.kill_soon_at.min(at);
                    match &mut self.inside {
                        Some(inside) => inside.terminate(),
                        None => terminate(self.child),
                    }
                }
                Some(GuardCommand::KillAt(at)) => self.kill_soon_at = self.kill_soon_at.min(at),
                Some(GuardCommand::Kill) => return Some(Ending::Kill("requested")),
                None => return Some(Ending::Kill("invalid message from the supervisor")),
            }
        }
        if self.set_timers().is_err() {
            return Some(Ending::Kill("cannot set the kernel timer"));
        }
        None
    }

    /// Passes on what the first process of the command's namespace says.
    fn hear_inside(&mut self, control: &mut UnixStream) {
        let Some(inside) = &mut self.inside else { return };
        for report in inside.reports() {
            let report = match report {
                // A number in its namespace, which means nothing out here.
                Report::Started(_) => Report::Started(first_child(self.child).unwrap_or(self.child) as u32),
                other => other,
            };
            match &report {
                Report::Exited(exit) => self.exit = Some(*exit),
                Report::Failed(_) => inside.failed = true,
                _ => {}
            }
            let _ = control.write_all(report.line().as_bytes());
        }
    }

    /// Reaps everything that ended; the answer is how the child ended, if it did.
    fn reap(&mut self) -> Option<Exit> {
        let mut exit = None;
        while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
            if pid.as_raw_nonzero().get() == self.child {
                exit = exit_of(status);
            }
        }
        exit
    }

    fn set_timers(&mut self) -> io::Result<()> {
        let at = self.leash.kill_at.min(self.kill_soon_at);
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let value = Timespec {
            tv_sec: i64::try_from(at.as_nanos() / 1_000_000_000).unwrap_or(i64::MAX),
            // Zero would switch it off.
            tv_nsec: (at.as_nanos() % 1_000_000_000).max(1) as _,
        };
        let spec = Itimerspec { it_interval: zero, it_value: value };
        rustix::time::timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &spec)?;
        let spare = self.leash.valid_until.since(self.leash.kill_at) / 2;
        self.dead_man.set(self.leash.kill_at + spare)
    }
}

/// How a process ended.
pub(super) fn exit_of(status: WaitStatus) -> Option<Exit> {
    status.exit_status().map(Exit::Code).or_else(|| status.terminating_signal().map(Exit::Signal))
}

/// Asks a command to end, with its process group.
pub(super) fn terminate(child: i32) {
    signal_group(child, rustix::process::Signal::TERM);
}

fn signal_group(child: i32, signal: rustix::process::Signal) {
    let Some(group) = Pid::from_raw(child) else { return };
    // Until the stage has its session, there is no such group: then the process itself.
    if rustix::process::kill_process_group(group, signal).is_err() {
        let _ = rustix::process::kill_process(group, signal);
    }
}

fn first_child(pid: i32) -> Option<i32> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    children.split_ascii_whitespace().next()?.parse().ok()
}
