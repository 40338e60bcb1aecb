//! Other processes: this test binary again, told by its environment what to do.

use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use leasehold_core::SessionId;
use leasehold_local::Local;
use leasehold_store::{Lane, Store, StoreExt, Swapped};
use rustix::process::{Pid, Signal, kill_process};

use crate::common::*;

const ROLE: &str = "LEASEHOLD_LOCAL_TEST_ROLE";
const FILE: &str = "LEASEHOLD_LOCAL_TEST_FILE";

/// Another process, killed in the end.
pub(crate) struct Process {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

/// A command that runs this binary in a role, on a store's file.
pub(crate) fn command(role: &str, file: &Path) -> Command {
    command_of(&std::env::current_exe().expect("this binary"), role, file)
}

/// The same, with a copy of this binary.
pub(crate) fn command_of(program: &Path, role: &str, file: &Path) -> Command {
    let mut command = Command::new(program);
    command.args(["--exact", "child::entry", "--nocapture", "--quiet"]);
    set(&mut command, role, file);
    command
}

/// Tells a command that will run this binary its role.
pub(crate) fn set(command: &mut Command, role: &str, file: &Path) {
    command.env(ROLE, role).env(FILE, file);
}

impl Process {
    pub(crate) fn start(role: &str, file: &Path) -> Self {
        Process::spawn(command(role, file))
    }

    pub(crate) fn spawn(mut command: Command) -> Self {
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("the other process starts");
        let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        Process { child, lines }
    }

    /// The next line that it says, without what the test harness prints; `None` at its end.
    pub(crate) fn says(&mut self) -> Option<String> {
        let said = self.lines.by_ref().map_while(Result::ok);
        said.filter_map(|line| line.split_once("says ").map(|(_, word)| word.to_owned())).next()
    }

    /// Waits until it says this.
    pub(crate) fn expect(&mut self, word: &str) {
        assert_eq!(self.says().as_deref(), Some(word));
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).expect("the signal is sent");
    }

    /// Waits for a good end.
    pub(crate) fn ends_well(mut self) {
        while self.says().is_some() {}
        let status = self.child.wait().expect("it ends");
        assert!(status.success(), "{status}");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn say(word: impl std::fmt::Display) {
    // One write for the whole line, past the harness.
    let line = format!("says {word}\n");
    let _ = std::io::stdout().lock().write_all(line.as_bytes());
    let _ = std::io::stdout().lock().flush();
}

/// Where the other processes begin. In an ordinary run it has nothing to do.
#[test]
fn entry() {
    let (Ok(role), Some(file)) = (std::env::var(ROLE), std::env::var_os(FILE)) else { return };
    let file = Path::new(&file);
    let (role, rest) = role.split_once(' ').unwrap_or((&role, ""));
    match role {
        "count" => run(count(file, rest.parse().expect("a number"))),
        "put" => run(put_one(file, rest)),
        "claim" => run(claim(file, rest)),
        "write" => run(write_for_ever(file)),
        "open" => match Local::open(file, "test") {
            Ok(_) => say("opened"),
            Err(error) => say(format_args!("{:?} {error}", error.kind)),
        },
        "small" => run(crate::sandbox::write_on(file)),
        "full" => run(crate::sandbox::fill_the_disk(file)),
        "remount" => run(crate::sandbox::remount(file)),
        other => panic!("no role {other}"),
    }
}

/// Adds one to a counter, that many times, against other processes that do the same.
async fn count(file: &Path, times: u32) {
    let store = Local::open(file, "test").expect("it opens");
    let mut added = 0;
    while added < times {
        let found = read(&store, "control").await;
        let number: u64 = found
            .as_ref()
            .map_or(0, |found| String::from_utf8_lossy(&found.value).parse().expect("a number"));
        let next = (number + 1).to_string();
        let expect = found.map(|found| found.version);
        let reply = store.swap(Lane::Work, &[put("control", expect.as_ref(), next.as_bytes())]).await;
        // A busy store is tried again; any other error would be one of unknown outcome, and fail the count.
        match reply.map(|mut reply| reply.outcomes.remove(0)) {
            Ok(Swapped::Applied(_)) => added += 1,
            Ok(Swapped::Lost(_)) => {}
            Err(error) if error.kind == leasehold_store::StoreErrorKind::Busy => {}
            other => panic!("{other:?}"),
        }
    }
}

async fn put_one(file: &Path, value: &str) {
    let store = Local::open(file, "test").expect("it opens");
    applied(&store, put("control", None, value.as_bytes())).await;
    say("written");
}

/// Lives as a session, alone or with a child that outlives it.
async fn claim(file: &Path, how: &str) {
    let store = Local::open(file, "test").expect("it opens");
    let session = SessionId::from_bits(u128::from(std::process::id()));
    store.claim_session(session).await.expect("it is claimed");
    let record = format!(r#"{{"session":"{session}","state":"active"}}"#);
    applied(&store, put("nodes/other", None, record.as_bytes())).await;
    if how == "with a child" {
        #[expect(clippy::zombie_processes, reason = "it is to outlive this process")]
        let child = Command::new("sleep").arg("50").stdout(Stdio::null()).spawn().expect("a child");
        say(child.id());
    } else {
        say("ready");
    }
    tokio::time::sleep(Duration::from_secs(50)).await;
}

/// Writes numbered records and says each number once it was acknowledged.
async fn write_for_ever(file: &Path) {
    let store = Local::open(file, "test").expect("it opens");
    let from = store.list().await.expect("listed").entries.len();
    for number in from.. {
        let swaps: Vec<_> = (0..3).map(|part| put(&format!("shards/{part}/{number}"), None, b"x")).collect();
        match store.swap(Lane::Work, &swaps).await {
            Ok(reply) if reply.outcomes.iter().all(|one| matches!(one, Swapped::Applied(_))) => say(number),
            // A killed writer may have left a write that nobody acknowledged.
            Ok(_) => {}
            Err(error) => panic!("{error}"),
        }
    }
}
