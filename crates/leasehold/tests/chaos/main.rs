//! Three real processes share shards through a file while they are killed, stopped, continued and locked out at
//! random. Judged by what the *workers* did: each writes down, on the boot clock, when it ran (`docs/check.md`).
//!
//! `CHAOS_SEED=7 CHAOS_SECONDS=600 cargo test -p leasehold --test chaos -- --nocapture` runs another or a longer one.

mod worker;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use leasehold::clock;
use leasehold_chaos::history::History;
use leasehold_chaos::judge;
use leasehold_chaos::measure::{Gaps, Spans};
use leasehold_chaos::process::NodeProcess;
use leasehold_chaos::record::{Recorder, Who};
use leasehold_chaos::rng::Rng;
use leasehold_core::{Config, Moment};

const GROUP: &str = "work";
const SHARDS: u32 = 24;
const TTL: Duration = Duration::from_secs(2);

struct Worker {
    name: String,
    life: u32,
    process: Option<NodeProcess>,
}

impl Worker {
    fn start(&mut self, folder: &Path) {
        self.life += 1;
        let mut command = Command::new(std::env::current_exe().expect("this test has a file"));
        command
            .args(["worker_process", "--exact", "--nocapture", "--test-threads=1"])
            .env("CHAOS_FOLDER", folder)
            .env("CHAOS_NODE", &self.name)
            .env("CHAOS_LIFE", self.life.to_string())
            .stdout(Stdio::null());
        self.process = Some(NodeProcess::start(command, "").expect("a worker process starts"));
    }

    fn who(&self) -> Who {
        worker::who(&self.name, self.life)
    }

    fn is_paused(&self) -> bool {
        self.process.as_ref().is_some_and(NodeProcess::is_paused)
    }

    fn kill(&mut self, recorder: &Recorder) {
        if let Some(mut process) = self.process.take() {
            let at = process.kill().expect("our own child can be killed");
            note(recorder, &self.who(), "gone", at);
        }
    }

    fn pause(&mut self, recorder: &Recorder) {
        let who = self.who();
        if let Some(process) = &mut self.process {
            note(recorder, &who, "paused", process.pause().expect("our own child can be stopped"));
        }
    }

    fn resume(&mut self, recorder: &Recorder) {
        let who = self.who();
        if let Some(process) = &mut self.process {
            note(recorder, &who, "resumed", process.resume().expect("our own child can be continued"));
        }
    }

    /// Asks it to leave, and waits until it has.
    fn leave(&mut self, recorder: &Recorder) {
        if self.is_paused() {
            self.resume(recorder);
        }
        if let Some(mut process) = self.process.take() {
            process.terminate().expect("our own child can be signalled");
            while process.ended().is_none() {
                std::thread::sleep(Duration::from_millis(5));
            }
            note(recorder, &self.who(), "gone", clock::now());
        }
    }
}

