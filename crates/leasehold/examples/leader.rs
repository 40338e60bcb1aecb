//! Leader election: a group of one shard. A leader that cannot go on steps down, and another candidate takes over at once, with
//! a higher epoch.
//!
//! Run it as it is, or in several terminals:
//! `cargo run -p leasehold --features local --example leader -- local:/tmp/work.db ann`.

mod sink;

use std::sync::Arc;
use std::time::Duration;

use leasehold::store::MemoryServer;
use leasehold::{BoxError, Builder, Grant, Group, Node, Outcome, Policy};
use sink::Sink;

/// For how long a leader that stepped down does not lead again, unless nobody else can.
const REST: Duration = Duration::from_secs(60);

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let signal = leasehold::shutdown_signal();
    let journal = Arc::new(Sink::default());
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [address, name] = &args[..] {
        let node = Node::builder(leasehold::store::open(address, "example")?);
        candidate(node, name, &journal).await?.leave_on(signal).await;
        return Ok(());
    }
    tokio::select! {
        () = signal => Ok(()),
        shown = show(&journal) => shown,
    }
}

async fn candidate(node: Builder, name: &str, journal: &Arc<Sink>) -> Result<Node, leasehold::Error> {
    let (leader, journal) = (name.to_owned(), journal.clone());
    let lead = move |grant| lead(leader.clone(), grant, journal.clone());
    // A leader stays until it leaves, fails or steps down. Without this, it moves when a node joins that the plan prefers.
    let sticky = Policy { kept_min: 1, ..Policy::default() };
    node.name(name).group(Group::leader("scheduler").policy(sticky), lead).start().await
}

/// Runs while this process leads.
async fn lead(name: String, grant: Grant, journal: Arc<Sink>) -> Outcome {
    println!("{name} leads (epoch {})", grant.epoch());
    let mut turns = tokio::time::interval(Duration::from_millis(50));
    let mut done = 0;
    while grant.stopping().run_until_cancelled(turns.tick()).await.is_some() {
        grant.check()?;
        journal.add(grant.shard(), grant.epoch(), 1)?;
        done += 1;
        if done == 5 {
            // For example: this machine cannot reach what a leader must reach. The shard is held until this function has
            // returned, so there is no second leader meanwhile.
            println!("{name} steps down");
            grant.step_down(REST)?;
        }
    }
    match grant.stop_reason() {
        Some(why) if why.is_planned() => {
            let entries = journal.add(grant.shard(), grant.epoch(), 1)?; // the last entry of this leader
            println!("{name} no longer leads ({why}); the journal has {entries} entries");
        }
        _ => println!("{name} lost the lead: somebody else may be leading, so it writes nothing more"),
    }
    Ok(())
}

/// Three candidates; each leads once.
async fn show(journal: &Arc<Sink>) -> Result<(), BoxError> {
    let server = MemoryServer::new();
    let mut candidates = Vec::new();
    for name in ["ann", "ben", "cleo"] {
        candidates
            .push(candidate(Node::builder(server.open("example")).new_namespace(), name, journal).await?);
    }
    let shard = "scheduler/0".parse()?;
    let mut former = None;
    for _ in &candidates {
        let grant = loop {
            let now = candidates.iter().find_map(|node| node.grant(&shard));
            match now.filter(|grant| former != Some(grant.epoch())) {
                Some(grant) => break grant,
                None => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        };
        if let Some(former) = former {
            journal.add(&shard, grant.epoch(), 0)?;
            let late = journal.add(&shard, former, 1);
            println!("a late entry of the former leader: {}", late.expect_err("the journal refuses it"));
        }
        grant.lost().await;
        former = Some(grant.epoch());
    }
    for node in candidates {
        node.leave().await;
    }
    Ok(())
}
