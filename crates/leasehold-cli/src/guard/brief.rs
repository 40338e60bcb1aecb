//! A short command of an operator, such as a health check: started by the supervisor itself, without a lease. It ends in
//! time, or is killed with all that it started in its process group.

use std::ffi::OsStr;
use std::io;
use std::process::{ExitStatus, Stdio};
use std::sync::PoisonError;
use std::time::Duration;

use leasehold_store::Address;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, kill_process_group, waitpgid};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};

use super::guarded::{GUARDS, STORE_VARIABLE, holds_a_secret};

/// How much of what it prints is kept.
const KEPT_BYTES_MAX: usize = 4096;

/// How it ended, and the first of what it printed.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs a shell command to its end; `None` if that took too long, and then it was killed. Dropping the future kills it too.
pub(crate) async fn run_briefly(
    command: &str,
    env: &[(&'static str, String)],
    within: Duration,
) -> io::Result<Option<Ended>> {
    let mut running = Running::start(command, env)?;
    let (stdout, stderr) = (running.child.stdout.take(), running.child.stderr.take());
    let group = running.group;
    let all = async {
        let status = async {
            let status = running.child.wait().await;
            // What it left in the background would keep its pipes open, and nobody would ever end it.
            kill_group(group);
            status
        };
        let (status, stdout, stderr) = tokio::join!(status, first_of(stdout), first_of(stderr));
        status.map(|status| Ended { status, stdout, stderr })
    };
    match tokio::time::timeout(within, all).await {
        Ok(ended) => Ok(Some(ended?)),
        Err(_) => {
            kill_group(group);
            let _ = running.child.wait().await;
            Ok(None)
        }
    }
}

/// A command that runs. Until it is gone, a search for orphans of killed guards leaves it alone.
struct Running {
    child: Child,
    group: Pid,
}

impl Running {
    fn start(command: &str, env: &[(&'static str, String)]) -> io::Result<Running> {
        let mut shell = Command::new("sh");
        shell
            .args([OsStr::new("-c"), OsStr::new(command)])
            .env_remove(Address::PASSWORD_VARIABLE)
            .envs(env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        if std::env::var_os(STORE_VARIABLE).is_some_and(|address| holds_a_secret(&address)) {
            shell.env_remove(STORE_VARIABLE);
        }
        let mut spared = GUARDS.lock().unwrap_or_else(PoisonError::into_inner);
        let child = shell.spawn()?;
        let group = child.id().and_then(|pid| Pid::from_raw(pid as i32));
        let group = group.ok_or_else(|| io::Error::other("the command has no process id"))?;
        spared.insert(group.as_raw_nonzero().get());
        Ok(Running { child, group })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Once it was waited for, its number may be another process's.
        if self.child.id().is_some() {
            kill_group(self.group);
        }
        GUARDS.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.group.as_raw_nonzero().get());
    }
}

/// Kills what is left of a process group, and reaps what came to us as its orphans.
fn kill_group(group: Pid) {
    if kill_process_group(group, Signal::KILL) == Err(Errno::SRCH) {
        return;
    }
    while let Ok(Some(_)) = waitpgid(group, WaitOptions::NOHANG) {}
}

/// The first of what comes out of a pipe, read to its end so that the writer is not held up.
async fn first_of(pipe: Option<impl AsyncRead + Unpin>) -> String {
    let (mut kept, mut bytes) = (Vec::new(), vec![0; 8192]);
    let Some(mut pipe) = pipe else { return String::new() };
    while let Ok(count @ 1..) = pipe.read(&mut bytes).await {
        kept.extend_from_slice(&bytes[..count.min(KEPT_BYTES_MAX - kept.len())]);
    }
    String::from_utf8_lossy(&kept).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn the_end_and_the_output_are_told_and_what_it_left_behind_is_killed() {
        let env = [("LEASEHOLD_SHARD", "7".to_owned())];
        let command = "echo shard $LEASEHOLD_SHARD; echo no >&2; sleep 1000 & exit 3";
        let ended = run_briefly(command, &env, LONG).await.unwrap().unwrap();
        assert_eq!((ended.stdout.as_str(), ended.stderr.as_str()), ("shard 7\n", "no\n"));
        assert_eq!(ended.status.code(), Some(3));
        let long = run_briefly("yes | head -c 1000000", &[], LONG).await.unwrap().unwrap();
        assert_eq!(long.stdout.len(), KEPT_BYTES_MAX);
    }

    #[tokio::test]
    async fn one_that_nobody_waits_for_is_killed_with_what_it_started() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let command = format!("sleep 1000 & echo $! > {}; wait", file.path().display());
        let pid = || std::fs::read_to_string(file.path()).unwrap().trim().to_owned();
        let started = async {
            while pid().is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            ended = run_briefly(&command, &[], LONG) => panic!("it ended: {ended:?}"),
            () = started => {}
        }
        let stat = format!("/proc/{}/stat", pid());
        let alive = || std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z "));
        for _ in 0..2000 {
            if !alive() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("it lives on");
    }

    #[tokio::test]
    async fn a_limit_is_a_limit() {
        let asked = run_briefly("sleep 1000", &[], Duration::from_millis(50)).await.unwrap();
        assert!(asked.is_none());
    }
}
