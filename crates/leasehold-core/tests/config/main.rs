//! Settings: what is refused and how it is said, and what an explanation reads like.

use std::time::Duration;

use leasehold_core::config::{Backoff, Config, GroupConfig};
use leasehold_core::record::{FailurePolicy, Policy, SLOTS_MAX, ShardSet, ZoneRule};
use leasehold_core::store::{Facts, Freshness, Safety};

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn good(ttl_ms: u64) -> Config {
    let mut config = Config::with_ttl("a".parse().unwrap(), ms(ttl_ms));
    config.groups.push(group("orders"));
    config
}

fn group(name: &str) -> GroupConfig {
    GroupConfig {
        group: name.parse().unwrap(),
        shards: ShardSet::Numbered(64),
        policy: Policy::default(),
        capacity: None,
    }
}

fn etcd() -> Facts {
    Facts {
        kind: "etcd",
        watch: true,
        poll_every: ms(1_000),
        write_every_min: ms(10),
        swaps_max: 100,
        reads: Freshness::Newest,
        removes: true,
        safety: Safety::Strict,
        ttl_default: ms(10_000),
    }
}

fn objects() -> Facts {
    Facts {
        kind: "an object store",
        watch: false,
        poll_every: ms(2_000),
        write_every_min: ms(1_000),
        swaps_max: 1,
        reads: Freshness::Newest,
        removes: false,
        safety: Safety::Strict,
        ttl_default: ms(30_000),
    }
}

fn rules_broken(config: &Config) -> Vec<&'static str> {
    config.check().err().iter().flatten().map(|error| error.rule).collect()
}

#[test]
fn defaults_pass_for_every_sensible_ttl() {
    for ttl_ms in [200, 500, 1_000, 5_000, 10_000, 15_000, 30_000, 60_000, 3_600_000, 86_400_000] {
        assert_eq!(good(ttl_ms).check(), Ok(()), "ttl {ttl_ms} ms");
        if ttl_ms >= 1_000 {
            assert_eq!(good(ttl_ms).check_on(&etcd()), Ok(()), "ttl {ttl_ms} ms on etcd");
        }
    }
    assert_eq!(Config::new("a".parse().unwrap(), &objects()).check_on(&objects()), Ok(()));
}

type Change = fn(&mut Config);

