use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_core::ShardId;
use leasehold_core::notice::SessionState;
use metrics::{Counter, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};

use super::Input;
use crate::clock::Clock;
use crate::error::Error;
use crate::{Finish, Group, Node};

/// Keeps what gauges show.
#[derive(Clone, Default)]
struct Gauges(Arc<Mutex<BTreeMap<String, Arc<Shown>>>>);

#[derive(Default)]
struct Shown(AtomicU64);

impl GaugeFn for Shown {
    fn increment(&self, _: f64) {}
    fn decrement(&self, _: f64) {}
    fn set(&self, value: f64) {
        self.0.store(value.to_bits(), Ordering::Relaxed);
    }
}

impl Gauges {
    /// The gauges of nodes that do not show zero, without those that say what the process is.
    fn not_zero(&self) -> Vec<String> {
        let all = self.0.lock().unwrap();
        let shows = |shown: &Arc<Shown>| f64::from_bits(shown.0.load(Ordering::Relaxed)) != 0.0;
        let lasting = ["leasehold_info", "leasehold_session_state", "leasehold_ttl_seconds"];
        let of_nodes =
            all.iter().filter(|(name, _)| !name.contains("registry") && !lasting.contains(&name.as_str()));
        of_nodes.filter(|(_, shown)| shows(shown)).map(|(name, _)| name.clone()).collect()
    }
}

impl Recorder for Gauges {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        Counter::noop()
    }
    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        let mut all = self.0.lock().unwrap();
        Gauge::from_arc(all.entry(key.name().to_owned()).or_default().clone())
    }
    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

/// A node with one handler that runs until it is told to stop, and then so much longer.
async fn node(stops_after: Duration) -> Node {
    let clock = Clock::virtual_time();
    let server = leasehold_store::MemoryServer::with_clock(move || clock.now());
    let node = Node::builder(Arc::new(server.open("test"))).name("a").ttl(Duration::from_secs(10));
    let node = node.new_namespace().virtual_time().group(Group::numbered("orders", 3), move |grant| {
        let guard = grant.guard();
        async move {
            grant.stopped().await;
            tokio::time::sleep(stops_after).await;
            drop(guard);
        }
    });
    let node = node.start().await.unwrap();
    node.until(|view| view.me.as_ref().is_some_and(|me| me.held == 3)).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    node
}

/// What a bug in the core, or in anything that it calls, does to the driver.
fn break_driver(node: &Node) {
    node.inputs.send(Input::Query(Box::new(|_, _| panic!("a bug")))).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_driver_that_dies_says_so_everywhere() {
    let gauges = Gauges::default();
    let _recording = metrics::set_default_local_recorder(&gauges);
    let node = node(Duration::from_secs(1)).await;
    let shard: ShardId = "orders/1".parse().unwrap();
    let grant = node.grant(&shard).unwrap();
    let drained = node.drain();
    assert!(gauges.not_zero().contains(&"leasehold_shards_owned".to_owned()));
    break_driver(&node);
    assert!(matches!(drained.await, Err(Error::Left)));
    let me = node.view().me.clone().unwrap();
    assert_eq!((me.session_state, me.held, me.wanted, me.session), (SessionState::Left, 0, 0, None));
    assert!(me.cause.contains("a bug"), "{}", me.cause);
    assert!(matches!(node.attached().await, Err(Error::Left)));
    assert!(matches!(node.explain(&shard).await, Err(Error::Left)));
    assert!(matches!(node.set_weight(7), Err(Error::Left)));
    assert!(grant.is_lost() && grant.stopping().is_cancelled() && node.owned().is_empty());
    assert_eq!(gauges.not_zero(), ["leasehold_shards_running"], "the work has a second to stop");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(gauges.not_zero().is_empty(), "{:?}", gauges.not_zero());
    assert_eq!(node.leave().await, Finish::Unconfirmed);
}

#[tokio::test(start_paused = true)]
async fn the_work_of_a_dead_driver_is_cut_off_at_the_deadline_of_its_session() {
    let node = node(Duration::from_secs(3600)).await;
    let grant = node.grant(&"orders/1".parse().unwrap()).unwrap();
    let kill_at = grant.session().kill_at();
    break_driver(&node);
    assert_eq!(node.until_left().await, Finish::Unconfirmed);
    assert!(grant.is_lost() && !grant.killed().is_cancelled());
    grant.killed().cancelled().await;
    assert_eq!(node.now(), kill_at);
}
