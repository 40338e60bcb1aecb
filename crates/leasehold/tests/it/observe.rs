//! What people see: each change logged once at the right level, and metrics that are all in the table.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, Once};
use std::time::Duration;

use leasehold::Group;
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use tracing::field::{Field, Visit};
use tracing::{Level, span};

use crate::bench::{Bench, cut, until};

/// Keeps the names and labels of all metrics, and what was counted.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<BTreeMap<String, Arc<Count>>>>);

#[derive(Default)]
struct Count(std::sync::atomic::AtomicU64);

impl Kept {
    fn count(&self, key: &Key) -> Arc<Count> {
        let mut text = key.name().to_owned();
        for label in key.labels() {
            write!(text, " {}={}", label.key(), label.value()).unwrap();
        }
        self.0.lock().unwrap().entry(text).or_default().clone()
    }

    fn get(&self, text: &str) -> f64 {
        let kept = self.0.lock().unwrap();
        let count = kept.get(text).unwrap_or_else(|| panic!("no {text} in {:#?}", kept.keys()));
        f64::from_bits(count.0.load(std::sync::atomic::Ordering::Relaxed))
    }
}

impl Count {
    fn change(&self, by: impl Fn(f64) -> f64) {
        let change = |bits| Some(by(f64::from_bits(bits)).to_bits());
        let order = std::sync::atomic::Ordering::Relaxed;
        let _ = self.0.fetch_update(order, order, change);
    }
}

impl metrics::CounterFn for Count {
    fn increment(&self, value: u64) {
        self.change(|old| old + value as f64);
    }
    fn absolute(&self, value: u64) {
        self.change(|_| value as f64);
    }
}

impl metrics::GaugeFn for Count {
    fn increment(&self, value: f64) {
        self.change(|old| old + value);
    }
    fn decrement(&self, value: f64) {
        self.change(|old| old - value);
    }
    fn set(&self, value: f64) {
        self.change(|_| value);
    }
}

impl metrics::HistogramFn for Count {
    fn record(&self, _: f64) {
        self.change(|old| old + 1.0);
    }
}

impl Recorder for Kept {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.count(key))
    }
    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.count(key))
    }
    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.count(key))
    }
}

thread_local! {
    /// The log lines of this thread, while a test wants them. A test under virtual time has one thread.
    static LINES: RefCell<Option<Vec<(Level, String)>>> = const { RefCell::new(None) };
}

/// Keeps the log lines of the library from level `INFO` up, for whichever thread wants them. It is the same for all
/// threads, because tracing remembers for the whole process which lines nobody wants.
struct Log;

impl Log {
    fn start() {
        static SET: Once = Once::new();
        SET.call_once(|| tracing::subscriber::set_global_default(Log).expect("no test sets another one"));
        LINES.set(Some(Vec::new()));
    }

    fn lines(containing: &str) -> Vec<(Level, String)> {
        let lines = LINES.with_borrow(|lines| lines.clone()).unwrap_or_default();
        lines.into_iter().filter(|(_, line)| line.contains(containing)).collect()
    }
}

impl tracing::Subscriber for Log {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target().starts_with("leasehold") && *metadata.level() <= Level::INFO
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        let mut line = Line::default();
        event.record(&mut line);
        LINES.with_borrow_mut(|lines| {
            lines.as_mut().map(|lines| lines.push((*event.metadata().level(), line.0)))
        });
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

#[derive(Default)]
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        match field.name() {
            "message" => self.0.insert_str(0, &format!("{value:?}")),
            "from" | "to" | "shard" => write!(self.0, " {}={value:?}", field.name()).unwrap(),
            _ => {}
        }
    }
}

/// The names in the table of the module's documentation.
fn documented() -> BTreeSet<String> {
    let source = include_str!("../../src/observe.rs");
    let rows = source.lines().filter_map(|line| line.strip_prefix("//! | `"));
    rows.filter_map(|row| Some(row.split_once('`')?.0.to_owned())).collect()
}

#[tokio::test(start_paused = true)]
async fn every_change_is_logged_once_and_counted_without_shards() {
    let kept = Kept::default();
    let _metrics = metrics::set_default_local_recorder(&kept);
    Log::start();
    let bench = Bench::new();
    let link = bench.link();
    let node = bench
        .node_on("a", link.clone())
        .group(Group::numbered("orders", 3), bench.witness.worker("a"))
        .start()
        .await
        .unwrap();
    node.register("key", "value").await.unwrap();
    until("all run", 10, || bench.witness.at_work("a") == 3).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(kept.get("leasehold_attached node=a"), 1.0);
    assert_eq!(kept.get("leasehold_shards_owned node=a"), 3.0);
    assert_eq!(kept.get("leasehold_shards_running node=a"), 3.0);
    assert_eq!(kept.get("leasehold_shards_unowned node=a"), 0.0);
    assert!(kept.get("leasehold_renewals_total node=a result=ok") >= 9.0);
    assert!(kept.get("leasehold_deadline_seconds node=a") > 5.0);
    cut(&link);
    until("it is detached", 20, || node.owned().is_empty()).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(kept.get("leasehold_attached node=a"), 0.0);
    assert!(kept.get("leasehold_renewals_total node=a result=failed") >= 3.0);
    link.heal();
    until("all run again", 60, || bench.witness.at_work("a") == 3).await;
    node.leave().await;
    tokio::time::sleep(Duration::from_secs(1)).await;

    let line = |level, from: &str, to: &str| (level, format!("session state changed from={from} to={to}"));
    assert_eq!(
        Log::lines("session state"),
        [
            line(Level::INFO, "joining", "attached"),
            line(Level::WARN, "attached", "degraded"),
            line(Level::WARN, "degraded", "detached"),
            line(Level::INFO, "detached", "recovering"),
            line(Level::INFO, "recovering", "attached"),
            line(Level::INFO, "attached", "left"),
        ]
    );
    assert_eq!(Log::lines("shard started").len(), 6, "three shards, twice");
    let known = documented();
    for metric in kept.0.lock().unwrap().keys() {
        let name = metric.split(' ').next().unwrap();
        assert!(known.contains(name), "{name} is not in the table");
        assert!(!metric.contains("orders"), "{metric} names a shard or group");
    }
}
