//! Three real processes share shards through a file while they are killed, stopped, continued and locked out at
//! random. Judged by what the *workers* did: each logs, on the boot clock, when it ran.
//!
//! `CHAOS_SEED=7 CHAOS_SECONDS=600 cargo test -p leasehold --test chaos -- --nocapture` runs another or a longer one.

mod history;
mod worker;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use leasehold::clock;
use leasehold_core::Config;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use history::History;

const SHARDS: u32 = 24;
const TTL: Duration = Duration::from_secs(2);

/// A stream of choices decided by its seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % sides
    }
}

struct Worker {
    name: String,
    life: u32,
    child: Option<Child>,
    stopped: bool,
}

impl Worker {
    fn start(&mut self, folder: &Path) {
        self.life += 1;
        let child = Command::new(std::env::current_exe().expect("this test has a file"))
            .args(["worker_process", "--exact", "--nocapture", "--test-threads=1"])
            .env("CHAOS_FOLDER", folder)
            .env("CHAOS_NODE", &self.name)
            .env("CHAOS_LIFE", self.life.to_string())
            .stdout(Stdio::null())
            .spawn()
            .expect("a worker process starts");
        self.child = Some(child);
        self.stopped = false;
    }

    fn signal(&self, signal: Signal) {
        if let Some(child) = &self.child {
            kill(Pid::from_raw(child.id() as i32), signal).expect("our own child can be signalled");
        }
    }

    fn end(&mut self, signal: Signal) {
        self.signal(Signal::SIGCONT);
        self.signal(signal);
        if let Some(mut child) = self.child.take() {
            child.wait().expect("our own child can be waited for");
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.end(Signal::SIGKILL);
    }
}

/// The worker's side, in a process of its own. Without the parent's environment it has nothing to do.
#[test]
fn worker_process() {
    if let Ok(folder) = std::env::var("CHAOS_FOLDER") {
        worker::run(&PathBuf::from(folder));
    }
}

#[test]
fn no_two_workers_ever_run_the_same_shard() {
    let seconds: u64 =
        std::env::var("CHAOS_SECONDS").map_or(60, |text| text.parse().expect("a number of seconds"));
    let seed: u64 = std::env::var("CHAOS_SEED").map_or(1, |text| text.parse().expect("a seed"));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut workers: Vec<Worker> = ["a", "b", "c"]
        .map(|name| Worker { name: name.into(), life: 0, child: None, stopped: false })
        .into_iter()
        .collect();
    for worker in &mut workers {
        worker.start(folder.path());
    }
    let calm_before = wait_until_all_run(folder.path(), Duration::from_secs(20));
    println!("all {SHARDS} shards run after {calm_before:?}; {seconds} s of trouble with seed {seed}");

    let mut dice = Dice(seed);
    let mut did = std::collections::BTreeMap::<&str, u32>::new();
    let trouble_ends_at = clock::now() + Duration::from_secs(seconds);
    while clock::now() < trouble_ends_at {
        let index = dice.roll(3) as usize;
        let what = trouble(&mut workers[index], &mut dice, folder.path());
        *did.entry(what).or_default() += 1;
        std::thread::sleep(Duration::from_millis(100 + dice.roll(1500)));
    }
    for worker in &mut workers {
        if worker.stopped {
            worker.signal(Signal::SIGCONT);
        }
        if worker.child.is_none() {
            worker.start(folder.path());
        }
    }
    let healed_at = clock::now();
    let bound = stated_bound();
    let healed_after = wait_until_all_run(folder.path(), bound + Duration::from_secs(5));
    println!("healed after {healed_after:?} (stated bound {bound:?})");
    for worker in &mut workers {
        worker.end(Signal::SIGTERM);
    }

    let history = History::read(folder.path());
    println!("{did:?}");
    println!("{}", history.summary());
    let overlaps = history.overlaps();
    assert!(overlaps.is_empty(), "two workers ran one shard at once (seed {seed}):\n{}", overlaps.join("\n"));
    let epochs = history.epochs_that_did_not_rise();
    assert!(epochs.is_empty(), "epochs did not rise (seed {seed}):\n{}", epochs.join("\n"));
    assert!(history.starts() > SHARDS as usize, "nothing was ever moved, so nothing was shown");
    assert!(
        healed_after <= bound,
        "full ownership came back after {healed_after:?}, bound {bound:?} (seed {seed})"
    );
    let _ = healed_at;
}

/// How long after the last trouble every shard must run again.
fn stated_bound() -> Duration {
    let facts = worker::facts();
    let config = Config::with_ttl("a".parse().expect("a name"), TTL);
    let explained = config.explain(&facts);
    // A restarted process first waits for its former session; then the worst case of an unowned shard counts.
    explained.failover_worst + explained.recovery_worst + explained.unowned_worst
}

fn trouble(worker: &mut Worker, dice: &mut Dice, folder: &Path) -> &'static str {
    if worker.child.is_none() {
        worker.start(folder);
        return "started again";
    }
    if worker.stopped {
        worker.signal(Signal::SIGCONT);
        worker.stopped = false;
        return "continued";
    }
    match dice.roll(6) {
        0 | 1 => {
            worker.end(Signal::SIGKILL);
            "killed"
        }
        2 => {
            worker.end(Signal::SIGTERM);
            "asked to leave"
        }
        3 | 4 => {
            worker.signal(Signal::SIGSTOP);
            worker.stopped = true;
            "stopped"
        }
        _ => {
            lock_the_store(folder, Duration::from_millis(200 + dice.roll(3000)));
            "locked the store"
        }
    }
}

/// Holds the database's write lock, as a careless shell session would.
fn lock_the_store(folder: &Path, span: Duration) {
    let database = rusqlite::Connection::open(worker::database(folder)).expect("the database opens");
    database.busy_timeout(Duration::from_secs(5)).expect("a timeout can be set");
    if database.execute_batch("BEGIN IMMEDIATE").is_ok() {
        std::thread::sleep(span);
        database.execute_batch("ROLLBACK").expect("a lock can be given back");
    }
}

/// Waits until every shard has been running for a moment, and says how long that took.
fn wait_until_all_run(folder: &Path, at_most: Duration) -> Duration {
    let began_at = clock::now();
    loop {
        std::thread::sleep(Duration::from_millis(50));
        let waited = clock::now().since(began_at);
        let running = History::read(folder).running_after(began_at);
        if running == SHARDS as usize {
            return waited;
        }
        assert!(waited < at_most, "only {running} of {SHARDS} shards run after {waited:?}");
    }
}
