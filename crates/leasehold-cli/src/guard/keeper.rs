//! The guard process: it starts one command, and kills all that came of it at the end of its lease.
//!
//! It is a small program of its own, in a process group of its own, so that nothing that happens to the supervisor
//! (SIGSTOP, SIGKILL, starvation, a full pipe) stops it. It kills when
//! - the boot clock passes `kill_at`, which only an order of the supervisor moves, and only while it is not yet passed;
//! - the supervisor is gone: the socket closes, and nobody would renew the lease;
//! - it is told to.
//!
//! Should the guard itself be stopped, a kernel timer kills it halfway between `kill_at` and `valid_until`, and the
//! command dies with it by its parent-death signal.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
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

use super::wire::{Exit, Leash, Order, Report};
use super::{StdinPlan, tree};

/// What a guard is started with.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) leash: Leash,
    pub(crate) stdin: StdinPlan,
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
    child: i32,
    exit: Option<Exit>,
    orders: Vec<u8>,
}

/// Why the loop ends.
enum Verdict {
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
                "/proc is not readable here, and the guard needs it to find all processes",
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
            exit: None,
            orders: Vec::new(),
        };
        keeper.set_timers()?;
        let stdin = match plan.stdin {
            StdinPlan::Null => Stdio::null(),
            StdinPlan::Sent => Stdio::from(receive_fd(control)?),
        };
        control.set_nonblocking(true)?;
        if clock::now() >= keeper.leash.kill_at {
            return Err(io::Error::other("the lease had ended before the command could be started"));
        }
        let me = std::process::id().to_string();
        let child = Command::new("/proc/self/exe")
            .args(["guard-stage", &me, "--"])
            .args(&plan.command)
            .stdin(stdin)
            .spawn()?;
        keeper.child = child.id() as i32;
        let _ = control.write_all(Report::Started(child.id()).line().as_bytes());
        Ok(keeper)
    }

    fn run(mut self, mut control: UnixStream) -> ExitCode {
        let verdict = loop {
            if let Some(verdict) = self.turn(&mut control) {
                break verdict;
            }
        };
        // From here on this process is awake and has one thing to do.
        let _ = self.dead_man.off();
        if let Verdict::Kill(why) = verdict {
            let _ = control.write_all(Report::Killing(why.to_owned()).line().as_bytes());
        }
        let (child, mut exit) = (self.child, self.exit);
        tree::kill_all(
            Some(self.ended.as_fd()),
            |_| false,
            |pid, status| {
                if pid == child {
                    exit = exit_of(status);
                }
            },
        );
        if let (None, Some(exit)) = (self.exit, exit) {
            let _ = control.write_all(Report::Exited(exit).line().as_bytes());
        }
        let _ = control.write_all(Report::Gone.line().as_bytes());
        ExitCode::SUCCESS
    }

    /// Sleeps until something happens and takes it in. The clock comes first: an order that arrives after the end of
    /// the lease changes nothing.
    fn turn(&mut self, control: &mut UnixStream) -> Option<Verdict> {
        let now = clock::now();
        if now >= self.leash.kill_at {
            return Some(Verdict::Kill("the lease has ended"));
        }
        if now >= self.kill_soon_at {
            return Some(Verdict::Kill("it did not end in time"));
        }
        let (on_order, on_timer, on_end) = {
            let mut fds = [
                PollFd::new(control, PollFlags::IN),
                PollFd::new(&self.timer, PollFlags::IN),
                PollFd::new(&self.ended, PollFlags::IN),
            ];
            if poll(&mut fds, None).is_err() {
                return None;
            }
            (!fds[0].revents().is_empty(), !fds[1].revents().is_empty(), !fds[2].revents().is_empty())
        };
        if on_timer {
            return None;
        }
        if on_end {
            while let Ok(Some(_)) = self.ended.read_signal() {}
            if let Some(exit) = self.reap() {
                self.exit = Some(exit);
                let _ = control.write_all(Report::Exited(exit).line().as_bytes());
                return Some(Verdict::ChildEnded);
            }
        }
        if on_order { self.read_orders(control) } else { None }
    }

    fn read_orders(&mut self, control: &mut UnixStream) -> Option<Verdict> {
        let mut bytes = [0u8; 4096];
        match control.read(&mut bytes) {
            Ok(0) => return Some(Verdict::Kill("the supervisor is gone")),
            Ok(count) => self.orders.extend_from_slice(&bytes[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return None,
            Err(_) => return Some(Verdict::Kill("the supervisor is gone")),
        }
        while let Some(end) = self.orders.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.orders.drain(..=end).collect();
            match Order::parse(&String::from_utf8_lossy(&line)) {
                Some(Order::Extend(leash)) => {
                    // The lease may have ended while we read: then it has ended.
                    if clock::now() >= self.leash.kill_at {
                        return Some(Verdict::Kill("the lease has ended"));
                    }
                    if leash.kill_at > self.leash.kill_at {
                        self.leash = leash;
                    }
                }
                Some(Order::Terminate(at)) => {
                    self.kill_soon_at = self.kill_soon_at.min(at);
                    if let Some(group) = Pid::from_raw(self.child) {
                        // Until the stage has its session, there is no such group: then the process itself.
                        if rustix::process::kill_process_group(group, rustix::process::Signal::TERM).is_err()
                        {
                            let _ = rustix::process::kill_process(group, rustix::process::Signal::TERM);
                        }
                    }
                }
                Some(Order::KillAt(at)) => self.kill_soon_at = self.kill_soon_at.min(at),
                Some(Order::Kill) => return Some(Verdict::Kill("told to")),
                None => return Some(Verdict::Kill("the supervisor talks nonsense")),
            }
        }
        if self.set_timers().is_err() {
            return Some(Verdict::Kill("the kernel timer could not be set"));
        }
        None
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

fn exit_of(status: WaitStatus) -> Option<Exit> {
    status.exit_status().map(Exit::Code).or_else(|| status.terminating_signal().map(Exit::Signal))
}

/// The descriptor that the supervisor sends first: the child's standard input.
fn receive_fd(control: &UnixStream) -> io::Result<OwnedFd> {
    use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0u8; 1];
    let mut into = [io::IoSliceMut::new(&mut byte)];
    recvmsg(control, &mut into, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(mut fds) = message
            && let Some(fd) = fds.next()
        {
            return Ok(fd);
        }
    }
    Err(io::Error::other("the supervisor sent no standard input for the command"))
}
