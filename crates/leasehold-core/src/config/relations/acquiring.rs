//! How changes are seen, how shards are taken, and the pauses in between.

use std::time::Duration;

use super::{Found, INSTANT, PAUSE_MAX, RECOVER_TTLS, must};
use crate::config::{Backoff, Config};
use crate::span::Span;

pub(super) fn check(config: &Config, found: &mut Found) {
    seeing(config, found);
    taking(config, found);
    pauses(&config.retry, Some(PAUSE_MAX), ("retry_pause", "retry"), found);
    polling(config, found);
}

fn seeing(c: &Config, found: &mut Found) {
    must(
        found,
        c.list_every >= c.try_timeout.max(INSTANT),
        ("list_every_min", "list_every"),
        || {
            format!(
                "list_every ({}) must be at least try_timeout ({}) and {}: a listing may take that long",
                Span(c.list_every),
                Span(c.try_timeout),
                Span(INSTANT)
            )
        },
        "raise list_every",
    );
    must(
        found,
        c.list_every <= c.ttl,
        ("list_every_within_ttl", "list_every"),
        || {
            format!(
                "list_every ({}) must be at most ttl ({}): a listing must show within one ttl what the watch missed",
                Span(c.list_every),
                Span(c.ttl)
            )
        },
        "lower list_every",
    );
}

fn taking(c: &Config, found: &mut Found) {
    must(
        found,
        c.debounce < c.takeover_delay,
        ("debounce_within_takeover", "debounce"),
        || {
            format!(
                "debounce ({}) must be below takeover_delay ({}): the first node in the ranking would lose its turn before it \
                 has planned",
                Span(c.debounce),
                Span(c.takeover_delay)
            )
        },
        "lower debounce or raise takeover_delay",
    );
    must(
        found,
        c.takeover_delay <= c.ttl,
        ("takeover_within_ttl", "takeover_delay"),
        || {
            format!(
                "takeover_delay ({}) must be at most ttl ({}): the longest time that a shard may be unowned includes up to \
                 four of them",
                Span(c.takeover_delay),
                Span(c.ttl)
            )
        },
        "lower takeover_delay: a fifth of the ttl suits most clusters",
    );
    must(
        found,
        c.gather_for() <= c.ttl,
        ("gather_within_ttl", "gather"),
        || {
            format!(
                "gather ({}) must be at most ttl ({}): at a cold start, no shard is owned for up to twice as long",
                Span(c.gather_for()),
                Span(c.ttl)
            )
        },
        "lower gather",
    );
    must(
        found,
        c.recover_window >= c.renew_every,
        ("recover_sees_renewal", "recover_window"),
        || {
            format!(
                "recover_window ({}) must be at least renew_every ({}): at least one renewal must show that the new \
                 session is healthy",
                Span(c.recover_window),
                Span(c.renew_every)
            )
        },
        "raise recover_window or lower renew_every",
    );
    let longest = c.ttl.saturating_mul(RECOVER_TTLS);
    must(
        found,
        c.recover_window <= longest,
        ("recover_bounded", "recover_window"),
        || {
            format!(
                "recover_window ({}) must be at most {RECOVER_TTLS} × ttl ({}): if all nodes detach at once, every \
                 shard waits this long",
                Span(c.recover_window),
                Span(longest)
            )
        },
        "lower recover_window",
    );
}

fn polling(c: &Config, found: &mut Found) {
    let (interval, window) = (c.acquire_retry_interval, c.acquire_retry_window);
    if interval.is_zero() || window.is_zero() {
        return;
    }
    must(
        found,
        interval >= INSTANT,
        ("acquire_interval_min", "acquire_retry_interval"),
        || format!("acquire_retry_interval ({}) must be zero or at least {}", Span(interval), Span(INSTANT)),
        "raise it, or set it to zero to turn polling off",
    );
    must(
        found,
        interval <= window,
        ("acquire_interval_in_window", "acquire_retry_window"),
        || {
            format!(
                "acquire_retry_interval ({}) must be at most acquire_retry_window ({}): otherwise no poll falls into \
                 the window",
                Span(interval),
                Span(window)
            )
        },
        "raise acquire_retry_window, or set either to zero to turn polling off",
    );
}

/// A backoff must pause, or a failure becomes a busy loop; and it must not pause for longer than allowed.
pub(super) fn pauses(
    backoff: &Backoff,
    most: Option<Duration>,
    (rule, name): (&'static str, &str),
    found: &mut Found,
) {
    must(
        found,
        backoff.shortest() > Duration::ZERO,
        (rule, name),
        || format!("{name} needs at least one pause, and each must be above zero: {backoff:?}"),
        "use pauses of a few milliseconds",
    );
    if let Backoff::Doubling { first, max } = backoff {
        must(
            found,
            first <= max,
            (rule, name),
            || {
                format!(
                    "the first pause of {name} ({}) must be at most its longest ({})",
                    Span(*first),
                    Span(*max)
                )
            },
            "swap the two",
        );
    }
    let Some(most) = most else { return };
    must(
        found,
        backoff.longest() <= most,
        (rule, name),
        || {
            format!(
                "the longest pause of {name} ({}) must be at most {}: the longest time that a shard may be unowned includes it",
                Span(backoff.longest()),
                Span(most)
            )
        },
        "lower it",
    );
}
