//! The guard process by itself: what it kills, and when.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::process::{LEASEHOLD, now_ns, pids_in, runs, send, wait_for};

pub(crate) const MS: u64 = 1_000_000;

/// A guard over a shell script. The script writes the ids of its processes into `pids`.
pub(crate) struct Guard {
    pub(crate) folder: tempfile::TempDir,
    control: Option<UnixStream>,
    pub(crate) process: Child,
    pub(crate) kill_at: u64,
    pub(crate) valid_until: u64,
}

impl Guard {
    fn over(script: &str, kill_after_ms: u64, budget_ms: u64) -> Guard {
        Guard::like("off", script, kill_after_ms, budget_ms)
    }

    /// A guard with a certain kind of isolation.
    pub(crate) fn like(isolation: &str, script: &str, kill_after_ms: u64, budget_ms: u64) -> Guard {
        let folder = tempfile::TempDir::new().unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let kill_at = now_ns() + kill_after_ms * MS;
        let valid_until = kill_at + budget_ms * MS;
        let process = Command::new(LEASEHOLD)
            .args(["guard", &kill_at.to_string(), &valid_until.to_string(), "null", isolation, "--"])
            .args(["sh", "-c", script])
            .current_dir(folder.path())
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Guard { folder, control: Some(ours), process, kill_at, valid_until }
    }

    fn pids(&self) -> PathBuf {
        self.folder.path().join("pids")
    }

    pub(crate) fn order(&mut self, order: &str) {
        self.control.as_mut().unwrap().write_all(order.as_bytes()).unwrap();
    }

    /// Waits for that many processes below the guard.
    fn wait_for_pids(&self, count: usize) -> Vec<i32> {
        let file = self.pids();
        wait_for("the processes start", Duration::from_secs(20), || {
            Some(pids_in(&file)).filter(|pids| pids.len() >= count)
        })
    }

    /// When none of the processes ran any more.
    pub(crate) fn gone_at(&self, pids: &[i32]) -> u64 {
        wait_for("everything dies", Duration::from_secs(20), || {
            (!pids.iter().any(|pid| runs(*pid))).then(now_ns)
        })
    }

    /// Waits for their end, which must lie between `kill_at` and the end of the lease.
    pub(crate) fn assert_in_time(&self, pids: &[i32]) {
        let late_by = self.gone_at(pids) as i64 - self.kill_at as i64;
        let most = self.valid_until as i64 - self.kill_at as i64;
        assert!((0..=most).contains(&late_by), "{late_by} ns after kill_at, of {most} ns");
    }

