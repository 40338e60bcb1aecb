//! A controller of many clusters: at most one replica at a time reconciles a remote cluster.
//!
//! The clusters are Secrets with the label `leasehold.dev/cluster=true` and a kubeconfig, in the namespace where the
//! replicas meet. Start it as often as you like:
//!
//! ```text
//! NODE=a STORE='k8s://workers?kubeconfig=…' cargo run -p leasehold-kubernetes --example clusters
//! ```
//!
//! In every cluster that it owns it keeps the ConfigMap `leasehold-<cluster>`, which counts its own reconciliations and
//! has the epoch that wrote it last: a replica that was out of step cannot write over a later one. Each reconciliation
//! is told on standard output as `cluster epoch began ended`, in milliseconds of the boot clock.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use leasehold::{BoxError, Grant, Group, Moment, Node, ShardId, clock};
use leasehold_kubernetes::{Cluster, ClusterChange, Clusters, Kubernetes, Options};
use tokio::signal::unix::{SignalKind, signal};

const EVERY: Duration = Duration::from_millis(200);
/// The longest pause after failures in a row, each of which doubles it.
const PAUSE_MAX: Duration = Duration::from_secs(10);
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

#[tokio::main]
pub(crate) async fn main() -> Result<(), BoxError> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    let options = Options::parse(&std::env::var("STORE")?)?;
    let store = Arc::new(Kubernetes::open_with(options.clone(), "clusters"));
    let clusters = Arc::new(Clusters::new(options));
    let me: Arc<OnceLock<Weak<Node>>> = Arc::default();
    let mut node = Node::builder(store).name(std::env::var("NODE")?);
    if std::env::var_os("NEW_NAMESPACE").is_some() {
        node = node.new_namespace();
    }
    let work = (clusters.clone(), me.clone());
    let node = node.group(Group::named("clusters"), move |grant| {
        let (clusters, me) = work.clone();
        async move { look_after(&grant, &clusters, &me).await }
    });
    let node = Arc::new(node.start().await?);
    let _ = me.set(Arc::downgrade(&node));
    let mut terminated = signal(SignalKind::terminate())?;
    let provide = clusters.follow(|change| {
        let told = match &change {
            ClusterChange::There(name) => shard(name).and_then(|shard| Ok(node.engage(&shard)?)),
            ClusterChange::Gone(name) => shard(name).and_then(|shard| Ok(node.disengage(&shard)?)),
        };
        if let Err(error) = told {
            eprintln!("{change:?}: {error}");
        }
    });
    tokio::select! {
        never = provide => match never {},
        _ = terminated.recv() => {}
    }
    alone(node).await.leave().await;
    Ok(())
}

/// The node, once nobody asks it just now whether a cluster is ours.
async fn alone(mut node: Arc<Node>) -> Node {
    loop {
        match Arc::try_unwrap(node) {
            Ok(node) => return node,
            Err(shared) => node = shared,
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn shard(cluster: &str) -> Result<ShardId, BoxError> {
    Ok(format!("clusters/{cluster}").parse()?)
}

/// Reconciles one cluster for as long as it is ours.
async fn look_after(grant: &Grant, clusters: &Clusters, me: &OnceLock<Weak<Node>>) -> Result<(), BoxError> {
    let name = grant.shard().name.as_str();
    let mut client = None;
    let (mut pause, mut last) = (EVERY, String::new());
    while !grant.stopping().is_cancelled() {
        // Asked where it matters: right before the write, not only at the start.
        let owned = me.get().and_then(Weak::upgrade).is_some_and(|node| node.owns(grant.shard()));
        if let Some(cluster) = clusters.get(name).filter(|_| owned) {
            let began_at = clock::now();
            let reconciled = reconcile_with(&mut client, &cluster, grant);
            let failed = match tokio::time::timeout(ANSWER_WITHIN, reconciled).await {
                Ok(Ok(())) => {
                    println!("{name} {} {} {}", grant.epoch(), ms(began_at), ms(clock::now()));
                    None
                }
                Ok(Err(error)) => Some(in_short(&error)),
                Err(_) => Some(format!("no answer within {ANSWER_WITHIN:?}")),
            };
            pause = if failed.is_some() { PAUSE_MAX.min(pause * 2) } else { EVERY };
            if failed.is_some() {
                // There may be a new kubeconfig by the next try.
                client = None;
            }
            // What was said once is not said again until something changes.
            let now = failed.unwrap_or_default();
            if now != last && !now.is_empty() {
                eprintln!("{name}: {now}");
            }
            last = now;
        }
        tokio::select! {
            () = grant.stopped() => {}
            () = tokio::time::sleep(pause) => {}
        }
    }
    Ok(())
}

/// Reconciles with the client that there is, or with a new one. A kubeconfig that no client can be made of is a failure
/// like any other, which ends when its Secret is mended: an error of the handler would count as a crash.
async fn reconcile_with(
    client: &mut Option<Client>,
    cluster: &Cluster,
    grant: &Grant,
) -> Result<(), BoxError> {
    let made = match client.take() {
        Some(made) => made,
        None => cluster.client().await?,
    };
    let made = client.insert(made).clone();
    reconcile(&Api::namespaced(made, "default"), grant).await
}

/// An error in one line: what the API server answers is a whole object.
fn in_short(error: &BoxError) -> String {
    match error.downcast_ref::<kube::Error>() {
        Some(kube::Error::Api(status)) => format!("{} {}", status.code, status.message),
        _ => error.to_string().lines().next().unwrap_or_default().to_owned(),
    }
}

/// Counts once more, unless a later epoch was here: the resourceVersion makes reading and writing one step.
async fn reconcile(api: &Api<ConfigMap>, grant: &Grant) -> Result<(), BoxError> {
    let name = format!("leasehold-{}", grant.shard().name);
    let found = api.get_opt(&name).await?;
    let number = |map: &ConfigMap, field: &str| -> u64 {
        let text = map.data.as_ref().and_then(|data| data.get(field));
        text.and_then(|text| text.parse().ok()).unwrap_or(0)
    };
    let epoch = grant.epoch().0;
    let mut map = found.unwrap_or_default();
    if number(&map, "epoch") > epoch {
        return Err(format!("a later owner was here: epoch {}", number(&map, "epoch")).into());
    }
    let data = [("counter", number(&map, "counter") + 1), ("epoch", epoch)];
    map.data = Some(
        data.map(|(field, value)| (field.to_owned(), value.to_string()))
            .into_iter()
            .collect::<BTreeMap<_, _>>(),
    );
    grant.check()?;
    match map.metadata.resource_version.is_some() {
        true => api.replace(&name, &PostParams::default(), &map).await?,
        false => {
            map.metadata = ObjectMeta { name: Some(name), ..ObjectMeta::default() };
            api.create(&PostParams::default(), &map).await?
        }
    };
    Ok(())
}

fn ms(at: Moment) -> u128 {
    at.since(Moment::ZERO).as_millis()
}
