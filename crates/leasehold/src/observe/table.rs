//! Every metric with its kind and meaning, for recorders. A test compares this table with the one that users read.

use std::sync::atomic::{AtomicUsize, Ordering};

use metrics::{Recorder, Unit};

use Kind::{Count, Flag, Number, Seconds, Spread};

enum Kind {
    /// A counter.
    Count,
    /// A gauge that is 0 or 1.
    Flag,
    /// A gauge that counts things.
    Number,
    /// A gauge that shows a time.
    Seconds,
    /// A histogram of times.
    Spread,
}

const METRICS: &[(&str, Kind, &str)] = &[
    ("leasehold_info", Flag, "1; `version` is that of Leasehold"),
    ("leasehold_attached", Flag, "1 while the node has a valid session"),
    (
        "leasehold_session_state",
        Flag,
        "1 for the state of the node's session, 0 for all others; `state` is a `SessionState`",
    ),
    ("leasehold_draining", Flag, "1 while the node hands everything over"),
    ("leasehold_frozen", Flag, "1 while voluntary moves are frozen, as this node sees it"),
    ("leasehold_nodes", Number, "live nodes, as this node sees it"),
    (
        "leasehold_problems",
        Number,
        "problems that need an operator, as this node sees it; `kind` is a `ProblemKind`",
    ),
    ("leasehold_session_state_changes_total", Count, "changes of the node's session state"),
    ("leasehold_detachments_total", Count, "sessions that this node lost"),
    ("leasehold_renewals_total", Count, "renewals of the session; `result` is `ok` or `failed`"),
    ("leasehold_renewal_seconds", Spread, "from sending a renewal to its confirmation"),
    ("leasehold_renewal_failure_streak", Number, "renewals that failed in a row"),
    (
        "leasehold_deadline_seconds",
        Seconds,
        "time until work is told to stop, unless a renewal is confirmed; 0 without a session",
    ),
    ("leasehold_ttl_seconds", Seconds, "how long the node's session lives after its last renewal"),
    ("leasehold_weight", Number, "the node's weight in the plan; 0 without a session"),
    ("leasehold_capacity", Number, "the most shards that the node takes; +Inf without a limit or a session"),
    ("leasehold_name_conflicts_total", Count, "times that another live process used the node's name"),
    ("leasehold_shards", Number, "shards of the group, as this node sees it"),
    ("leasehold_shards_owned", Number, "shards that this node holds, whether their work runs or not"),
    ("leasehold_shards_wanted", Number, "shards that the plan gives to this node"),
    ("leasehold_shards_running", Number, "shards whose work runs here"),
    ("leasehold_shards_unowned", Number, "shards that nobody holds, as this node sees it"),
    (
        "leasehold_shards_quarantined",
        Number,
        "shards that this node holds and does not run, because their work kept failing",
    ),
    ("leasehold_shards_stuck", Number, "shards whose work was told to stop here and did not stop in time"),
    ("leasehold_starts_total", Count, "shards that started here, by the reason for the move"),
    ("leasehold_releases_total", Count, "shards that this node gave up, by the reason"),
    (
        "leasehold_handoff_gap_seconds",
        Spread,
        "how long a shard was without an owner, as seen here, before it started here",
    ),
    ("leasehold_work_failures_total", Count, "handlers that failed or panicked"),
    ("leasehold_stuck_total", Count, "times that the work of a shard did not stop in time"),
    (
        "leasehold_quarantined_total",
        Count,
        "times that a shard was quarantined because its work kept failing",
    ),
    (
        "leasehold_no_room_total",
        Count,
        "times that no node could take shards of the group: each was full or declined them",
    ),
    (
        "leasehold_acquire_retries_total",
        Count,
        "times that the node read a shard that it wants again, in case the watch missed a change",
    ),
    ("leasehold_acquire_exhausted_total", Count, "retry windows that ended without getting the shard"),
    ("leasehold_fenced_total", Count, "sessions of other nodes that this node fenced"),
    ("leasehold_corrupt_records_total", Count, "records that are damaged or not written by Leasehold"),
    ("leasehold_plan_seconds", Spread, "the time for a step that made a new plan"),
    ("leasehold_store_calls_total", Count, "calls to the store; `result` is `ok` or `failed`"),
    ("leasehold_store_call_seconds", Spread, "how long calls to the store took"),
    (
        "leasehold_store_silent_seconds",
        Seconds,
        "time since the store last answered, or since the start if it never did",
    ),
    (
        "leasehold_watch_interruptions_total",
        Count,
        "times that the watch of the store broke off; it is opened again",
    ),
    ("leasehold_client_fresh", Flag, "1 while the view of the client is fresh, see `Client::is_fresh`"),
    (
        "leasehold_client_heard_seconds",
        Seconds,
        "time since the store last answered the client or reported anything",
    ),
    ("leasehold_client_listings_total", Count, "listings of the client; `result` is `ok` or `failed`"),
    (
        "leasehold_client_watch_interruptions_total",
        Count,
        "times that the watch of the client broke off; it is opened again",
    ),
    ("leasehold_registry_healthy", Flag, "1 while registered keys are kept alive and none was overwritten"),
    ("leasehold_registry_keys", Number, "keys that are registered"),
    (
        "leasehold_registry_renewals_total",
        Count,
        "renewals of the lease of registered keys; `result` is `ok` or `failed`",
    ),
    (
        "leasehold_registry_restores_total",
        Count,
        "attempts to register all keys again after an outage; `result` is `ok` or `failed`",
    ),
];

/// Which recorder the metrics were described to.
#[derive(Default)]
pub(crate) struct Described(AtomicUsize);

impl Described {
    /// Describes all metrics to the current recorder, unless that was done. Says whether the recorder is a new one: it was
    /// installed after the last call.
    pub(crate) fn to_current(&self) -> bool {
        metrics::with_recorder(|recorder| {
            let at = std::ptr::from_ref(recorder).cast::<()>() as usize;
            let is_new = self.0.swap(at, Ordering::Relaxed) != at;
            if is_new {
                METRICS.iter().for_each(|metric| describe(recorder, metric));
            }
            is_new
        })
    }
}

fn describe(recorder: &dyn Recorder, (name, kind, help): &(&'static str, Kind, &'static str)) {
    let (name, help) = ((*name).into(), (*help).into());
    match kind {
        Count => recorder.describe_counter(name, Some(Unit::Count), help),
        Flag => recorder.describe_gauge(name, None, help),
        Number => recorder.describe_gauge(name, Some(Unit::Count), help),
        Seconds => recorder.describe_gauge(name, Some(Unit::Seconds), help),
        Spread => recorder.describe_histogram(name, Some(Unit::Seconds), help),
    }
}
