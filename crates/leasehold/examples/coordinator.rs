//! A coordinator of one's own: a [`Placement`] that spreads shards by what they cost, not by how many there are.
//!
//! No process coordinates. Every node computes the plan for itself, so the answer may depend on nothing but the question: not on
//! time, chance, I/O, or what this node runs. The table of costs is part of the rule, so a change of it is a new version of the rule.

mod sink;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use leasehold::placement::{Assignment, Placement, Question, Rendezvous};
use leasehold::store::MemoryServer;
use leasehold::{BoxError, Builder, Client, ClientOptions, Grant, Group, Node, Outcome, ShardId};
use sink::Sink;

/// What tenants cost that are not ordinary.
const COSTS: [(&str, u64); 2] = [("acme", 9), ("globex", 4)];

/// Gives each shard, the most expensive first, to the candidate that is the least loaded for its weight.
struct ByCost;

impl ByCost {
    fn cost(shard: &ShardId) -> u64 {
        COSTS.iter().find(|(name, _)| *name == shard.name.as_str()).map_or(1, |(_, cost)| *cost)
    }

    /// Whether a candidate may have a shard at all. One of weight 0 gets only what is pinned to it.
    fn may_have(question: &Question, shard: &ShardId, node: usize) -> bool {
        let candidate = &question.nodes[node];
        let declines = question.declined.get(shard).is_some_and(|by| by.contains(&candidate.name));
        let pinned_here = question.pins.get(shard) == Some(&candidate.name);
        !declines && (candidate.weight > 0 || pinned_here)
    }
}

impl Placement for ByCost {
    /// The rule and its version: another number for every change of the rule or of `COSTS`.
    fn id(&self) -> String {
        "example/by-cost/1".to_owned()
    }

    fn place(&self, question: &Question) -> Assignment {
        let mut to = vec![None; question.shards.len()];
        let mut held = vec![0_u32; question.nodes.len()];
        let mut load = vec![0_u64; question.nodes.len()];
        // Pinned shards first, so that nothing else takes their room; then by cost; then by name.
        let mut order: Vec<usize> = (0..question.shards.len()).collect();
        order.sort_by_key(|&at| {
            let shard = &question.shards[at];
            (!question.pins.contains_key(shard), Reverse(Self::cost(shard)), at)
        });
        for at in order {
            let shard = &question.shards[at];
            let open = |node: &usize| {
                Self::may_have(question, shard, *node)
                    && question.nodes[*node].capacity.is_none_or(|most| held[*node] < most)
            };
            let pinned = question.pins.get(shard);
            let pinned = pinned.and_then(|name| question.nodes.iter().position(|node| node.name == *name));
            let least_loaded = || {
                (0..question.nodes.len()).filter(open).min_by_key(|&node| {
                    // Integers only, and ties broken by the order of names: the same on every machine.
                    (
                        (load[node] + Self::cost(shard)) * 1_000_000
                            / u64::from(question.nodes[node].weight.max(1)),
                        node,
                    )
                })
            };
            let Some(node) = pinned.filter(open).or_else(least_loaded) else { continue };
            held[node] += 1;
            load[node] += Self::cost(shard);
            to[at] = Some(node as u32);
        }
        Assignment { to }
    }

    /// Who takes a shard if the planned node does not: the built-in order will do.
    fn rank(&self, question: &Question, shard: &ShardId) -> Vec<u32> {
        let mut ranked = Rendezvous.rank(question, shard);
        ranked.retain(|&node| Self::may_have(question, shard, node as usize));
        ranked
    }
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let signal = leasehold::shutdown_signal();
    let sink = Arc::new(Sink::default());
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [address, name] = &args[..] {
        let node = Node::builder(leasehold::store::open(address, "example")?);
        worker(node, name, &sink).await?.leave_on(signal).await;
        return Ok(());
    }
    tokio::select! {
        () = signal => Ok(()),
        shown = show(&sink) => shown,
    }
}

async fn worker(node: Builder, name: &str, sink: &Arc<Sink>) -> Result<Node, BoxError> {
    let sink = sink.clone();
    // All nodes of a namespace must use the same rule.
    let node = node.name(name).placement(ByCost);
    let node = node.group(Group::named("tenants"), move |grant| work(grant, sink.clone())).start().await?;
    node.set_engaged("tenants", ["acme", "globex", "hooli", "initech", "soylent", "umbrella", "wayne"])?;
    Ok(node)
}

async fn work(grant: Grant, sink: Arc<Sink>) -> Outcome {
    let mut done = 0;
    let mut requests = tokio::time::interval(Duration::from_millis(20));
    while grant.stopping().run_until_cancelled(requests.tick()).await.is_some() {
        done += ByCost::cost(grant.shard());
    }
    match grant.stop_reason() {
        Some(why) if why.is_planned() => {
            grant.check()?;
            sink.add(grant.shard(), grant.epoch(), done)?;
        }
        _ => println!("lost {}: another node may be serving it", grant.shard()),
    }
    Ok(())
}

/// Two nodes: one gets the expensive tenant and little else.
async fn show(sink: &Arc<Sink>) -> Result<(), BoxError> {
    let server = MemoryServer::new();
    let node = || Node::builder(server.open("example")).new_namespace();
    let nodes = [worker(node(), "a", sink).await?, worker(node(), "b", sink).await?];
    // Whoever explains or predicts a plan needs the same rule.
    let options = ClientOptions { placement: Some(Arc::new(ByCost)), ..ClientOptions::default() };
    let client = Client::open_with(server.open("example"), options).await?;
    let as_planned = |view: &leasehold::View| {
        view.shards.len() == 7
            && view.shards.iter().all(|shard| shard.holder.is_some() && shard.holder == shard.wanted)
    };
    client.until(as_planned).await;
    let mut loads = BTreeMap::new();
    for shard in &client.view().shards {
        let load = loads.entry(shard.holder.clone()).or_insert((0, Vec::new()));
        load.0 += ByCost::cost(&shard.id.0);
        load.1.push(shard.id.0.name.to_string());
    }
    for (node, (load, tenants)) in &loads {
        println!("{}: load {load}, {tenants:?}", node.as_ref().map_or("nobody", |node| node.as_str()));
    }
    if loads.values().any(|(load, _)| *load != 9) {
        return Err("the loads should be equal".into());
    }
    for node in nodes {
        node.leave().await;
    }
    Ok(())
}
