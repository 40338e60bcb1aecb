//! The relations between the settings, each in one place. All are checked before anything starts, because an unsafe
//! one would only show when it is too late.

mod acquiring;
mod groups;
mod time;
mod work;

use std::time::Duration;

use super::{Config, ConfigError, GroupConfig};
use crate::span::Span;
use crate::store::Facts;

type Found = Vec<ConfigError>;

/// Notes every relation that does not hold, in the order of the fields.
pub(super) fn check(config: &Config, found: &mut Found) {
    time::check(config, found);
    acquiring::check(config, found);
    work::check(config, found);
    groups::check(config, found);
}

/// Notes all problems of one group.
pub(super) fn check_group(group: &GroupConfig, found: &mut Found) {
    groups::one(group, found);
}

/// Notes what does not suit this store.
pub(super) fn check_on(c: &Config, facts: &Facts, found: &mut Found) {
    let least = facts.write_every_min;
    for (rule, name, span) in [
        ("renew_suits_store", "renew_every", c.renew_every),
        ("try_suits_store", "try_timeout", c.try_timeout),
    ] {
        must(
            found,
            span >= least,
            (rule, name),
            || {
                format!(
                    "{name} ({}) must be at least {}, the shortest time between two writes of one record on {}",
                    Span(span),
                    Span(least),
                    facts.kind
                )
            },
            "raise it or ttl",
        );
    }
    must(
        found,
        facts.watch || (facts.poll_every > Duration::ZERO && facts.poll_every <= c.ttl),
        ("poll_within_ttl", "ttl"),
        || {
            format!(
                "{} has no watch and polls every {}, which must be above zero and at most ttl ({})",
                facts.kind,
                Span(facts.poll_every),
                Span(c.ttl)
            )
        },
        "raise ttl or shorten the polling interval",
    );
}

/// Below this the default kill budget, a twentieth, would be under what a kernel timer and a kill need.
const TTL_MIN: Duration = Duration::from_millis(200);
/// The longest ttl that a record may carry. A longer one is a mistake in units: nobody wants a failover after a day.
const TTL_MAX: Duration = Duration::from_secs(86_400);
/// From here on a third of the ttl would be lost between the two clocks, and the machine needs repair, not a setting.
pub const DRIFT_PERMILLE_END: u32 = 200;
/// What a kernel timer and a kill need on a busy machine; also the shortest span that any timer here can hold.
const INSTANT: Duration = Duration::from_millis(10);
/// How many tries must fit between a missed renewal and the moment when work is told to stop.
const TRIES: u32 = 3;
/// The longest pause after a store error: part of the bound for an unowned shard.
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// The longest recovery window, in ttls: part of the bound for recovery.
const RECOVER_TTLS: u32 = 10;

/// Notes a problem unless the relation holds.
fn must(
    found: &mut Found,
    holds: bool,
    (rule, setting): (&'static str, &str),
    message: impl FnOnce() -> String,
    advice: &str,
) {
    if !holds {
        found.push(ConfigError {
            rule,
            setting: setting.to_owned(),
            message: message(),
            advice: advice.to_owned(),
        });
    }
}

/// Zero is refused because it is ambiguous: it could mean "no limit" or "no shards".
fn capacity(capacity: Option<u32>, setting: &str, found: &mut Found) {
    must(
        found,
        capacity != Some(0),
        ("capacity_not_zero", setting),
        || "invalid capacity 0".to_owned(),
        "remove it for no limit, or set weight to 0 to take no shards",
    );
}
