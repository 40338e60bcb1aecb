//! The example of a task queue, with real workers that are killed in the middle of their work.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::clock;
use leasehold_object::Bucket;
use leasehold_servers::{Program, wait_until};
use leasehold_store::Store;
use rustix::process::{Pid, Signal};

use crate::common::{BUCKET, fresh, server};
use crate::proxy::{Fault, Proxy};

const SHARDS: u32 = 8;
const TASKS: u32 = 240;
const WORKERS: usize = 4;
const TTL_MS: u32 = 6000;
/// How often an idle shard is looked at, so that a few seconds show a few rounds.
const IDLE_MS: u32 = 500;
/// How long anything may take that is sure to come.
const PATIENCE: Duration = Duration::from_secs(120);

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

/// A worker at a prefix where no worker ever was.
fn start(address: &str, name: &str, said: &Said) -> Worker {
    launch(address, name, said, |command| {
        command.env("NEW_NAMESPACE", "yes");
    })
}

fn launch(address: &str, name: &str, said: &Said, more: impl FnOnce(&mut Command)) -> Worker {
    let args = [address, "work", name, &SHARDS.to_string(), &TTL_MS.to_string(), &IDLE_MS.to_string()]
        .map(str::to_owned);
    let mut command = Command::new(program());
    more(command.args(args).env_remove("NEW_NAMESPACE").stdout(Stdio::piped()).stderr(Stdio::null()));
    let mut child = command.spawn().unwrap();
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

fn put(address: &str, tasks: u32) {
    let args = [address, "put", &tasks.to_string(), &SHARDS.to_string()].map(str::to_owned);
    assert!(Command::new(program()).args(args).status().unwrap().success());
}

/// Waits until so many tasks are done and none is left.
fn all_done(address: &str, tasks: u32) {
    let all = wait_until(PATIENCE, || counted(address) == format!("ready 0 done {tasks}"));
    assert!(all, "{}", counted(address));
}

/// How often each task was completed, by what workers said. More than once is wrong.
fn completed_once(said: &Said) -> usize {
    let mut times: BTreeMap<String, u32> = BTreeMap::new();
    for task in words(said, "done", leasehold::Moment::ZERO) {
        *times.entry(task).or_default() += 1;
    }
    assert!(times.values().all(|times| *times == 1), "completed more than once: {times:?}");
    times.len()
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
    put(&address, TASKS);
    let said = Said::default();
    let mut workers: Vec<Worker> = (0..WORKERS).map(|n| start(&address, &format!("w{n}"), &said)).collect();
    let began_at = clock::now();
    let done = |at_least: usize| {
        while words(&said, "done", began_at).len() < at_least {
            assert!(clock::now().since(began_at) < PATIENCE, "{}", counted(&address));
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
    all_done(&address, TASKS);
    let told = completed_once(&said);
    assert!(told + 2 * SHARDS as usize >= TASKS as usize, "only {told} were told");

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

#[test]
fn what_the_server_refused_without_having_it_is_written_again() {
    let Some(server) = server(Program::SeaweedFs) else { return };
    let tasks = 48;
    let proxy = Proxy::before(server.port());
    let through = server.address_at(&proxy.endpoint(), BUCKET, "&poll=1s");
    let through = through.replace("/leasehold?", &format!("/{}?", fresh("refused")));
    let refuse = |path, times| {
        for _ in 0..times {
            proxy.inject("PUT", path, Fault::Answered(409, "ConditionalRequestConflict"));
        }
    };
    refuse("/queue/ready/", 2);
    put(&through, tasks);
    assert_eq!(proxy.left(), 0, "the producer met the refusals");
    assert_eq!(counted(&through), format!("ready {tasks} done 0"));
    refuse("/queue/done/", tasks / 2);
    let said = Said::default();
    let _workers = ["w0", "w1"].map(|name| start(&through, name, &said));
    all_done(&through, tasks);
    assert_eq!(proxy.left(), 0, "the workers met the refusals");
    let told = || completed_once(&said) == tasks as usize;
    assert!(wait_until(PATIENCE, told), "{} of {tasks} were told", completed_once(&said));
}

#[tokio::test]
async fn a_worker_waits_for_former_holders_unless_it_is_told_that_there_were_none() {
    let Some(server) = server(Program::SeaweedFs) else { return };
    let address = server.address(BUCKET, "&poll=1s").replace("/leasehold?", &format!("/{}?", fresh("waits")));
    let store = Bucket::open(&address, "queue-workers").unwrap();
    let said = Said::default();
    let _worker = launch(&address, "w0", &said, |_| ());
    // The namespace is made some time after this.
    let mut made_after = clock::now();
    let (began_at, meta) = (made_after, "meta".parse().unwrap());
    while store.read(std::slice::from_ref(&meta)).await.unwrap().found[0].is_none() {
        made_after = clock::now();
        assert!(made_after.since(began_at) < PATIENCE, "the worker never joined");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(wait_until(PATIENCE, || !words(&said, "list", began_at).is_empty()), "it lists nothing");
    let listed_at = said.lock().unwrap().iter().find(|(_, line)| line.starts_with("list")).unwrap().0;
    let (waited, ttl) = (listed_at.since(made_after), Duration::from_millis(TTL_MS.into()));
    assert!(waited >= ttl, "it ran {waited:?} after the namespace was made");
}

#[test]
fn a_worker_that_is_asked_to_end_leaves_before_it_does() {
    let Some(server) = server(Program::SeaweedFs) else { return };
    let address = server.address(BUCKET, "&poll=1s").replace("/leasehold?", &format!("/{}?", fresh("ended")));
    for (name, signal) in [("w0", Signal::TERM), ("w1", Signal::INT)] {
        let (said, began_at) = (Said::default(), clock::now());
        let mut worker = start(&address, name, &said);
        assert!(wait_until(PATIENCE, || !words(&said, "list", began_at).is_empty()), "it lists nothing");
        rustix::process::kill_process(Pid::from_child(&worker.0), signal).unwrap();
        let mut ended = None;
        wait_until(PATIENCE, || {
            ended = worker.0.try_wait().unwrap();
            ended.is_some()
        });
        assert!(ended.is_some_and(|status| status.success()), "{name} was asked to end: {ended:?}");
    }
}
