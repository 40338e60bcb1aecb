//! Named shards that come and go: one shard per tenant. Two nodes serve the tenants that a provider (here: a list)
//! knows; engaging a tenant again changes nothing, and a tenant that is gone is stopped.

use std::collections::BTreeSet;
use std::time::Duration;

use leasehold::{BoxError, Group, Node, ShardId};

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let folder = tempfile::tempdir()?;
    let address = format!("local:{}/work.db", folder.path().display());
    let mut nodes = Vec::new();
    for name in ["east", "west"] {
        let store = leasehold::store::open(&address, "example")?;
        let node = Node::builder(store).name(name).new_namespace();
        let node = node.group(Group::named("tenants"), move |grant| async move {
            println!("{name} serves {} (epoch {})", grant.shard().name, grant.epoch());
            grant.stopped().await;
            println!("{name} no longer serves {}", grant.shard().name);
        });
        nodes.push(node.start().await?);
    }
    for tenants in [&["acme", "globex", "initech"][..], &["acme", "hooli"], &[]] {
        println!("the provider knows {tenants:?}");
        let wanted: BTreeSet<ShardId> =
            tenants.iter().map(|tenant| format!("tenants/{tenant}").parse()).collect::<Result<_, _>>()?;
        provide(&nodes, &wanted)?;
        while owned(&nodes) != wanted {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    for node in nodes {
        node.leave().await;
    }
    println!("done");
    Ok(())
}

/// Every node is told which tenants there are; the plan decides which node runs which.
fn provide(nodes: &[Node], wanted: &BTreeSet<ShardId>) -> Result<(), BoxError> {
    // Looked up before any node is told: a shard that the first node gives up at once must be given up by the second too.
    let known = owned(nodes);
    for node in nodes {
        for gone in known.difference(wanted) {
            node.disengage(gone)?;
        }
        for tenant in wanted {
            node.engage(tenant)?;
        }
    }
    Ok(())
}

fn owned(nodes: &[Node]) -> BTreeSet<ShardId> {
    nodes.iter().flat_map(Node::owned).collect()
}