/// Each change of good settings at ttl 10 s, and exactly the relations that it breaks.
const BROKEN: &[(&[&str], Change)] = &[
    (&["ttl_range"], |c| {
        *c = good(100);
        c.kill_budget = ms(10);
    }),
    (&["ttl_range", "ttl_max_range"], |c| *c = good(86_400_001)),
    (&["whole_milliseconds"], |c| {
        c.ttl += Duration::from_micros(400);
        c.ttl_max = ms(10_001);
    }),
    (&["whole_milliseconds"], |c| c.ttl_max += Duration::from_nanos(1)),
    (&["ttl_below_ttl_max"], |c| c.ttl_max = ms(9_999)),
    (&["ttl_max_range", "retired_outlives_ttl_max"], |c| c.ttl_max = ms(86_400_001)),
    (&["drift_range"], |c| c.drift_permille = 200),
    (&["try_timeout_min"], |c| c.try_timeout = ms(9)),
    (&["try_within_renewal"], |c| c.renew_every = ms(999)),
    (&["three_tries"], |c| {
        c.renew_every = ms(4_901);
        c.recover_window = ms(4_901);
    }),
    (&["three_tries"], |c| c.try_timeout = ms(1_967)),
    (&["three_tries"], |c| c.margin = ms(4_901)),
    (&["three_tries", "margin_within_validity"], |c| c.margin = ms(9_900)),
    (&["kill_budget_min"], |c| c.kill_budget = ms(9)),
    (&["margin_over_kill_budget"], |c| c.kill_budget = ms(1_001)),
    (&["margin_over_kill_budget"], |c| c.margin = ms(499)),
    (&["list_every_min"], |c| c.list_every = ms(999)),
    (&["list_every_within_ttl"], |c| c.list_every = ms(10_001)),
    (&["debounce_within_takeover"], |c| c.debounce = ms(2_000)),
    (&["debounce_within_takeover"], |c| c.takeover_delay = Duration::ZERO),
    (&["takeover_within_ttl"], |c| c.takeover_delay = ms(10_001)),
    (&["recover_sees_renewal"], |c| c.recover_window = ms(1_999)),
    (&["recover_bounded"], |c| c.recover_window = ms(100_001)),
    (&["retry_pause"], |c| c.retry = Backoff::Fixed(ms(1_001))),
    (&["retry_pause"], |c| c.retry = Backoff::Fixed(Duration::ZERO)),
    (&["retry_pause"], |c| c.retry = Backoff::Steps(vec![])),
    (&["retry_pause"], |c| c.retry = Backoff::Steps(vec![ms(10), ms(2_000), ms(20)])),
    (&["retry_pause"], |c| c.retry = Backoff::Doubling { first: ms(200), max: ms(100) }),
    (&["acquire_interval_min"], |c| c.acquire_retry_interval = ms(9)),
    (&["acquire_interval_in_window"], |c| c.acquire_retry_interval = ms(10_001)),
    (&["restart_pause"], |c| c.restart = Backoff::Doubling { first: Duration::ZERO, max: ms(100) }),
    (&["failures_min"], |c| c.groups[0].policy.on_failure = FailurePolicy::quarantine(0)),
    (&["half_open_pause_min"], |c| {
        c.groups[0].policy.on_failure = FailurePolicy::half_open(8, Duration::ZERO)
    }),
    (&["healthy_after_min"], |c| c.healthy_after = Duration::ZERO),
    (&["vanish_freeze_range"], |c| c.vanish_freeze_permille = 0),
    (&["vanish_freeze_range"], |c| c.vanish_freeze_permille = 1001),
    (&["give_up_at_once_min"], |c| c.give_up_at_once = 0),
    (&["retired_outlives_ttl_max"], |c| c.retired_kept = ms(9_999)),
    (&["text_not_empty"], |c| c.zone = Some(String::new())),
    (&["text_not_empty"], |c| c.address = Some(String::new())),
    (&["capacity_not_zero"], |c| c.capacity = Some(0)),
    (&["capacity_not_zero"], |c| c.groups[0].capacity = Some(0)),
    (&["group_once"], |c| c.groups.push(group("orders"))),
    (&["slots_range"], |c| c.groups[0].shards = ShardSet::Numbered(0)),
    (&["slots_range"], |c| c.groups[0].shards = ShardSet::Numbered(SLOTS_MAX + 1)),
    (&["algorithm_known"], |c| c.groups[0].policy.algorithm = 0),
    (&["algorithm_known"], |c| c.groups[0].policy.algorithm = 2),
    (&["balance_min"], |c| c.groups[0].policy.balance_permille = 999),
    (&["move_window_min"], |c| {
        c.groups[0].policy.moves_max = 1;
        c.groups[0].policy.move_window_ms = 0;
    }),
    (&["stop_timeout_min"], |c| c.groups[0].policy.stop_timeout_ms = 0),
    (&["restart_grace_range"], |c| c.groups[0].policy.restart_grace_ms = 86_400_001),
    (&["text_not_empty"], |c| c.groups[0].policy.zones = ZoneRule::Prefer(String::new())),
];

#[test]
fn each_relation_is_reported_alone() {
    for (row, (expected, change)) in BROKEN.iter().enumerate() {
        let mut config = good(10_000);
        change(&mut config);
        assert_eq!(rules_broken(&config), *expected, "row {row}");
    }
}

