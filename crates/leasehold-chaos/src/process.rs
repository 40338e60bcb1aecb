//! A node's process, as its parent controls it.

use std::io::{self, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};

use leasehold::clock;
use leasehold_core::Moment;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;

/// A process that is killed when this is dropped, and that notices when this process is gone: its standard input ends.
#[derive(Debug)]
pub struct NodeProcess {
    child: Child,
    tie: Option<ChildStdin>,
    paused_at: Option<Moment>,
    /// Its end was waited for, so its id may belong to another process now.
    reaped: bool,
}

impl NodeProcess {
    /// Starts a process and gives it one line on its standard input, which stays open. Use it for
    /// what must not show in process lists.
    pub fn start(mut command: Command, first_line: &str) -> io::Result<NodeProcess> {
        let mut child = command.stdin(Stdio::piped()).spawn()?;
        let mut tie = child.stdin.take();
        let told = tie.as_mut().map_or(Ok(()), |tie| tie.write_all(format!("{first_line}\n").as_bytes()));
        let process = NodeProcess { child, tie, paused_at: None, reaped: false };
        told.map(|()| process)
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it says, if the command asked for a pipe.
    pub fn stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// Stops it with SIGSTOP. From the returned moment on, as the kernel confirms, none of its threads runs.
    pub fn pause(&mut self) -> io::Result<Moment> {
        if let Some(at) = self.paused_at {
            return Ok(at);
        }
        if self.reaped {
            return Ok(clock::now());
        }
        self.signal(Signal::SIGSTOP)?;
        // The kernel tells the parent when the last thread has stopped. An end is left for `wait` to see.
        let flags = WaitPidFlag::WSTOPPED | WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
        while let Err(error) = waitid(Id::Pid(self.pid()), flags) {
            if error != nix::errno::Errno::EINTR {
                return Err(error.into());
            }
        }
        let at = clock::now();
        self.paused_at = Some(at);
        Ok(at)
    }

    /// Lets it go on with SIGCONT. The returned moment is the last one at which it was certainly paused.
    pub fn resume(&mut self) -> io::Result<Moment> {
        let at = clock::now();
        self.paused_at = None;
        self.signal(Signal::SIGCONT)?;
        Ok(at)
    }

    /// Kills it with SIGKILL, and waits until it is gone. From the returned moment on, as the kernel confirms,
    /// nothing of it ran: it is stopped first, so that this is known before its end can be noticed.
    pub fn kill(&mut self) -> io::Result<Moment> {
        let at = self.pause()?;
        self.child.kill()?;
        self.child.wait()?;
        self.reaped = true;
        Ok(at)
    }

    /// Asks it to leave with SIGTERM.
    pub fn terminate(&mut self) -> io::Result<()> {
        self.signal(Signal::SIGTERM)
    }

    /// Whether it is stopped.
    pub fn is_paused(&self) -> bool {
        self.paused_at.is_some()
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        let ended = self.child.try_wait().ok().flatten();
        self.reaped |= ended.is_some();
        ended
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        if self.reaped {
            return Ok(());
        }
        kill(self.pid(), signal).map_err(io::Error::from)
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }
}

impl Drop for NodeProcess {
    fn drop(&mut self) {
        drop(self.tie.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::time::Duration;

    /// Prints a letter every millisecond.
    fn chatter() -> NodeProcess {
        let mut command = Command::new("sh");
        command.args(["-c", "read line; while :; do printf x; sleep 0.001; done"]).stdout(Stdio::piped());
        NodeProcess::start(command, "go").unwrap()
    }

    fn drain(stdout: &mut ChildStdout) -> usize {
        let mut buffer = [0; 65536];
        stdout.read(&mut buffer).unwrap()
    }

    #[test]
    fn a_paused_process_does_nothing_until_it_goes_on() {
        let mut process = chatter();
        let mut stdout = process.stdout().unwrap();
        assert!(drain(&mut stdout) > 0);
        let at = process.pause().unwrap();
        assert!(process.is_paused() && at <= clock::now());
        assert_eq!(process.pause().unwrap(), at, "twice is once");
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.id())).unwrap();
        assert!(stat.contains(") T "), "{stat}");
        process.resume().unwrap();
        drain(&mut stdout);
        drain(&mut stdout);
        assert!(drain(&mut stdout) > 0 && process.ended().is_none());
    }

    #[test]
    fn a_process_that_is_gone_gets_no_signal_that_could_meet_another() {
        let mut process = chatter();
        process.kill().unwrap();
        // The system would report that the process does not exist, or signal another process that has its id now.
        process.terminate().unwrap();
        process.resume().unwrap();
        process.pause().unwrap();
        process.kill().unwrap();
    }

    #[test]
    fn a_killed_process_is_gone_also_when_it_was_paused_or_had_ended() {
        let mut process = chatter();
        process.kill().unwrap();
        assert!(process.ended().is_some());
        let mut process = chatter();
        let paused_at = process.pause().unwrap();
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(process.kill().unwrap(), paused_at, "it ran no longer");
        let mut process = NodeProcess::start(Command::new("cat"), "").unwrap();
        process.terminate().unwrap();
        while process.ended().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
