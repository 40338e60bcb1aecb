//! Processes and the boot clock, as tests see them.

use std::fs::{self, File};
use std::io::{Read, Seek};
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// The program under test.
pub(crate) const LEASEHOLD: &str = env!("CARGO_BIN_EXE_leasehold");

/// Nanoseconds on the boot clock.
pub(crate) fn now_ns() -> u64 {
    leasehold::clock::now().as_nanos()
}

/// Waits until something is true; panics with `what` when it takes longer than the limit.
pub(crate) fn wait_for<T>(what: &str, limit: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let end = now_ns() + limit.as_nanos() as u64;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(now_ns() < end, "waited {limit:?} in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Longer than any command needs that ends by itself, on a very busy machine.
const ENDS_WITHIN: Duration = Duration::from_secs(300);

/// Runs a program to its end. One that does not end fails its test, and not the whole run.
pub(crate) fn to_its_end(command: &mut Command) -> Output {
    let (mut out, mut err) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
    let mut process =
        command.stdout(out.try_clone().unwrap()).stderr(err.try_clone().unwrap()).spawn().unwrap();
    let end = now_ns() + ENDS_WITHIN.as_nanos() as u64;
    let mut ended = process.try_wait().unwrap();
    while ended.is_none() && now_ns() < end {
        std::thread::sleep(Duration::from_millis(2));
        ended = process.try_wait().unwrap();
    }
    let in_time = ended.is_some();
    let status = ended.unwrap_or_else(|| {
        process.kill().unwrap();
        process.wait().unwrap()
    });
    let output = Output { status, stdout: all_of(&mut out), stderr: all_of(&mut err) };
    assert!(in_time, "{command:?} did not end within {ENDS_WITHIN:?}: {output:?}");
    output
}

fn all_of(file: &mut File) -> Vec<u8> {
    let mut bytes = Vec::new();
    file.rewind().unwrap();
    file.read_to_end(&mut bytes).unwrap();
    bytes
}

/// A terminal of that many columns: what is shown on it is read from the first, and the second is given to a program.
pub(crate) fn terminal(columns: u16) -> (File, File) {
    let screen = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&screen).unwrap();
    unlockpt(&screen).unwrap();
    tcsetwinsize(&screen, Winsize { ws_row: 40, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    let name = ptsname(&screen, Vec::new()).unwrap().into_string().unwrap();
    let terminal = File::options().read(true).write(true).open(name).unwrap();
    (File::from(screen), terminal)
}

/// Whether a process runs: it is there, and no zombie.
pub(crate) fn runs(pid: i32) -> bool {
    let stat = fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    String::from_utf8_lossy(&stat).rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// Sends a signal; a process that is gone does not matter.
pub(crate) fn send(pid: u32, signal: Signal) {
    let _ = kill(Pid::from_raw(pid as i32), signal);
}

/// The process ids that a test's child wrote, one a line.
pub(crate) fn pids_in(file: &Path) -> Vec<i32> {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.lines().filter_map(|line| line.trim().parse().ok()).collect()
}
