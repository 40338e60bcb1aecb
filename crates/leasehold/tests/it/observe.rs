//! What people see: each change logged once at the right level, and metrics that are all in the table.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::sync::Once;
use std::time::Duration;

use leasehold::{Grant, Group};
use tracing::field::{Field, Visit};
use tracing::{Level, span};

use crate::bench::{Bench, cut, until};
use crate::recorder::{Kept, documented};

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
    assert_eq!(kept.get("leasehold_shards_owned node=a group=orders"), 3.0);
    assert_eq!(kept.get("leasehold_shards_running node=a group=orders"), 3.0);
    assert_eq!(kept.get("leasehold_shards_unowned node=a group=orders"), 0.0);
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

    let line = |level, from: &str, to: &str| (level, format!(" from={from:?} to={to:?}"));
    let states = Log::lines(" from=").into_iter().map(|(level, line)| {
        let at = line.find(" from=").expect("it was asked for");
        (level, line[at..].to_owned())
    });
    assert_eq!(
        states.collect::<Vec<_>>(),
        [
            line(Level::INFO, "joining", "attached"),
            line(Level::WARN, "attached", "degraded"),
            line(Level::WARN, "degraded", "detached"),
            line(Level::INFO, "detached", "recovering"),
            line(Level::INFO, "recovering", "attached"),
            line(Level::INFO, "attached", "left"),
        ]
    );
    let waves: Vec<String> =
        Log::lines("orders/0, orders/1, orders/2 started").into_iter().map(|(_, line)| line).collect();
    assert_eq!(waves.len(), 2, "three shards, twice: {waves:?}");
    let stopped = Log::lines(" told to stop");
    assert_eq!(stopped.len(), 1, "{stopped:?}");
    assert!(stopped[0].1.ends_with(": detached"), "{stopped:?}");
    let rows = documented();
    let told = kept.labels();
    for (name, labels) in &told {
        let row = rows.get(name).unwrap_or_else(|| panic!("{name} is not in the table"));
        assert_eq!(&row.labels, labels, "{name}");
    }
    for name in rows.keys().filter(|name| name.starts_with("leasehold_registry_")) {
        assert!(told.contains_key(name), "{name} was never told");
    }
    assert!(!kept.keys().iter().any(|metric| metric.contains("orders/")), "a metric names a shard");
}

#[tokio::test(start_paused = true)]
async fn a_filter_that_keeps_errors_keeps_the_span_of_a_shard() {
    Log::start();
    let (grant, _lease) = Grant::for_test("orders/3", 7, Duration::from_secs(10));
    let span = grant.span().metadata().expect("it is enabled");
    assert_eq!((span.name(), *span.level()), ("leasehold.shard", Level::ERROR));
    let fields: Vec<&str> = span.fields().iter().map(|field| field.name()).collect();
    assert_eq!(fields, ["group", "shard", "epoch"]);
}
