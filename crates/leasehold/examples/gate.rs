//! An acquire gate in front of an oversubscribed consumer group: each consumer takes a shard only while it has memory
//! for it. A refused shard goes to the next node in rank; no shard stays unowned while a node has room.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::{BoxError, Group, Node, ShardId, Verdict};

/// A consumer's memory for shards, in units of one shard.
struct Memory {
    room: usize,
    taken: Mutex<BTreeSet<ShardId>>,
}

impl Memory {
    /// Reserves a unit for a shard, if one is left.
    fn take(&self, shard: ShardId) -> Verdict {
        let mut taken = self.taken.lock().unwrap();
        if !taken.contains(&shard) && taken.len() >= self.room {
            return Verdict::Refuse;
        }
        taken.insert(shard);
        Verdict::Take
    }

    fn give_back(&self, shard: &ShardId) {
        self.taken.lock().unwrap().remove(shard);
    }
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let folder = tempfile::tempdir()?;
    let address = format!("local:{}/work.db", folder.path().display());
    let mut consumers = Vec::new();
    for (name, room) in [("small", 2), ("large", 20)] {
        let memory = Arc::new(Memory { room, taken: Mutex::default() });
        let (asked, used) = (memory.clone(), memory);
        let store = leasehold::store::open(&address, "example")?;
        let node = Node::builder(store)
            .name(name)
            .new_namespace()
            .gate(move |shard| {
                let verdict = asked.take(shard.clone());
                println!("{name}: {shard}? {verdict:?}");
                async move { verdict }
            })
            .group(Group::numbered("partitions", 12), move |grant| {
                let memory = used.clone();
                async move {
                    grant.stopped().await;
                    memory.give_back(grant.shard());
                }
            })
            .start()
            .await?;
        consumers.push(node);
    }
    while consumers.iter().map(|node| node.owned().len()).sum::<usize>() < 12 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for node in &consumers {
        println!("{} holds {} partitions", node.name(), node.owned().len());
    }
    for node in consumers {
        node.leave().await;
    }
    Ok(())
}
