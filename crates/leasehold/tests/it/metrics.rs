//! Metrics as a recorder sees them: described, complete also for one that is installed late, and by group.

use std::time::Duration;

use leasehold::registry::{Registry, RegistryOptions};
use leasehold::{Client, ClientOptions, Group};
use metrics::Unit;

use crate::bench::{Bench, cut, until};
use crate::recorder::{Kept, documented};

#[tokio::test(start_paused = true)]
async fn recorders_are_told_what_the_documentation_says() {
    let kept = Kept::default();
    let _metrics = metrics::set_default_local_recorder(&kept);
    let bench = Bench::new();
    let node = bench.node("a").start().await.unwrap();
    node.attached().await.unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    let (rows, described) = (documented(), kept.described());
    assert!(rows.len() > 30);
    assert_eq!(rows.keys().collect::<Vec<_>>(), described.keys().collect::<Vec<_>>());
    for (name, told) in &described {
        let row = &rows[name];
        assert_eq!((row.kind.as_str(), &row.help), (told.kind, &told.help), "{name}");
        assert_eq!(name.ends_with("_seconds"), told.unit == Some(Unit::Seconds), "{name}");
        assert_eq!(name.ends_with("_total"), told.kind == "counter", "{name}");
        assert_eq!(told.times, 1, "{name}");
    }
    node.leave().await;
}

#[tokio::test(start_paused = true)]
async fn a_recorder_that_is_installed_late_sees_all_gauges() {
    let bench = Bench::new();
    let node = bench
        .node("a")
        .group(Group::numbered("orders", 3), bench.witness.worker("a"))
        .group(Group::leader("cron"), bench.witness.worker("a"))
        .start()
        .await
        .unwrap();
    let options = ClientOptions { clock: bench.clock.clone(), name: "router".into(), ..Default::default() };
    let client = Client::open_with(bench.store(), options).await.unwrap();
    until("all run", 10, || bench.witness.at_work("a") == 4).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let kept = Kept::default();
    let _metrics = metrics::set_default_local_recorder(&kept);
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert_eq!(kept.get("leasehold_attached node=a"), 1.0);
    assert_eq!(kept.get("leasehold_nodes node=a"), 1.0);
    assert!(kept.get("leasehold_deadline_seconds node=a") > 5.0);
    assert_eq!(kept.get("leasehold_fenced_total node=a"), 0.0);
    for (group, shards) in [("orders", 3.0), ("cron", 1.0)] {
        let get = |name: &str| kept.get(&format!("leasehold_shards_{name} node=a group={group}"));
        assert_eq!((get("owned"), get("wanted"), get("running")), (shards, shards, shards));
        assert_eq!((get("unowned"), get("quarantined"), get("stuck")), (0.0, 0.0, 0.0));
    }
    assert_eq!(kept.get("leasehold_client_fresh client=router"), 1.0);
    assert!(client.is_fresh());
    assert!(!kept.described().is_empty());
    node.leave().await;
    assert_eq!(kept.get("leasehold_attached node=a"), 0.0);
    assert_eq!(kept.get("leasehold_shards_owned node=a group=orders"), 0.0);
    assert_eq!(kept.get("leasehold_shards_running node=a group=orders"), 0.0);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_lost_its_store_shows_it() {
    let kept = Kept::default();
    let _metrics = metrics::set_default_local_recorder(&kept);
    let bench = Bench::new();
    let link = bench.link();
    let options = ClientOptions { clock: bench.clock.clone(), ..ClientOptions::default() };
    let client = Client::open_with(link.clone(), options).await.unwrap();
    tokio::time::sleep(Duration::from_secs(25)).await;
    let of = |name: &str| kept.get(&format!("leasehold_client_{name} client=client"));
    assert_eq!((of("fresh"), of("watch_interruptions_total")), (1.0, 0.0));
    assert!(kept.get("leasehold_client_listings_total client=client result=ok") >= 2.0);
    cut(&link);
    tokio::time::sleep(Duration::from_secs(40)).await;
    assert_eq!(of("fresh"), 0.0);
    assert!(!client.is_fresh() && of("heard_seconds") > 30.0);
    assert!(kept.get("leasehold_client_listings_total client=client result=failed") >= 1.0);
    link.heal();
    until("it is fresh again", 30, || client.is_fresh()).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(of("fresh"), 1.0);
    assert!(of("heard_seconds") < 12.0);
}

#[tokio::test(start_paused = true)]
async fn a_registry_without_a_node_describes_its_metrics() {
    let kept = Kept::default();
    let _metrics = metrics::set_default_local_recorder(&kept);
    let bench = Bench::new();
    let registry = Registry::with_virtual_time(bench.store(), RegistryOptions::default()).unwrap();
    registry.register("key", "value").await.unwrap();
    assert_eq!(kept.get("leasehold_registry_keys store=memory ttl=15"), 1.0);
    assert_eq!(kept.described()["leasehold_registry_keys"].kind, "gauge");
    registry.close().await;
}
