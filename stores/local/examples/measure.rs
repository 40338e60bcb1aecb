//! Measures the local store on this machine's disk:
//!
//! ```sh
//! cargo run --release -p leasehold-local --example measure [folder]
//! ```

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use leasehold_core::SessionId;
use leasehold_local::Local;
use leasehold_store::{Lane, Store, StoreExt, Swap, Swapped, Version, Watch, WatchEvent};
use rustix::time::{ClockId, clock_gettime};

/// Set in the other processes that this one starts.
const ROLE: &str = "LEASEHOLD_MEASURE_ROLE";
const RECORD_BYTES: usize = 400;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let folder = std::env::args().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let file = folder.join(format!("leasehold-measure-{}.db", std::process::id()));
    match std::env::var(ROLE).as_deref() {
        Ok("write") => return write(&folder).await,
        Ok("live") => return live(&folder).await,
        _ => {}
    }
    println!("file {}, records of {RECORD_BYTES} bytes", file.display());
    swaps(&file).await;
    lists(&file).await;
    watches(&file).await;
    deaths(&file).await;
    idles(&file).await;
    for suffix in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{suffix}", file.display()));
    }
    let _ = std::fs::remove_dir_all(format!("{}-live", file.display()));
}

async fn swaps(file: &Path) {
    let store = Local::open(file, "swaps").expect("it opens");
    let mut version = None;
    let mut times = Vec::new();
    for _ in 0..2_000 {
        let since = now();
        version = Some(swap(&store, put("nodes/n", version.as_ref())).await);
        times.push(now() - since);
    }
    report("swap of one record", times);
    let mut times = Vec::new();
    for round in 0..100 {
        let swaps: Vec<_> = (0..256).map(|n| put(&format!("shards/{round}/{n}"), None)).collect();
        let since = now();
        store.swap(Lane::Work, &swaps).await.expect("answered");
        times.push(now() - since);
    }
    report("swap of 256 records", times);
}

async fn lists(file: &Path) {
    let store = Local::open(file, "lists").expect("it opens");
    for round in 0..100 {
        let swaps: Vec<_> = (0..100).map(|n| put(&format!("shards/g/{}", round * 100 + n), None)).collect();
        store.swap(Lane::Work, &swaps).await.expect("answered");
    }
    let mut times = Vec::new();
    for _ in 0..50 {
        let since = now();
        let listing = store.list().await.expect("listed");
        times.push(now() - since);
        assert_eq!(listing.entries.len(), 10_000);
    }
    report("list of 10,000 records", times);
    let mut times = Vec::new();
    for _ in 0..10 {
        let since = now();
        drop(Local::open(file, "lists").expect("it opens"));
        times.push(now() - since);
    }
    report("open, 35,600 records", times);
}

async fn watches(file: &Path) {
    let store = Local::open(file, "watch").expect("it opens");
    let mut watch = store.watch().await.expect("it starts").expect("there is one");
    first(&mut watch).await;
    let mut writer = start("write", file);
    let mut acked = BufReader::new(writer.stdout.take().expect("its output")).lines();
    let (mut whole, mut after) = (Vec::new(), Vec::new());
    while whole.len() < 1_000 {
        let Some(WatchEvent::Changed(changes)) = watch.next().await else { continue };
        let heard = now();
        for (_, stored) in changes {
            let sent = Duration::from_nanos(text(&stored.expect("there").value).parse().expect("a time"));
            let line = acked.next().expect("a line").expect("a line");
            let acked = Duration::from_nanos(line.parse().expect("a time"));
            whole.push(heard - sent);
            after.push(heard.saturating_sub(acked));
        }
    }
    let _ = writer.kill();
    let _ = writer.wait();
    report("watch across processes, from before the swap", whole);
    report("watch across processes, from its answer", after);
}

async fn deaths(file: &Path) {
    let store = Local::open(file, "live").expect("it opens");
    let mut watch = store.watch().await.expect("it starts").expect("there is one");
    first(&mut watch).await;
    let mut times = Vec::new();
    for _ in 0..30 {
        let mut other = start("live", file);
        while !matches!(watch.next().await, Some(WatchEvent::Changed(_))) {}
        std::thread::sleep(Duration::from_millis(20));
        let since = now();
        let _ = other.kill();
        while !matches!(watch.next().await, Some(WatchEvent::ProcessGone(_))) {}
        times.push(now() - since);
        let _ = other.wait();
    }
    report("proof of death after kill -9", times);
}

async fn idles(file: &Path) {
    let store = Local::open(file, "live").expect("it opens");
    let mut watch = store.watch().await.expect("it starts").expect("there is one");
    first(&mut watch).await;
    let mut others: Vec<Child> = (0..3).map(|_| start("live", file)).collect();
    // Read all the while: a watch whose reader does not read waits, and would look cheaper than it is.
    let _ = tokio::time::timeout(Duration::from_secs(2), watch.by_ref().count()).await;
    let (since, spent) = (now(), cpu());
    let _ = tokio::time::timeout(Duration::from_secs(10), watch.by_ref().count()).await;
    let (took, spent) = (now() - since, cpu() - spent);
    let share = spent.as_secs_f64() / took.as_secs_f64() * 100.0;
    println!("{:<46} {share:.3} % of one core ({spent:?} in {took:?})", "idle, one watch, three other nodes");
    for other in &mut others {
        let _ = other.kill();
        let _ = other.wait();
    }
}

/// In another process: writes the time, again and again, and prints when each write was answered.
async fn write(file: &Path) {
    let store = Local::open(file, "watch").expect("it opens");
    let mut version = None;
    loop {
        let value = now().as_nanos().to_string().into_bytes();
        let wish =
            Swap { key: "control".parse().expect("a key"), expect: version, value: Some(value.into()) };
        version = Some(swap(&store, wish).await);
        println!("{}", now().as_nanos());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// In another process: lives as a session.
async fn live(file: &Path) {
    let store = Local::open(file, "live").expect("it opens");
    let session = SessionId::from_bits(now().as_nanos());
    store.claim_session(session).await.expect("claimed");
    let record = format!(r#"{{"session":"{session}","state":"active"}}"#);
    let wish = Swap {
        key: format!("nodes/{}", std::process::id()).parse().expect("a key"),
        expect: None,
        value: Some(record.into_bytes().into()),
    };
    swap(&store, wish).await;
    std::thread::sleep(Duration::from_secs(60));
}

fn start(role: &str, file: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.arg(file).env(ROLE, role).stdout(Stdio::piped());
    command.spawn().expect("it starts")
}

async fn first(watch: &mut Watch) {
    while !matches!(watch.next().await, Some(WatchEvent::Snapshot(_))) {}
}

fn put(key: &str, expect: Option<&Version>) -> Swap {
    let value: Arc<[u8]> = [b'x'; RECORD_BYTES].as_slice().into();
    Swap { key: key.parse().expect("a key"), expect: expect.cloned(), value: Some(value) }
}

async fn swap(store: &Local, wish: Swap) -> Version {
    let reply = store.swap(Lane::Renewal, &[wish]).await.expect("answered");
    match reply.outcomes.into_iter().next() {
        Some(Swapped::Applied(version)) => version,
        other => panic!("{other:?}"),
    }
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

fn report(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let at = |permille: usize| times[(times.len() * permille / 1000).min(times.len() - 1)];
    println!(
        "{what:<46} median {:>9.3?}  p99 {:>9.3?}  worst {:>9.3?}  (n = {})",
        at(500),
        at(990),
        at(1000),
        times.len()
    );
}

fn now() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The processor time that this process has spent.
fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