    pub(crate) fn reports(mut self) -> Vec<String> {
        let control = self.control.take().unwrap();
        let lines = BufReader::new(control).lines().map_while(Result::ok).collect();
        let _ = self.process.wait();
        lines
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.control.take();
        send(self.process.id(), Signal::SIGCONT);
        // A guard that does its duty ends by itself; a broken one must not hold up the tests.
        for _ in 0..500 {
            if !matches!(self.process.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A shell that ignores SIGTERM, with a child, a grandchild in a session of its own, and an orphan in a session of its own.
pub(crate) const FAMILY: &str = "trap '' TERM HUP; echo $$ >> pids; sleep 1000 & echo $! >> pids; \
     setsid sh -c 'trap \"\" TERM HUP; echo $$ >> pids; sleep 1000 & echo $! >> pids; wait' & \
     (setsid sh -c 'echo $$ >> pids; exec sleep 1000' &) ; while :; do sleep 1000; done";
pub(crate) const FAMILY_SIZE: usize = 5;

#[test]
fn everything_is_dead_by_the_end_of_a_lease_that_nobody_renews() {
    let guard = Guard::over(FAMILY, 1500, 250);
    let pids = guard.wait_for_pids(FAMILY_SIZE);
    assert!(pids.iter().all(|pid| runs(*pid)), "nothing dies early");
    let gone_at = guard.gone_at(&pids);
    assert!(gone_at >= guard.kill_at, "killed {} ms before its time", (guard.kill_at - gone_at) / MS);
    assert!(gone_at <= guard.valid_until, "outlived its lease by {} ms", (gone_at - guard.valid_until) / MS);
    let reports = guard.reports();
    assert!(reports.contains(&"killing the lease ended".to_owned()), "{reports:?}");
    assert_eq!(reports.last().map(String::as_str), Some("gone"));
}

/// The kernel cuts a process's name at 15 bytes, also in the middle of a letter.
#[test]
fn a_process_whose_name_is_no_text_dies_with_the_others() {
    let script = "name=$(printf 'reconciler-wrk\\303\\251'); cp \"$(command -v sleep)\" \"$name\"; trap '' TERM; \
        echo $$ >> pids; setsid \"./$name\" 1000 & echo $! >> pids; while :; do sleep 1000; done";
    let mut guard = Guard::over(script, 60_000, 250);
    let pids = guard.wait_for_pids(2);
    let name = || std::fs::read(format!("/proc/{}/comm", pids[1])).unwrap();
    wait_for("it has its name", Duration::from_secs(20), || {
        (name() == b"reconciler-wrk\xc3\n").then_some(())
    });
    guard.order("kill\n");
    assert_eq!(guard.reports().last().map(String::as_str), Some("gone"));
    assert!(!pids.iter().any(|pid| runs(*pid)), "nothing is left when the guard says so");
}

/// A guard that has no descriptors left sees nobody, which does not mean that nobody is there.
#[test]
fn a_guard_that_cannot_look_does_not_say_that_all_are_gone() {
    use rustix::process::{Pid, Resource, Rlimit, prlimit};
    let mut guard = Guard::over(FAMILY, 60_000, 250);
    let pids = guard.wait_for_pids(FAMILY_SIZE);
    let pid = Pid::from_raw(guard.process.id() as i32);
    let limit = |current| {
        prlimit(pid, Resource::Nofile, Rlimit { current: Some(current), maximum: Some(1024) }).unwrap();
    };
    limit(3);
    guard.order("kill\n");
    wait_for("the command dies", Duration::from_secs(20), || (!runs(pids[0])).then_some(()));
    limit(1024);
    assert_eq!(guard.reports().last().map(String::as_str), Some("gone"));
    assert!(!pids.iter().any(|pid| runs(*pid)), "nothing is left when the guard says so");
}

#[test]
fn a_renewed_lease_lets_the_child_live_and_a_late_renewal_does_not() {
    let mut guard = Guard::over(FAMILY, 1500, 250);
    let pids = guard.wait_for_pids(FAMILY_SIZE);
    let (kill_at, valid_until) = (guard.kill_at + 1000 * MS, guard.valid_until + 1000 * MS);
    guard.order(&format!("extend {kill_at} {valid_until}\n"));
    std::thread::sleep(Duration::from_nanos((guard.valid_until + 100 * MS).saturating_sub(now_ns())));
    assert!(pids.iter().all(|pid| runs(*pid)), "the renewal counts");
    // An earlier deadline that arrives late moves nothing back; the end comes at the newest one.
    guard.order(&format!("extend {} {}\n", guard.kill_at, guard.valid_until));
    let gone_at = guard.gone_at(&pids);
    assert!(
        (kill_at..=valid_until).contains(&gone_at),
        "{} ms off",
        (gone_at as i64 - kill_at as i64) / MS as i64
    );
}

#[test]
fn a_supervisor_that_is_gone_ends_everything_at_once() {
    let mut guard = Guard::over(FAMILY, 60_000, 250);
    let pids = guard.wait_for_pids(FAMILY_SIZE);
    let closed_at = now_ns();
    guard.control.take();
    let gone_at = guard.gone_at(&pids);
    assert!(
        gone_at - closed_at < 15_000 * MS,
        "not at the end of the lease: took {} ms",
        (gone_at - closed_at) / MS
    );
}

#[test]
fn a_guard_that_is_stopped_dies_with_its_child_before_the_lease_ends() {
    let guard = Guard::over("echo $$ >> pids; exec sleep 1000", 1500, 500);
    let pids = guard.wait_for_pids(1);
    send(guard.process.id(), Signal::SIGSTOP);
    guard.assert_in_time(&pids);
}

#[test]
fn a_guard_that_is_killed_takes_its_child_with_it() {
    let guard = Guard::over("echo $$ >> pids; exec sleep 1000", 60_000, 250);
    let pids = guard.wait_for_pids(1);
    let killed_at = now_ns();
    send(guard.process.id(), Signal::SIGKILL);
    assert!(guard.gone_at(&pids) - killed_at < 1000 * MS);
}

#[test]
fn signals_that_people_send_to_groups_do_not_reach_the_guard() {
    let guard = Guard::over("echo $$ >> pids; exec sleep 1000", 60_000, 250);
    let pids = guard.wait_for_pids(1);
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGTSTP, Signal::SIGQUIT] {
        send(guard.process.id(), signal);
    }
    std::thread::sleep(Duration::from_millis(200));
    assert!(runs(guard.process.id() as i32) && runs(pids[0]));
}

#[test]
fn a_child_that_is_asked_to_end_may_do_so_in_peace() {
    let mut guard = Guard::over(
        "trap 'sleep 0.2; echo x > polite; exit 3' TERM; echo $$ >> pids; while :; do sleep 0.05; done",
        60_000,
        250,
    );
    guard.wait_for_pids(1);
    guard.order(&format!("terminate {}\n", now_ns() + 10_000 * MS));
    let polite = guard.folder.path().join("polite");
    wait_for("it says goodbye", Duration::from_secs(10), || polite.exists().then_some(()));
    assert_eq!(guard.reports()[1..], ["exited 3".to_owned(), "gone".to_owned()]);
}

#[test]
fn a_child_that_does_not_end_when_asked_is_killed_with_all_that_it_started() {
    let mut guard = Guard::over(FAMILY, 60_000, 250);
    let pids = guard.wait_for_pids(FAMILY_SIZE);
    let kill_at = now_ns() + 500 * MS;
    guard.order(&format!("terminate {kill_at}\n"));
    let gone_at = guard.gone_at(&pids);
    assert!(gone_at >= kill_at && gone_at < kill_at + 500 * MS, "{}", gone_at as i64 - kill_at as i64);
    assert!(guard.reports().contains(&"killing it did not exit in time".to_owned()));
}

#[test]
fn what_a_child_leaves_behind_ends_with_it() {
    let guard = Guard::over(
        "(setsid sh -c 'echo $$ >> pids; exec sleep 1000' &); while [ ! -s pids ]; do sleep 0.02; done",
        60_000,
        250,
    );
    let pids = guard.wait_for_pids(1);
    guard.gone_at(&pids);
    assert_eq!(guard.reports()[1..], ["exited 0".to_owned(), "gone".to_owned()]);
}

#[test]
fn many_processes_that_keep_multiplying_are_all_caught() {
    let script = "echo $$ >> pids; f() { while :; do (setsid sh -c 'echo $$ >> pids; exec sleep 1000' &); sleep 0.01; done; }; f & f & wait";
    let guard = Guard::over(script, 1200, 300);
    guard.wait_for_pids(10);
    let file = guard.pids();
    wait_for("the guard ends", Duration::from_secs(20), || (now_ns() > guard.valid_until).then_some(()));
    let left: Vec<i32> = pids_in(Path::new(&file)).into_iter().filter(|pid| runs(*pid)).collect();
    assert!(left.is_empty(), "{left:?} outlived the lease");
}

#[test]
fn a_lease_that_has_ended_starts_nothing() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut process = Command::new(LEASEHOLD)
        .args(["guard", "1", "2", "null", "off", "--", "touch", "/tmp/leasehold-must-not-be-there"])
        .stdin(OwnedFd::from(theirs))
        .spawn()
        .unwrap();
    let reports: Vec<String> = BufReader::new(ours).lines().map_while(Result::ok).collect();
    let _ = process.wait();
    assert!(!reports.iter().any(|report| report.starts_with("started")), "{reports:?}");
    assert!(!Path::new("/tmp/leasehold-must-not-be-there").exists());
}
