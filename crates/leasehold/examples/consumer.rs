//! Consumers that share the shards of one group, and write in batches to a sink that refuses late writers.
//!
//! Run it as it is to see two consumers in one process share eight shards, and one of them leave. Or start it in several
//! terminals on the same file, each with its own name, and stop or kill one of them:
//!
//! ```text
//! cargo run -p leasehold --features local --example consumer -- local:/tmp/work.db consumer-1
//! cargo run -p leasehold --features local --example consumer -- local:/tmp/work.db consumer-2
//! ```

mod sink;

use std::sync::Arc;
use std::time::Duration;

use leasehold::store::MemoryServer;
use leasehold::{BoxError, Builder, Epoch, Grant, Group, Node, Outcome};
use sink::Sink;

/// How many messages are written at once.
const BATCH: u64 = 10;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    // Caught from here on: a signal that comes while the node starts is not lost.
    let signal = leasehold::shutdown_signal();
    let sink = Arc::new(Sink::default());
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [address, name] = &args[..] {
        let store = leasehold::store::open(address, "example")?;
        let node = start(Node::builder(store), name, &sink).await?;
        println!("{name} leaves: {:?}", node.leave_on(signal).await);
        return Ok(());
    }
    tokio::select! {
        () = signal => Ok(()), // dropping the nodes stops their work
        shown = show(&sink) => shown,
    }
}

async fn start(node: Builder, name: &str, sink: &Arc<Sink>) -> Result<Node, leasehold::Error> {
    let (consumer, sink) = (name.to_owned(), sink.clone());
    node.name(name)
        .group(Group::numbered("orders", 8), move |grant| consume(consumer.clone(), grant, sink.clone()))
        .start()
        .await
}

/// The work of one shard: reads messages, and writes them in batches.
async fn consume(consumer: String, grant: Grant, sink: Arc<Sink>) -> Outcome {
    println!("{consumer} starts {} (epoch {})", grant.shard(), grant.epoch());
    let mut batch = 0;
    let mut messages = tokio::time::interval(Duration::from_millis(15));
    while grant.stopping().run_until_cancelled(messages.tick()).await.is_some() {
        batch += 1;
        if batch == BATCH {
            grant.check()?; // right before each side effect: two atomic loads and a clock read
            sink.add(grant.shard(), grant.epoch(), batch)?; // and the sink itself refuses a late writer
            batch = 0;
        }
    }
    match grant.stop_reason() {
        // A planned stop: the shard is ours until this function returns. Finish what was begun.
        Some(why) if why.is_planned() => {
            grant.check()?;
            let sum = sink.add(grant.shard(), grant.epoch(), batch)?;
            println!("{consumer} stops {} ({why}): flushed, {sum} in all", grant.shard());
        }
        // The lease is lost: another process may be consuming already, and reads again what was not written.
        _ => println!("{consumer} lost {}: dropped {batch} messages", grant.shard()),
    }
    Ok(())
}

/// Two consumers share the group; one leaves, and the other has it all.
async fn show(sink: &Arc<Sink>) -> Result<(), BoxError> {
    let server = MemoryServer::new();
    let node = || Node::builder(server.open("example")).new_namespace();
    let first = start(node(), "consumer-1", sink).await?;
    first.attached().await?;
    let second = start(node(), "consumer-2", sink).await?;
    holds(&first, 4).await?;
    holds(&second, 4).await?;
    println!("both have four shards; {} is asked to leave", first.name());
    let given_up = first.owned().swap_remove(0);
    println!("{:?}", first.leave().await);
    holds(&second, 8).await?;
    println!("{} has all eight", second.name());
    // Until it has written once, the sink knows nothing of the new epoch.
    let written = second.grant(&given_up).ok_or("the shard has moved on")?;
    sink.add(&given_up, written.epoch(), 0)?;
    let late = sink.add(&given_up, Epoch(written.epoch().0 - 1), BATCH);
    println!("a late write of {}: {}", first.name(), late.expect_err("the sink refuses it"));
    second.leave().await;
    Ok(())
}

async fn holds(node: &Node, shards: usize) -> Result<(), leasehold::Error> {
    node.until(|view| view.me.as_ref().is_some_and(|me| me.held == shards)).await
}
