//! Weight and health that change while a node runs: a node with more free memory takes more of the work, and one whose
//! database is away hands its work to others.
//!
//! Both hooks are asked regularly. A hook that panics or does not answer in time counts as unhealthy; the weight stays.

mod sink;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use leasehold::store::MemoryServer;
use leasehold::{BoxError, Builder, Grant, Group, Health, Node, Outcome};
use sink::Sink;

/// What the hooks look at: in your program the free memory, and whether the database answers.
#[derive(Debug)]
struct Machine {
    free_gib: AtomicU32,
    database_answers: AtomicBool,
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let signal = leasehold::shutdown_signal();
    let sink = Arc::new(Sink::default());
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [address, name, free_gib] = &args[..] {
        let node = Node::builder(leasehold::store::open(address, "example")?);
        let machine = machine(free_gib.parse()?);
        worker(node, name, &machine, &sink).await?.leave_on(signal).await;
        return Ok(());
    }
    tokio::select! {
        () = signal => Ok(()),
        shown = show(&sink) => shown,
    }
}

fn machine(free_gib: u32) -> Arc<Machine> {
    Arc::new(Machine { free_gib: AtomicU32::new(free_gib), database_answers: AtomicBool::new(true) })
}

async fn worker(
    node: Builder,
    name: &str,
    machine: &Arc<Machine>,
    sink: &Arc<Sink>,
) -> Result<Node, leasehold::Error> {
    let (weighed, examined) = (machine.clone(), machine.clone());
    let (worker, sink) = (name.to_owned(), sink.clone());
    node.name(name)
        .weigh(move || {
            let machine = weighed.clone();
            async move { machine.free_gib.load(Ordering::Relaxed) }
        })
        .health(move || {
            let machine = examined.clone();
            async move {
                if machine.database_answers.load(Ordering::Relaxed) {
                    Health::Healthy
                } else {
                    Health::Unhealthy
                }
            }
        })
        .hook_every(Duration::from_millis(200)) // the default is the renewal interval, a fifth of the ttl
        .group(Group::numbered("orders", 24), move |grant| work(worker.clone(), grant, sink.clone()))
        .start()
        .await
}

async fn work(worker: String, grant: Grant, sink: Arc<Sink>) -> Outcome {
    let mut done = 0;
    let mut orders = tokio::time::interval(Duration::from_millis(50));
    while grant.stopping().run_until_cancelled(orders.tick()).await.is_some() {
        done += 1;
    }
    match grant.stop_reason() {
        Some(why) if why.is_planned() => {
            grant.check()?;
            sink.add(grant.shard(), grant.epoch(), done)?;
        }
        _ => println!("{worker} lost {}: {done} orders are done again elsewhere", grant.shard()),
    }
    Ok(())
}

/// Two workers: one grows, then its database goes away and comes back.
async fn show(sink: &Arc<Sink>) -> Result<(), BoxError> {
    let server = MemoryServer::new();
    let (a_machine, b_machine) = (machine(8), machine(8));
    let node = || Node::builder(server.open("example")).new_namespace();
    let a = worker(node(), "a", &a_machine, sink).await?;
    let b = worker(node(), "b", &b_machine, sink).await?;
    a.until(|view| held(view) >= 10).await?;
    b.until(|view| held(view) >= 10).await?;
    println!("equal machines: a holds {}, b {}", a.owned().len(), b.owned().len());
    a_machine.free_gib.store(40, Ordering::Relaxed);
    a.until(|view| held(view) >= 18).await?;
    println!("a has five times as much memory: a holds {}, b {}", a.owned().len(), b.owned().len());
    a_machine.database_answers.store(false, Ordering::Relaxed);
    b.until(|view| held(view) == 24).await?;
    println!("a's database is away: a holds {}, b {}", a.owned().len(), b.owned().len());
    a_machine.database_answers.store(true, Ordering::Relaxed);
    a.until(|view| held(view) >= 10).await?;
    println!("it is back: a takes shards again");
    a.leave().await;
    b.leave().await;
    Ok(())
}

fn held(view: &leasehold::View) -> usize {
    view.me.as_ref().map_or(0, |me| me.held)
}
