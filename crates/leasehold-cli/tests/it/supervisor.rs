//! `leasehold run` in a folder of its own, and what its children noted.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::process::{LEASEHOLD, now_ns, runs, send, to_its_end, wait_for};

/// Long enough for a very busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(40);

/// A folder with a store, in which nodes run.
#[derive(Debug)]
pub(crate) struct Sandbox {
    folder: tempfile::TempDir,
}

/// A child that notes its processes and every 20 ms that it is alive, and ignores SIGTERM. One grandchild has a
/// session of its own and does the same.
pub(crate) const STUBBORN: &str = "trap '' TERM HUP INT; echo $$ >> pids.$LEASEHOLD_NODE; \
    setsid sh -c 'trap \"\" TERM HUP; echo $$ >> pids.$LEASEHOLD_NODE; while :; do read up rest < /proc/uptime; \
    echo $up >> beats.$LEASEHOLD_SHARD.$LEASEHOLD_EPOCH.$LEASEHOLD_NODE; sleep 0.02; done' & \
    while :; do read up rest < /proc/uptime; echo $up >> beats.$LEASEHOLD_SHARD.$LEASEHOLD_EPOCH.$LEASEHOLD_NODE; \
    sleep 0.02; done";

/// The same, but it ends when it is asked to.
pub(crate) const POLITE: &str = "echo $$ >> pids.$LEASEHOLD_NODE; while :; do read up rest < /proc/uptime; \
    echo $up >> beats.$LEASEHOLD_SHARD.$LEASEHOLD_EPOCH.$LEASEHOLD_NODE; sleep 0.02; done";

impl Sandbox {
    pub(crate) fn new() -> Sandbox {
        Sandbox { folder: tempfile::TempDir::new().unwrap() }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Any command of the program, to its end.
    pub(crate) fn leasehold(&self, arguments: &[&str]) -> Output {
        to_its_end(&mut self.command(arguments))
    }

    pub(crate) fn stdout(&self, arguments: &[&str]) -> String {
        String::from_utf8(self.leasehold(arguments).stdout).unwrap()
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(LEASEHOLD);
        command
            .args(arguments)
            .current_dir(self.path())
            .env("LEASEHOLD_STORE", "local:x.db")
            .env("HOME", self.path());
        command
    }

    /// Starts a node whose children run a shell script.
    pub(crate) fn run(&self, node: &str, flags: &[&str], script: &str) -> Supervisor {
        let log = self.path().join(format!("{node}.log"));
        let (out, err) =
            (File::create(self.path().join(format!("{node}.out"))).unwrap(), File::create(&log).unwrap());
        let mut arguments = vec!["run", "--node", node, "--group", "g", "--new-namespace"];
        arguments.extend(flags);
        arguments.extend(["--", "sh", "-c", script]);
        let process = self.command(&arguments).stdin(Stdio::null()).stdout(out).stderr(err).spawn().unwrap();
        Supervisor { process, log }
    }

    /// All processes that the children of a node noted.
    pub(crate) fn pids(&self, node: &str) -> Vec<i32> {
        crate::process::pids_in(&self.path().join(format!("pids.{node}")))
    }

    /// Who beat when: by shard, in the order of epochs, node with first and last beat in hundredths of a second.
    pub(crate) fn beats(&self) -> BTreeMap<String, Vec<Beats>> {
        let mut all: BTreeMap<String, Vec<Beats>> = BTreeMap::new();
        for entry in fs::read_dir(self.path()).unwrap().flatten() {
            let name = entry.file_name().into_string().unwrap();
            let parts: Vec<&str> = name.split('.').collect();
            let ["beats", shard, epoch, node] = parts[..] else { continue };
            let text = fs::read_to_string(entry.path()).unwrap();
            let at = |line: &str| line.replace('.', "").parse::<u64>().ok();
            let times: Vec<u64> = text.lines().filter_map(at).collect();
            let (Some(first), Some(last)) = (times.iter().min(), times.iter().max()) else { continue };
            let beats =
                Beats { epoch: epoch.parse().unwrap(), node: node.to_owned(), first: *first, last: *last };
            all.entry(shard.to_owned()).or_default().push(beats);
        }
        all.values_mut().for_each(|beats| beats.sort_by_key(|beats| beats.epoch));
        all
    }

    /// Panics if two children of one shard were ever alive at the same time.
    pub(crate) fn assert_no_overlap(&self) {
        for (shard, beats) in self.beats() {
            for pair in beats.windows(2) {
                assert!(
                    pair[0].last <= pair[1].first,
                    "shard {shard}: {:?} was alive when {:?} had started",
                    pair[0],
                    pair[1]
                );
            }
        }
    }

    /// Waits until that many shards beat under a node.
    pub(crate) fn wait_for_beats(&self, node: &str, shards: usize) {
        wait_for(&format!("{shards} shards beat on {node}"), PATIENCE, || {
            let beats = self.beats();
            let here =
                beats.values().filter(|beats| beats.last().is_some_and(|last| last.node == node)).count();
            (here >= shards).then_some(())
        });
    }
}

/// The life of one child, as it noted it itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Beats {
    pub(crate) epoch: u64,
    pub(crate) node: String,
    pub(crate) first: u64,
    pub(crate) last: u64,
}

/// A running `leasehold run`. Killed when it is dropped.
#[derive(Debug)]
pub(crate) struct Supervisor {
    process: Child,
    log: PathBuf,
}

impl Supervisor {
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        send(self.process.id(), signal);
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub(crate) fn wait_for_log(&self, text: &str) {
        wait_for(&format!("the log says {text:?}"), PATIENCE, || self.log().contains(text).then_some(()));
    }

    /// Asks once more, until that counts: what comes too soon after the first signal does not.
    pub(crate) fn hurry(&self) {
        wait_for("it hurries", PATIENCE, || {
            let hurries = self.log().contains("second signal: ");
            if !hurries {
                self.signal(Signal::SIGTERM);
            }
            hurries.then_some(())
        });
    }

    /// Waits for its end.
    pub(crate) fn end(&mut self) -> ExitStatus {
        wait_for("the supervisor ends", PATIENCE, || self.process.try_wait().unwrap())
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// When none of these processes ran any more.
pub(crate) fn gone_at(pids: &[i32]) -> u64 {
    wait_for("all processes end", PATIENCE, || (!pids.iter().any(|pid| runs(*pid))).then(now_ns))
}
