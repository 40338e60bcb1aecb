use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_core::event::StopReason;
use leasehold_core::notice::{Cause, QuarantineEnds, SessionState};
use leasehold_core::record::MoveReason;
use leasehold_core::store::{Key as RecordKey, Lane, Op, WatchEvent};
use leasehold_core::view::{Problem, ProblemKind, ShardPhase};
use leasehold_core::{Epoch, Moment, Notice, SessionId, ShardId};
use metrics::{Counter, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};

use super::{ClientMeters, Meters};
use crate::{Group, Node};

/// Keeps the labels of every metric, and what gauges show.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<BTreeMap<String, BTreeSet<String>>>>, Arc<Mutex<BTreeMap<String, f64>>>);

struct Shown(Told, String);

impl GaugeFn for Shown {
    fn increment(&self, _: f64) {}
    fn decrement(&self, _: f64) {}
    fn set(&self, value: f64) {
        self.0.1.lock().unwrap().insert(self.1.clone(), value);
    }
}

impl Told {
    fn note(&self, key: &Key) {
        let labels = key.labels().map(|label| label.key().to_owned()).collect();
        self.0.lock().unwrap().insert(key.name().to_owned(), labels);
    }

    fn shows(&self, gauge: &str) -> f64 {
        self.1.lock().unwrap()[gauge]
    }
}

impl Recorder for Told {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        self.note(key);
        Counter::noop()
    }
    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        self.note(key);
        let values: Vec<&str> = key.labels().skip(1).map(|label| label.value()).collect();
        let name = [&[key.name()], &values[..]].concat().join(" ");
        Gauge::from_arc(Arc::new(Shown(self.clone(), name)))
    }
    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        self.note(key);
        Histogram::noop()
    }
}

/// The labels of each metric of nodes and clients, as documented.
fn documented() -> BTreeMap<String, BTreeSet<String>> {
    let rows =
        include_str!("../observe.rs").lines().filter_map(|line| line.strip_prefix("//! | `leasehold_"));
    let rows = rows.map(|row| {
        let cells: Vec<&str> = row.split(" | ").collect();
        let labels = cells[2].split(", ").map(|label| label.trim_matches('`').to_owned()).collect();
        (format!("leasehold_{}", cells[0].trim_matches('`')), labels)
    });
    rows.filter(|(name, _)| !name.starts_with("leasehold_registry_")).collect()
}

fn notices() -> Vec<Notice> {
    let shard: ShardId = "orders/1".parse().unwrap();
    let (epoch, session, took) = (Epoch(1), SessionId::from_bits(1), Duration::from_millis(5));
    let (to, cause) = (SessionState::Detached, Cause::Fenced);
    vec![
        Notice::StateChanged { from: SessionState::Attached, to, cause, after: took },
        Notice::Renewed { took },
        Notice::RenewalFailed { streak: 1, error: "no".into() },
        Notice::Started { shard: shard.clone(), epoch, why: MoveReason::Failover, unowned_for: Some(took) },
        Notice::Stopping { shard: shard.clone(), epoch, why: StopReason::Moving },
        Notice::Released { shard: shard.clone(), epoch, why: MoveReason::Drain, successor: None },
        Notice::WorkEnded { shard: shard.clone(), epoch, error: Some("no".into()), again_after: took },
        Notice::Stuck { shard: shard.clone(), epoch },
        Notice::Quarantined { shard, epoch, error: "boom".into(), ends: QuarantineEnds::ByOperator },
        Notice::NoRoom { group: "orders".parse().unwrap(), shards: 1 },
        Notice::Retried { shards: 1 },
        Notice::RetriesExhausted { shards: 1 },
        Notice::Fenced { node: "b".parse().unwrap(), session, silent_for: took },
        Notice::NameTaken { node: "a".parse().unwrap(), session },
        Notice::CorruptRecord { key: RecordKey::Meta, error: "no".into() },
    ]
}

#[tokio::test(start_paused = true)]
async fn every_metric_in_the_table_is_told_with_the_labels_of_its_row() {
    let node = Node::solo().virtual_time().group(Group::numbered("orders", 3), |grant| async move {
        grant.stopped().await;
    });
    let node = node.start().await.unwrap();
    node.until(|view| view.me.as_ref().is_some_and(|me| me.held == 3)).await.unwrap();
    let mut view = (*node.view()).clone();
    view.shards[0].state = ShardPhase::Quarantined;
    view.shards[1].state = ShardPhase::Stuck;
    let problem = |kind| Problem::new(kind, "orders/0", "");
    view.problems = vec![problem(ProblemKind::Quarantined), problem(ProblemKind::Stuck)];

    let told = Told::default();
    metrics::with_local_recorder(&told, || {
        let (meters, took) =
            (Meters::new(node.name(), Duration::from_secs(10), node.vitals()), Duration::from_millis(5));
        let running = [("orders".parse().unwrap(), 2)].into();
        meters.view(&view, &running, Moment::from_millis(7));
        let of_orders = |name: &str| told.shows(&format!("leasehold_shards_{name} orders"));
        assert_eq!((of_orders("owned"), of_orders("wanted"), of_orders("running")), (3.0, 3.0, 2.0));
        assert_eq!((of_orders("quarantined"), of_orders("stuck")), (1.0, 1.0));
        assert_eq!(told.shows("leasehold_problems stuck"), 1.0);
        assert_eq!(of_orders("wanted"), told.shows("leasehold_shards orders"));
        assert_eq!(told.shows("leasehold_session_state attached"), 1.0);
        assert_eq!(told.shows("leasehold_session_state degraded"), 0.0);
        assert_eq!((told.shows("leasehold_ttl_seconds"), told.shows("leasehold_weight")), (10.0, 100.0));
        assert_eq!(told.shows("leasehold_capacity"), f64::INFINITY);
        let stop_in = told.shows("leasehold_deadline_seconds");
        meters.again(Moment::from_millis(1007));
        let left = told.shows("leasehold_deadline_seconds");
        assert!((stop_in - left - 1.0).abs() < 1e-6, "it counts down between views: {stop_in} {left}");

        view.problems.clear();
        view.shards.clear();
        meters.view(&view, &running, Moment::from_millis(1007));
        assert_eq!((of_orders("owned"), of_orders("quarantined"), of_orders("stuck")), (0.0, 0.0, 0.0));
        assert_eq!(told.shows("leasehold_problems stuck"), 0.0, "what is over is set to zero");
        meters.gone();
        assert_eq!((told.shows("leasehold_attached"), of_orders("running")), (0.0, 2.0));
        assert_eq!(told.shows("leasehold_session_state left"), 1.0);

        notices().iter().for_each(|notice| meters.tell(notice, Moment::from_millis(1007)));
        meters.store_call(Lane::Work, &Op::List, true, took);
        meters.watched(&WatchEvent::Interrupted("no".into()));
        meters.planned(took);
        let client = ClientMeters::new("router".into());
        client.set(true, took);
        client.listed(false);
        client.interrupted();
    });
    assert_eq!(*told.0.lock().unwrap(), documented());
    node.leave().await;
}
