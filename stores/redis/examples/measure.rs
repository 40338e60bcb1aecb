//! Measures a Redis or Valkey, and how many nodes it can serve: what they hear of each other grows with their square.
//!
//! ```sh
//! cargo run --release -p leasehold-redis --example measure redis://127.0.0.1:6379 50 100 200
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::StreamExt;
use leasehold_redis::Redis;
use leasehold_store::{Lane, Store, Swap, Swapped, Version, WatchEvent};
use rustix::time::{ClockId, clock_gettime};

/// As large as a node's record.
const RECORD_BYTES: usize = 500;
/// Nodes renew this often at the default ttl.
const RENEW_EVERY: Duration = Duration::from_secs(2);
const MEASURED_FOR: Duration = Duration::from_secs(10);

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut args = std::env::args().skip(1);
    let address = args.next().unwrap_or_else(|| "redis://127.0.0.1:6379".to_owned());
    swaps(&address).await;
    lists(&address).await;
    for nodes in args.filter_map(|arg| arg.parse().ok()) {
        crowd(&address, nodes).await;
    }
}

fn open(address: &str, what: &str) -> Redis {
    Redis::open(address, &format!("measure-{what}-{}", std::process::id())).expect("the address is right")
}

async fn swaps(address: &str) {
    let store = open(address, "swaps");
    let (mut version, mut times) = (None, Vec::new());
    for _ in 0..2_000 {
        let since = now();
        version = Some(renew(&store, "nodes/n", version.as_ref()).await);
        times.push(now() - since);
    }
    report("swap of one record", times);
    let mut times = Vec::new();
    for round in 0..40 {
        let swaps: Vec<_> = (0..256).map(|n| put(&format!("shards/{round}/{n}"), None)).collect();
        let since = now();
        store.swap(Lane::Work, &swaps).await.expect("answered");
        times.push(now() - since);
    }
    report("swap of 256 records", times);
}

async fn lists(address: &str) {
    let store = open(address, "swaps");
    let mut times = Vec::new();
    for _ in 0..10 {
        let since = now();
        store.list().await.expect("answered");
        times.push(now() - since);
    }
    report("listing of 10,241 records", times);
}

/// So many nodes renew and hear of each other.
async fn crowd(address: &str, nodes: usize) {
    let heard = Arc::new(AtomicU64::new(0));
    let late_ns = Arc::new(AtomicU64::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for i in 0..nodes {
        let store = open(address, "crowd");
        let (heard, late_ns) = (heard.clone(), late_ns.clone());
        tasks.spawn(async move {
            let mut watch = store.watch().await.expect("a watch").expect("a watch");
            let name = format!("nodes/{nodes}-{i}");
            let mut version = Some(renew(&store, &name, None).await);
            tokio::time::sleep(RENEW_EVERY * i as u32 / nodes as u32).await;
            let mut ticks = tokio::time::interval(RENEW_EVERY);
            loop {
                tokio::select! {
                    _ = ticks.tick() => version = Some(renew(&store, &name, version.as_ref()).await),
                    event = watch.next() => if let Some(WatchEvent::Changed(changes)) = event {
                        for stored in changes.iter().filter_map(|(_, stored)| stored.as_ref()) {
                            let sent = String::from_utf8_lossy(&stored.value[..20]).parse().unwrap_or(0);
                            let late = (now().as_nanos() as u64).saturating_sub(sent);
                            heard.fetch_add(1, Ordering::Relaxed);
                            late_ns.fetch_max(late, Ordering::Relaxed);
                        }
                    }
                }
            }
        });
    }
    tokio::time::sleep(Duration::from_secs(6)).await;
    heard.store(0, Ordering::Relaxed);
    late_ns.store(0, Ordering::Relaxed);
    let before = cpu(address).await;
    tokio::time::sleep(MEASURED_FOR).await;
    let used = cpu(address).await - before;
    println!(
        "{nodes} nodes: {:.0} events/s heard, the latest after {:.1?}; the server used {:.1} % of a core",
        heard.load(Ordering::Relaxed) as f64 / MEASURED_FOR.as_secs_f64(),
        Duration::from_nanos(late_ns.load(Ordering::Relaxed)),
        100.0 * used / MEASURED_FOR.as_secs_f64(),
    );
}

/// Seconds of CPU that the server has used.
async fn cpu(address: &str) -> f64 {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let place = address.rsplit('/').find(|part| part.contains(':')).unwrap_or("127.0.0.1:6379");
    let Ok(mut stream) = tokio::net::TcpStream::connect(place).await else { return f64::NAN };
    let mut text = Vec::new();
    stream.write_all(b"INFO cpu\r\nQUIT\r\n").await.expect("it can be asked");
    stream.read_to_end(&mut text).await.expect("it answers");
    let text = String::from_utf8_lossy(&text).into_owned();
    let of = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok());
    of("used_cpu_sys:").unwrap_or(f64::NAN) + of("used_cpu_user:").unwrap_or(f64::NAN)
}

async fn renew(store: &Redis, key: &str, expect: Option<&Version>) -> Version {
    let reply = store.swap(Lane::Renewal, &[put(key, expect)]).await.expect("answered");
    match reply.outcomes.into_iter().next() {
        Some(Swapped::Applied(version)) => version,
        other => panic!("{other:?}"),
    }
}

/// A record that begins with when it was sent.
fn put(key: &str, expect: Option<&Version>) -> Swap {
    let mut value = format!("{:020}", now().as_nanos()).into_bytes();
    value.resize(RECORD_BYTES, b'x');
    Swap { key: key.parse().expect("a key"), expect: expect.cloned(), value: Some(value.into()) }
}

fn report(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let at = |share: usize| times[(times.len() - 1) * share / 100];
    println!("{what}: median {:.2?}, p99 {:.2?}, slowest {:.2?}", at(50), at(99), at(100));
}

fn now() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
