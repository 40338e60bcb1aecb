//! The example of a task queue, with real workers that are killed in the middle of their work.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::clock;
use leasehold_servers::Program;

use crate::common::{BUCKET, server};

const SHARDS: u32 = 8;
const TASKS: u32 = 240;
const WORKERS: usize = 4;
const TTL_MS: u32 = 6000;
/// How often an idle shard is looked at, so that a few seconds show a few rounds.
const IDLE_MS: u32 = 500;

/// What all workers said, with when they said it.
type Said = Arc<Mutex<Vec<(leasehold::Moment, String)>>>;

struct Worker(Child);

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The example, which cargo builds along with all tests, but not along with these alone.
fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let program = test.parent().and_then(|deps| deps.parent()).unwrap().join("examples/queue");
    if !program.exists() {
        let built = Command::new(env!("CARGO")).args(["build", "--example", "queue"]).status();
        assert!(built.is_ok_and(|status| status.success()) && program.exists(), "the example must be built");
    }
    program
}

fn start(address: &str, name: &str, said: &Said) -> Worker {
    let args = [address, "work", name, &SHARDS.to_string(), &TTL_MS.to_string(), &IDLE_MS.to_string()]
        .map(str::to_owned);
    let mut child =
        Command::new(program()).args(args).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let (lines, said) = (BufReader::new(child.stdout.take().unwrap()).lines(), said.clone());
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || {
            for line in lines.map_while(Result::ok) {
                said.lock().unwrap().push((clock::now(), line));
            }
        })
        .unwrap();
    Worker(child)
}

fn counted(address: &str) -> String {
    let output = Command::new(program()).args([address, "count", &SHARDS.to_string()]).output().unwrap();
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

fn words(said: &Said, first: &str, since: leasehold::Moment) -> Vec<String> {
    let said = said.lock().unwrap();
    let fits = said.iter().filter(|(at, _)| *at >= since);
    fits.filter_map(|(_, line)| line.strip_prefix(first)?.strip_prefix(' ')).map(str::to_owned).collect()
}

#[test]
fn no_task_is_lost_and_none_completed_twice_while_workers_are_killed() {
    let Some(server) = server(Program::SeaweedFs) else { return };
    let address = server.address(BUCKET, "&poll=1s");
    let put =
        Command::new(program()).args([&address, "put", &TASKS.to_string(), &SHARDS.to_string()]).status();
    assert!(put.unwrap().success());
    let said = Said::default();
    let mut workers: Vec<Worker> = (0..WORKERS).map(|n| start(&address, &format!("w{n}"), &said)).collect();
    let began_at = clock::now();
    let done = |at_least: usize| {
        while words(&said, "done", began_at).len() < at_least {
            assert!(clock::now().since(began_at) < Duration::from_secs(120), "{}", counted(&address));
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    // Killed in the middle of their work; what they had claimed is taken over with their shards.
    done(TASKS as usize / 6);
    drop(workers.remove(0));
    done(TASKS as usize / 4);
    drop(workers.remove(0));
    workers.push(start(&address, "late", &said));
    // A completion may have been made by a worker that was killed before it could say so.
    while counted(&address) != format!("ready 0 done {TASKS}") {
        assert!(clock::now().since(began_at) < Duration::from_secs(120), "{}", counted(&address));
        std::thread::sleep(Duration::from_millis(200));
    }
    let mut times: BTreeMap<String, u32> = BTreeMap::new();
    for task in words(&said, "done", began_at) {
        *times.entry(task).or_default() += 1;
    }
    assert!(times.values().all(|times| *times == 1), "completed more than once: {times:?}");
    assert!(times.len() + 2 * SHARDS as usize >= TASKS as usize, "only {} were told", times.len());

    // At rest every shard is listed by its holder alone, twice a second.
    std::thread::sleep(Duration::from_secs(3));
    let (from, span_s) = (clock::now(), 6);
    std::thread::sleep(Duration::from_secs(span_s));
    let lists = words(&said, "list", from);
    let rounds = 2 * span_s as usize;
    let (own, naive) = (SHARDS as usize * rounds, SHARDS as usize * rounds * workers.len());
    println!(
        "{TASKS} tasks in {:.1?} with 2 of {WORKERS} workers killed; at rest {} listings in {rounds} rounds of {SHARDS} \
         shards ({naive} if each of {} workers listed all)",
        from.since(began_at),
        lists.len(),
        workers.len()
    );
    // A shard that has just moved is listed faster for a while.
    assert!(lists.len() <= own + own / 2, "{} listings, about {own} expected", lists.len());
    assert!(lists.len() >= own / 2, "{} listings, about {own} expected", lists.len());
}

#[test]
fn tasks_that_are_put_later_are_others_and_wrong_numbers_are_told() {
    let Some(server) = server(Program::SeaweedFs) else { return };
    let address = server.address(BUCKET, "").replace("/leasehold?", "/leasehold-twice?");
    let put = |tasks: &str, shards: &str| {
        Command::new(program()).args([&address, "put", tasks, shards]).output().unwrap()
    };
    assert!(put("3", "2").status.success() && put("3", "2").status.success());
    assert_eq!(counted(&address), "ready 6 done 0");
    for (tasks, shards, what) in [("5", "0", "SHARDS"), ("x", "2", "TASKS")] {
        let told = String::from_utf8_lossy(&put(tasks, shards).stderr).into_owned();
        assert!(told.contains(what) && !told.contains("panicked"), "{told}");
    }
}