#[test]
fn what_just_holds_is_accepted() {
    let edges: &[Change] = &[
        |c| c.drift_permille = 0,
        |c| c.drift_permille = 199,
        |c| c.margin = ms(4_900),
        |c| c.kill_budget = ms(1_000),
        |c| c.list_every = ms(10_000),
        |c| c.debounce = Duration::ZERO,
        |c| c.acquire_retry_interval = Duration::ZERO,
        |c| c.acquire_retry_window = Duration::ZERO,
        |c| c.weight = 0,
        |c| c.groups.clear(),
        |c| c.groups[0].shards = ShardSet::Named,
        |c| c.retry = Backoff::Steps(vec![ms(10), ms(1_000)]),
    ];
    for (row, change) in edges.iter().enumerate() {
        let mut config = good(10_000);
        change(&mut config);
        assert_eq!(config.check(), Ok(()), "row {row}");
    }
}

#[test]
fn every_problem_is_reported_at_once_with_its_numbers() {
    let mut config = good(10_000);
    config.margin = ms(400);
    config.renew_every = ms(8_000);
    config.retry = Backoff::Fixed(ms(5_000));
    config.groups[0].policy.balance_permille = 900;
    let said = config.check_on(&objects()).unwrap_err().to_string();
    golden("errors.txt", include_str!("errors.txt"), &said);
}

#[test]
fn a_store_may_need_more() {
    let broken = |config: Config, facts: &Facts| -> Vec<&'static str> {
        config.check_on(facts).err().iter().flatten().map(|error| error.rule).collect()
    };
    assert_eq!(broken(good(9_990), &objects()), ["try_suits_store"]);
    assert_eq!(broken(good(4_000), &objects()), ["renew_suits_store", "try_suits_store"]);
    let rare = Facts { poll_every: ms(10_001), ..objects() };
    assert_eq!(broken(good(10_000), &rare), ["poll_within_ttl"]);
}

#[test]
fn the_default_survives_the_outage_that_the_design_promises() {
    let explained = good(10_000).explain(&etcd());
    assert_eq!(explained.outage_survived, ms(5_900));
    assert_eq!(explained.stop_budget, ms(1_750));
    assert_eq!(explained.cost(10).writes_per_hour, 18_000);
    assert_eq!(explained.cost(10).watch_events_per_hour, 180_000);
}

#[test]
fn failover_counts_the_reads_of_silent_sessions_where_requests_are_charged() {
    let bucket = Facts { kind: "s3", watch: true, poll_every: ms(6_000), ..objects() };
    let explained = good(30_000).explain(&bucket);
    assert!(explained.failover >= ms(45_000) && explained.failover < ms(46_000), "{explained:?}");
}

/// A shard was given up for a node that had not looked yet when its former holder took it back, again and again.
#[test]
fn a_node_that_has_to_look_gets_the_time_to_look() {
    for ttl in [1_000, 10_000, 30_000, 300_000] {
        for poll_ms in [10, 1_000, 7_500] {
            let (config, polled) = (good(ttl), Facts { poll_every: ms(poll_ms), ..objects() });
            // A look comes late by a quarter at most, and it and the claim after it may take their limits.
            let latest = ms(poll_ms) * 5 / 4 + config.try_timeout * 2;
            assert!(config.turn_lasts(&polled) >= latest, "ttl {ttl} ms, poll {poll_ms} ms");
            assert_eq!(config.turn_lasts(&etcd()), config.takeover_delay, "who is told need not wait");
        }
    }
}

#[test]
fn explanations_read_well() {
    golden("etcd-10s.txt", include_str!("etcd-10s.txt"), &good(10_000).explain(&etcd()).to_string());
    let mut config = Config::new("a".parse().unwrap(), &objects());
    config.groups.push(group("orders"));
    config.groups[0].policy.restart_grace_ms = 45_000;
    let explained = config.explain(&Facts { safety: Safety::LosesLastWrites, ..objects() });
    golden("objects-30s.txt", include_str!("objects-30s.txt"), &explained.to_string());
}

/// Compares with the file beside this one. `REWRITE=1 cargo test -p leasehold-core --test config` writes it again.
fn golden(file: &str, expected: &str, actual: &str) {
    if std::env::var_os("REWRITE").is_some() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/config").join(file);
        std::fs::write(path, actual).unwrap();
    } else {
        assert_eq!(expected, actual, "{file}: if this is meant, run with REWRITE=1 and read the difference");
    }
}
