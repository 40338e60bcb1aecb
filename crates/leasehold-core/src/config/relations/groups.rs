//! The groups that a node serves, and their policies.

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Found, TTL_MAX, capacity, must};
use crate::config::{Config, GroupConfig};
use crate::record::{ALGORITHM, FailurePolicy, SLOTS_MAX, ShardSet, ZoneRule};
use crate::span::Span;

pub(super) fn check(config: &Config, found: &mut Found) {
    let mut seen = BTreeSet::new();
    for group in &config.groups {
        let at = format!("groups[{}]", group.group);
        must(
            found,
            seen.insert(&group.group),
            ("group_once", &at),
            || format!("the group {} is listed twice", group.group),
            "merge the two, or rename one",
        );
        one(group, found);
    }
}

pub(super) fn one(group: &GroupConfig, found: &mut Found) {
    let at = format!("groups[{}]", group.group);
    capacity(group.capacity, &format!("{at}.capacity"), found);
    shards(group, &at, found);
    policy(group, &at, found);
}

fn shards(group: &GroupConfig, at: &str, found: &mut Found) {
    let ShardSet::Numbered(slots) = group.shards else { return };
    must(
        found,
        (1..=SLOTS_MAX).contains(&slots),
        ("slots_range", &format!("{at}.shards")),
        || format!("a numbered group must have from 1 to {SLOTS_MAX} slots, not {slots}"),
        "use a few times the largest number of nodes that you expect; 1 shard is leader election",
    );
}

fn policy(group: &GroupConfig, at: &str, found: &mut Found) {
    let policy = &group.policy;
    let setting = |name: &str| format!("{at}.policy.{name}");
    must(
        found,
        (1..=ALGORITHM).contains(&policy.algorithm),
        ("algorithm_known", &setting("algorithm")),
        || format!("this version supports placement algorithms 1 to {ALGORITHM}, not {}", policy.algorithm),
        "leave it out for the newest",
    );
    must(
        found,
        policy.balance_permille >= 1000,
        ("balance_min", &setting("balance_permille")),
        || {
            format!(
                "balance_permille ({}) must be at least 1000: below the fair share, some shards would have no node",
                policy.balance_permille
            )
        },
        "1100 lets a node hold up to 1.10 × its fair share",
    );
    must(
        found,
        policy.moves_max == 0 || policy.move_window_ms > 0,
        ("move_window_min", &setting("move_window_ms")),
        || format!("moves_max ({}) needs a move_window_ms above 0", policy.moves_max),
        "set move_window_ms, or moves_max to 0 for no limit",
    );
    must(
        found,
        policy.stop_timeout_ms > 0,
        ("stop_timeout_min", &setting("stop_timeout_ms")),
        || "stop_timeout_ms (0) must be above 0: every stop would count as stuck".to_owned(),
        "set it to how long the work may take to stop",
    );
    let grace = Duration::from_millis(policy.restart_grace_ms);
    must(
        found,
        grace <= TTL_MAX,
        ("restart_grace_range", &setting("restart_grace_ms")),
        || {
            format!(
                "restart_grace_ms ({}) must be at most {}: no other node takes the shards meanwhile",
                Span(grace),
                Span(TTL_MAX)
            )
        },
        "set it to how long a restart takes, or 0 to turn it off",
    );
    must(
        found,
        policy.on_failure.failures_max() != Some(0),
        ("failures_min", &setting("on_failure")),
        || "on_failure must allow at least 1 failure, not 0: no work could ever start".to_owned(),
        "raise the number; retry never stops trying",
    );
    must(
        found,
        !matches!(policy.on_failure, FailurePolicy::HalfOpen { pause_ms: 0, .. }),
        ("half_open_pause_min", &setting("on_failure")),
        || {
            "the pause of half-open (0 ms) must be above zero: otherwise the work would be tried again and again without a pause".to_owned()
        },
        "set it to how long an outage of what the work needs usually lasts",
    );
    must(
        found,
        policy.zones != ZoneRule::Prefer(String::new()),
        ("text_not_empty", &setting("zones")),
        || "the preferred zone must have a name".to_owned(),
        "set its name, or use ignore",
    );
}
