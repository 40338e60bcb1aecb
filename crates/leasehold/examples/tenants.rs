//! Named shards that come and go: one shard per tenant. Every node follows the list of a provider and passes the whole list to
//! [`Node::set_engaged`], which works out the difference: a tenant that stays keeps its grant, and one that is gone is stopped.

mod sink;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use leasehold::store::MemoryServer;
use leasehold::{BoxError, Builder, Grant, Group, Node, Outcome};
use sink::Sink;
use tokio::sync::watch;

/// The list of tenants, and every change of it: in your program a table, a file, or an API that is watched or polled.
type Provider = watch::Receiver<Vec<String>>;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let (tell, provider) = watch::channel(Vec::new());
    let server = MemoryServer::new();
    let usage = Arc::new(Sink::default());
    let node = || Node::builder(server.open("example")).new_namespace();
    let east = serve(node(), "east", provider.clone(), usage.clone());
    let west = serve(node(), "west", provider, usage);
    let show = async {
        for tenants in [&["acme", "globex", "initech"][..], &["acme", "hooli"], &[]] {
            println!("the provider knows {tenants:?}");
            tell.send_replace(tenants.iter().map(|tenant| (*tenant).to_owned()).collect());
            settled(server.clone(), tenants).await?;
        }
        drop(tell); // the provider is closed, which ends this show
        Ok(())
    };
    let ended: (_, _, Result<(), BoxError>) = tokio::join!(east, west, show);
    ended.0.and(ended.1).and(ended.2)
}

/// A whole program: serves the tenants of a provider until SIGTERM or Ctrl-C, or until the provider is closed.
async fn serve(
    node: Builder,
    name: &'static str,
    mut provider: Provider,
    usage: Arc<Sink>,
) -> Result<(), BoxError> {
    let signal = leasehold::shutdown_signal();
    let serve = move |grant| tenant(name, grant, usage.clone());
    let node = node.name(name).group(Group::named("tenants"), serve).start().await?;
    let follow = async {
        loop {
            let tenants = provider.borrow_and_update().clone();
            // All that there are, as often as you like. A name that is not allowed changes nothing, and is said.
            if let Err(error) = node.set_engaged("tenants", &tenants) {
                println!("{name} keeps the tenants that it knew: {error}");
            }
            if provider.changed().await.is_err() {
                return;
            }
        }
    };
    let ends = async {
        tokio::select! {
            () = signal => {}
            () = follow => {}
        }
    };
    println!("{name} leaves: {:?}", node.leave_on(ends).await);
    Ok(())
}

/// The work of one tenant.
async fn tenant(name: &str, grant: Grant, usage: Arc<Sink>) -> Outcome {
    println!("{name} serves {} (epoch {})", grant.shard().name, grant.epoch());
    let mut unsaved = 0;
    let mut requests = tokio::time::interval(Duration::from_millis(20));
    while grant.stopping().run_until_cancelled(requests.tick()).await.is_some() {
        unsaved += 1;
    }
    match grant.stop_reason() {
        Some(why) if why.is_planned() => {
            grant.check()?;
            let all = usage.add(grant.shard(), grant.epoch(), unsaved)?;
            println!("{name} no longer serves {} ({why}): {all} requests in all", grant.shard().name);
        }
        _ => println!("{name} lost {}: {unsaved} requests are not counted", grant.shard().name),
    }
    Ok(())
}

/// Waits until exactly these tenants run, as somebody sees it who only watches.
async fn settled(server: MemoryServer, tenants: &[&str]) -> Result<(), BoxError> {
    let client = leasehold::Client::open(server.open("example")).await?;
    let wanted: BTreeSet<&str> = tenants.iter().copied().collect();
    let all_run = |view: &leasehold::View| {
        let held = view.shards.iter().filter(|shard| shard.holder.is_some());
        held.map(|shard| shard.id.0.name.as_str()).collect::<BTreeSet<_>>() == wanted
    };
    client.until(all_run).await;
    Ok(())
}
