//! A global fence: one owner for everything. The group has one shard, and its grant guards a whole process: all parts of the
//! program run under it, one process is active, and the others stand by.
//!
//! Run it as it is, or in two terminals, and stop the first:
//! `cargo run -p leasehold --features local --example global_fence -- local:/tmp/work.db a`.

mod sink;

use std::sync::Arc;
use std::time::Duration;

use leasehold::store::MemoryServer;
use leasehold::{BoxError, Builder, Grant, Group, Node, Outcome, Policy};
use sink::Sink;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let signal = leasehold::shutdown_signal();
    let ledger = Arc::new(Sink::default());
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [address, name] = &args[..] {
        let node = Node::builder(leasehold::store::open(address, "example")?);
        // In production also `.dead_man_timer()`: then the kernel ends a process that cannot stop by itself in time.
        stand_by(node, name, &ledger).await?.leave_on(signal).await;
        return Ok(());
    }
    tokio::select! {
        () = signal => Ok(()),
        shown = show(&ledger) => shown,
    }
}

async fn stand_by(node: Builder, name: &str, ledger: &Arc<Sink>) -> Result<Node, leasehold::Error> {
    let (name, ledger) = (name.to_owned(), ledger.clone());
    // The active process stays active until it leaves or fails: a process that joins or comes back stands by.
    let sticky = Policy { kept_min: 1, ..Policy::default() };
    node.name(&name)
        .group(Group::leader("everything").policy(sticky), move |fence| {
            active(name.clone(), fence, ledger.clone())
        })
        .start()
        .await
}

/// The whole program, for as long as this process is the active one.
async fn active(name: String, fence: Grant, ledger: Arc<Sink>) -> Outcome {
    println!("{name} is active (epoch {})", fence.epoch());
    // Whatever runs under the fence is started by it. Then nobody else becomes active before the last part is gone.
    let importer = fence.spawn(import(fence.clone(), ledger.clone()))?;
    let archive = ledger.clone();
    let archiver = fence.spawn_blocking(move |fence| archive_all(&fence, &archive))?;
    let imported = importer.await??;
    archiver.await??;
    match fence.stop_reason() {
        Some(why) if why.is_planned() => {
            println!("{name} hands over ({why}), with {imported} imports flushed")
        }
        _ => println!("{name} lost the fence: another process may be active"),
    }
    Ok(())
}

/// A part that is a task.
async fn import(fence: Grant, ledger: Arc<Sink>) -> Result<u64, BoxError> {
    let mut pending = 0;
    let mut imports = tokio::time::interval(Duration::from_millis(20));
    while fence.stopping().run_until_cancelled(imports.tick()).await.is_some() {
        pending += 1;
    }
    if fence.stop_reason().is_some_and(|why| why.is_planned()) {
        fence.check()?;
        ledger.add(fence.shard(), fence.epoch(), pending)?; // one epoch for all that this process writes
        return Ok(pending);
    }
    Ok(0)
}

/// A part that blocks its thread: nothing can cut it off, so it looks at the fence in its loop.
fn archive_all(fence: &Grant, ledger: &Sink) -> Result<(), BoxError> {
    while !fence.stopping().is_cancelled() {
        fence.check()?;
        ledger.add(fence.shard(), fence.epoch(), 1)?;
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Two processes, played by two nodes: the active one leaves, the other takes over.
async fn show(ledger: &Arc<Sink>) -> Result<(), BoxError> {
    let server = MemoryServer::new();
    let node = || Node::builder(server.open("example")).new_namespace();
    let a = stand_by(node(), "a", ledger).await?;
    a.until(|view| view.me.as_ref().is_some_and(|me| me.held == 1)).await?;
    let b = stand_by(node(), "b", ledger).await?;
    b.attached().await?;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let (active, standby) = if a.owned().is_empty() { (b, a) } else { (a, b) };
    let shard = "everything/0".parse()?;
    let former = active.grant(&shard).ok_or("nobody is active")?.epoch();
    println!("{} leaves: {:?}", active.name(), active.leave().await);
    standby.until(|view| view.me.as_ref().is_some_and(|me| me.held == 1)).await?;
    let epoch = standby.grant(&shard).ok_or("nobody is active")?.epoch();
    ledger.add(&shard, epoch, 0)?;
    let late = ledger.add(&shard, former, 1);
    println!("a late write from {}: {}", active.name(), late.expect_err("the ledger refuses it"));
    standby.leave().await;
    Ok(())
}
