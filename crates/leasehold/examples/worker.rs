//! Workers that share the shards of one group through a file.
//!
//! Run it as it is to see two workers in one process share eight shards, and one of them leave. Or start it in several
//! terminals on the same file, each with its own name, and kill one of them:
//!
//! ```text
//! cargo run -p leasehold --example worker -- local:/tmp/work.db worker-1 60
//! cargo run -p leasehold --example worker -- local:/tmp/work.db worker-2 60
//! ```

use std::sync::Arc;
use std::time::Duration;

use leasehold::{BoxError, Grant, Group, Node, Outcome};
use leasehold_store::Store;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [address, name, seconds] = &args[..] {
        let node = start(leasehold::store::open(address, "example")?, name.clone(), Namespace::Kept).await?;
        tokio::time::sleep(Duration::from_secs(seconds.parse()?)).await;
        println!("{name} leaves: {:?}", node.leave().await);
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let address = format!("local:{}/work.db", folder.path().display());
    let open = || leasehold::store::open(&address, "example");
    let first = start(open()?, "worker-1".into(), Namespace::Fresh).await?;
    first.attached().await?;
    let second = start(open()?, "worker-2".into(), Namespace::Fresh).await?;
    while first.owned().len() != 4 || second.owned().len() != 4 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    println!("both have four shards; {} is asked to leave", first.name());
    println!("{:?}", first.leave().await);
    while second.owned().len() != 8 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    println!("{} has all eight", second.name());
    second.leave().await;
    Ok(())
}

enum Namespace {
    /// Just created: no other node can be running.
    Fresh,
    /// Perhaps used before: a node that finds it empty waits until no earlier holder can be running.
    Kept,
}

async fn start(store: Arc<dyn Store>, name: String, namespace: Namespace) -> Result<Node, BoxError> {
    let worker = name.clone();
    let mut node = Node::builder(store)
        .name(name)
        .group(Group::numbered("orders", 8), move |grant| work(worker.clone(), grant));
    if matches!(namespace, Namespace::Fresh) {
        node = node.new_namespace();
    }
    Ok(node.start().await?)
}

/// The work of one shard: a step every 100 ms, until it is told to stop.
async fn work(worker: String, grant: Grant) -> Outcome {
    println!("{worker} starts {} (epoch {})", grant.shard(), grant.epoch());
    let mut steps = 0;
    while grant.stopping().run_until_cancelled(tokio::time::sleep(Duration::from_millis(100))).await.is_some()
    {
        // Before every side effect: two atomic loads and a clock read.
        grant.check()?;
        steps += 1;
    }
    println!("{worker} stops {} after {steps} steps", grant.shard());
    Ok(())
}