fn note(recorder: &Recorder, who: &Who, event: &str, at: Moment) {
    recorder.note_of(who, event, at, serde_json::json!({})).expect("the log can be written");
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
    let harness = Who { node: "harness".into(), session: String::new() };
    let recorder = Recorder::open(&folder.path().join("harness.jsonl"), harness).expect("a log");
    let mut workers: Vec<Worker> = ["a", "b", "c"]
        .map(|name| Worker { name: name.into(), life: 0, process: None })
        .into_iter()
        .collect();
    for worker in &mut workers {
        worker.start(folder.path());
    }
    let calm_before = wait_until_all_run(folder.path(), Duration::from_secs(20));
    println!("all {SHARDS} shards run after {calm_before:?}; {seconds} s of trouble with seed {seed}");

    let mut rng = Rng::of(seed);
    let mut did = std::collections::BTreeMap::<&str, u32>::new();
    let trouble_ends_at = clock::now() + Duration::from_secs(seconds);
    while clock::now() < trouble_ends_at {
        let index = rng.roll(3) as usize;
        let what = trouble(&mut workers[index], &mut rng, folder.path(), &recorder);
        *did.entry(what).or_default() += 1;
        std::thread::sleep(Duration::from_millis(100 + rng.roll(1500)));
    }
    for worker in &mut workers {
        if worker.is_paused() {
            worker.resume(&recorder);
        }
        if worker.process.is_none() {
            worker.start(folder.path());
        }
    }
    let healed_at = clock::now();
    let bound = stated_bound();
    wait_until_all_run(folder.path(), bound + Duration::from_secs(5));
    for worker in &mut workers {
        worker.leave(&recorder);
    }

    let history = read(folder.path());
    println!("{did:?}");
    println!("{}", summary(&history));
    assert!(history.problems.is_empty(), "{:?} (seed {seed})", history.problems);
    let broken: Vec<String> = judge::judge(&history).iter().map(ToString::to_string).collect();
    assert!(broken.is_empty(), "promises were broken (seed {seed}):\n{}", broken.join("\n"));
    assert!(history.runs.len() > SHARDS as usize, "nothing was ever moved, so nothing was shown");
    let shards = (0..SHARDS).map(|slot| format!("{GROUP}/{slot}"));
    let healed_after = judge::every_shard_owned(&history, shards, healed_at.as_nanos(), bound);
    println!("healed after {healed_after:?} (stated bound {bound:?})");
    assert!(healed_after.is_ok(), "full ownership came back too late (seed {seed})");
}

/// What all processes have written down so far.
fn read(folder: &Path) -> History {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the folder is there").flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|ending| ending == "jsonl") {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            files.push((name, std::fs::read_to_string(&path).expect("a log can be read")));
        }
    }
    History::read(files.iter().map(|(name, text)| (name.as_str(), text.as_str())))
}

fn summary(history: &History) -> String {
    let gaps = Gaps::of(history, |_, _| true);
    let told = |what: &str, spans: &Spans| {
        format!(
            "{what}: {} times, median {:?}, longest {:?}",
            spans.all().len(),
            spans.at(500),
            spans.at(1000)
        )
    };
    let lines = [
        format!("{} starts of {} shards", history.runs.len(), history.shards()),
        told("planned moves", &gaps.moved),
        told("after a lost session", &gaps.detached),
        told("after a kill", &gaps.killed),
    ];
    lines.join("\n")
}

/// How long after the last trouble every shard must run again.
fn stated_bound() -> Duration {
    let facts = worker::facts();
    let config = Config::with_ttl("a".parse().expect("a name"), TTL);
    let explained = config.explain(&facts);
    // A restarted process first waits for its former session; then the worst case of an unowned shard counts.
    explained.failover_worst + explained.recovery_worst + explained.unowned_worst
}

fn trouble(worker: &mut Worker, rng: &mut Rng, folder: &Path, recorder: &Recorder) -> &'static str {
    if worker.process.is_none() {
        worker.start(folder);
        return "started again";
    }
    if worker.is_paused() {
        worker.resume(recorder);
        return "continued";
    }
    match rng.roll(6) {
        0 | 1 => {
            worker.kill(recorder);
            "killed"
        }
        2 => {
            worker.leave(recorder);
            "asked to leave"
        }
        3 | 4 => {
            worker.pause(recorder);
            "stopped"
        }
        _ => {
            lock_the_store(folder, Duration::from_millis(200 + rng.roll(3000)));
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
        let runs = read(folder).runs;
        let mut running: Vec<&str> = runs
            .iter()
            .filter(|run| run.ran_at(clock::now().as_nanos()))
            .map(|run| run.shard.as_str())
            .collect();
        running.sort_unstable();
        running.dedup();
        let running = running.len();
        if running == SHARDS as usize {
            return waited;
        }
        assert!(waited < at_most, "only {running} of {SHARDS} shards run after {waited:?}");
    }
}
