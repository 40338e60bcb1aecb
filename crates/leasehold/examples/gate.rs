//! An acquire gate in front of 300 partitions: each consumer takes a partition only while it has memory for it. A refused
//! partition goes to the next node in rank; none stays without an owner while a node has room.
//!
//! The gate promises memory before the partition is this node's, and the claim may still fail. So a promise that was not
//! used in time is void.

mod sink;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold::store::MemoryServer;
use leasehold::{BoxError, Builder, Client, Grant, Group, Moment, Node, Outcome, ShardId, Verdict, clock};
use sink::Sink;

const PARTITIONS: u32 = 300;

/// How long a promise of the gate holds if the partition does not come.
const PROMISED_FOR: Duration = Duration::from_secs(10);

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let signal = leasehold::shutdown_signal();
    let offsets = Arc::new(Sink::default());
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [address, name, room] = &args[..] {
        let node = Node::builder(leasehold::store::open(address, "example")?);
        consumer(node, name, room.parse()?, &offsets).await?.leave_on(signal).await;
        return Ok(());
    }
    tokio::select! {
        () = signal => Ok(()),
        shown = show(&offsets) => shown,
    }
}

async fn consumer(
    node: Builder,
    name: &str,
    room: usize,
    offsets: &Arc<Sink>,
) -> Result<Node, leasehold::Error> {
    let memory = Arc::new(Memory { room, taken: Mutex::default() });
    let (asked, offsets) = (memory.clone(), offsets.clone());
    node.name(name)
        .gate(move |partition| std::future::ready(asked.promise(partition)))
        .group(Group::numbered("partitions", PARTITIONS), move |grant| {
            consume(grant, memory.clone(), offsets.clone())
        })
        .start()
        .await
}

/// The work of one partition, in memory that was promised to it.
async fn consume(grant: Grant, memory: Arc<Memory>, offsets: Arc<Sink>) -> Outcome {
    let _used = memory.using(grant.shard());
    let mut offset = 0;
    let mut messages = tokio::time::interval(Duration::from_millis(200));
    while grant.stopping().run_until_cancelled(messages.tick()).await.is_some() {
        grant.check()?;
        offset += 1;
    }
    if grant.stop_reason().is_some_and(|why| why.is_planned()) {
        grant.check()?;
        offsets.add(grant.shard(), grant.epoch(), offset)?; // still ours: commit where we are
    } // otherwise the lease is lost: the next holder reads the messages again
    Ok(())
}

/// A consumer's memory, in units of one partition.
struct Memory {
    room: usize,
    taken: Mutex<BTreeMap<ShardId, Use>>,
}

enum Use {
    PromisedUntil(Moment),
    Running,
}

impl Memory {
    /// The gate's answer: promises a unit to a partition, if one is left.
    fn promise(&self, partition: ShardId) -> Verdict {
        let (now, mut taken) = (clock::now(), self.taken());
        taken.retain(|_, used| {
            matches!(used, Use::Running) || matches!(used, Use::PromisedUntil(at) if *at > now)
        });
        if !taken.contains_key(&partition) && taken.len() >= self.room {
            return Verdict::Refuse;
        }
        taken.entry(partition).or_insert(Use::PromisedUntil(now + PROMISED_FOR));
        Verdict::Take
    }

    /// The partition runs: its unit is in use until the returned value is dropped, however the work ends.
    fn using(self: &Arc<Self>, partition: &ShardId) -> Used {
        self.taken().insert(partition.clone(), Use::Running);
        Used { memory: self.clone(), partition: partition.clone() }
    }

    fn taken(&self) -> MutexGuard<'_, BTreeMap<ShardId, Use>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Used {
    memory: Arc<Memory>,
    partition: ShardId,
}

impl Drop for Used {
    fn drop(&mut self) {
        self.memory.taken().remove(&self.partition);
    }
}

/// Three consumers with room for 60, 120 and 200: whatever the plan prefers, none takes more than it has memory for.
async fn show(offsets: &Arc<Sink>) -> Result<(), BoxError> {
    let server = MemoryServer::new();
    let mut consumers = Vec::new();
    for (name, room) in [("small", 60), ("medium", 120), ("large", 200)] {
        let node = Node::builder(server.open("example")).new_namespace();
        consumers.push((consumer(node, name, room, offsets).await?, room));
    }
    let client = Client::open(server.open("example")).await?;
    let held = |view: &leasehold::View| view.shards.iter().filter(|shard| shard.holder.is_some()).count();
    client.until(|view| held(view) == PARTITIONS as usize).await;
    for (node, room) in &consumers {
        let owned = node.owned().len();
        println!("{} holds {owned} partitions and has memory for {room}", node.name());
        if owned > *room {
            return Err(format!("{} holds more than it has memory for", node.name()).into());
        }
    }
    for (node, _) in consumers {
        node.leave().await;
    }
    Ok(())
}
