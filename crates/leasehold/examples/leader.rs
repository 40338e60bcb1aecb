//! Leader election: a group of one shard. Three candidates run here; each time the leader steps down, another one
//! takes over, with a higher epoch.

use std::time::Duration;

use leasehold::{BoxError, Grant, Group, Node, Outcome};

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let folder = tempfile::tempdir()?;
    let address = format!("local:{}/work.db", folder.path().display());
    let mut candidates = Vec::new();
    for name in ["ann", "ben", "cleo"] {
        let store = leasehold::store::open(&address, "example")?;
        let lead = move |grant| lead(name, grant);
        let node = Node::builder(store).name(name).new_namespace().group(Group::leader("scheduler"), lead);
        candidates.push(node.start().await?);
    }
    let shard = "scheduler/0".parse()?;
    while !candidates.is_empty() {
        let leader = loop {
            if let Some(at) = candidates.iter().position(|node| node.owns(&shard)) {
                break candidates.swap_remove(at);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        tokio::time::sleep(Duration::from_millis(300)).await;
        println!("{} steps down", leader.name());
        leader.leave().await;
    }
    println!("nobody is left to lead");
    Ok(())
}

async fn lead(name: &'static str, grant: Grant) -> Outcome {
    println!("{name} leads (epoch {})", grant.epoch());
    grant.stopped().await;
    println!("{name} no longer leads");
    Ok(())
}
