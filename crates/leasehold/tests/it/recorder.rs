//! A recorder of metrics that remembers what it was told.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};

/// Keeps the names and labels of all metrics, what was counted, and how they were described.
#[derive(Clone, Default)]
pub(crate) struct Kept {
    counts: Arc<Mutex<BTreeMap<String, Arc<Count>>>>,
    described: Arc<Mutex<BTreeMap<String, Described>>>,
}

/// How a metric was described.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Described {
    pub(crate) kind: &'static str,
    pub(crate) unit: Option<Unit>,
    pub(crate) help: String,
    pub(crate) times: u32,
}

/// A row of the table in the module's documentation.
pub(crate) struct Row {
    pub(crate) kind: String,
    pub(crate) labels: BTreeSet<String>,
    pub(crate) help: String,
}

/// The table in the module's documentation.
pub(crate) fn documented() -> BTreeMap<String, Row> {
    let source = include_str!("../../src/observe.rs");
    let rows = source.lines().filter_map(|line| line.strip_prefix("//! | `leasehold_"));
    let row = |row: &str| {
        let cells: Vec<&str> = row.trim_end_matches(" |").split(" | ").collect();
        let [name, kind, labels, help] = cells[..] else { panic!("{row}") };
        let labels = labels.split(", ").map(|label| label.trim_matches('`').to_owned()).collect();
        let name = format!("leasehold_{}", name.trim_matches('`'));
        (name, Row { kind: kind.to_owned(), labels, help: help.to_owned() })
    };
    rows.map(row).collect()
}

#[derive(Default)]
struct Count(std::sync::atomic::AtomicU64);

impl Kept {
    fn count(&self, key: &Key) -> Arc<Count> {
        let mut text = key.name().to_owned();
        for label in key.labels() {
            write!(text, " {}={}", label.key(), label.value()).unwrap();
        }
        self.counts.lock().unwrap().entry(text).or_default().clone()
    }

    fn describe(&self, kind: &'static str, name: &KeyName, unit: Option<Unit>, help: &SharedString) {
        let mut all = self.described.lock().unwrap();
        let new = Described { kind, unit, help: help.to_string(), times: 0 };
        all.entry(name.as_str().to_owned()).or_insert(new).times += 1;
    }

    /// How each metric was described.
    pub(crate) fn described(&self) -> BTreeMap<String, Described> {
        self.described.lock().unwrap().clone()
    }

    /// Each metric that was told, with the values of its labels.
    pub(crate) fn keys(&self) -> Vec<String> {
        self.counts.lock().unwrap().keys().cloned().collect()
    }

    /// The labels of each metric that was told.
    pub(crate) fn labels(&self) -> BTreeMap<String, BTreeSet<String>> {
        let of = |key: String| {
            let mut words = key.split(' ');
            let name = words.next().unwrap_or_default().to_owned();
            (name, words.filter_map(|label| Some(label.split_once('=')?.0.to_owned())).collect())
        };
        self.keys().into_iter().map(of).collect()
    }

    /// What a metric shows.
    pub(crate) fn get(&self, text: &str) -> f64 {
        let kept = self.counts.lock().unwrap();
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
    fn describe_counter(&self, name: KeyName, unit: Option<Unit>, help: SharedString) {
        self.describe("counter", &name, unit, &help);
    }
    fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, help: SharedString) {
        self.describe("gauge", &name, unit, &help);
    }
    fn describe_histogram(&self, name: KeyName, unit: Option<Unit>, help: SharedString) {
        self.describe("histogram", &name, unit, &help);
    }
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
