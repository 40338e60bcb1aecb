//! How long a session lives, when it is renewed, and when its work is stopped.

use std::time::Duration;

use super::{DRIFT_PERMILLE_END, Found, INSTANT, TRIES, TTL_MAX, TTL_MIN, must};
use crate::config::Config;
use crate::span::Span;

pub(super) fn check(config: &Config, found: &mut Found) {
    lifetimes(config, found);
    renewing(config, found);
    stopping(config, found);
}

fn lifetimes(c: &Config, found: &mut Found) {
    must(
        found,
        (TTL_MIN..=TTL_MAX).contains(&c.ttl),
        ("ttl_range", "ttl"),
        || format!("ttl ({}) must be from {} to {}", Span(c.ttl), Span(TTL_MIN), Span(TTL_MAX)),
        "use a ttl of a few seconds",
    );
    let whole = |span: Duration| span.subsec_nanos().is_multiple_of(1_000_000);
    for (name, span) in [("ttl", c.ttl), ("ttl_max", c.ttl_max)] {
        must(
            found,
            whole(span),
            ("whole_milliseconds", name),
            || {
                format!(
                    "{name} ({span:?}) must be whole milliseconds: records hold whole milliseconds, so other nodes \
                     would not wait long enough"
                )
            },
            "drop the fraction",
        );
    }
    must(
        found,
        c.ttl <= c.ttl_max,
        ("ttl_below_ttl_max", "ttl_max"),
        || {
            format!(
                "ttl ({}) must be at most ttl_max ({}): after the store was emptied, nodes wait for ttl_max, and \
                 this session could live longer",
                Span(c.ttl),
                Span(c.ttl_max)
            )
        },
        "raise ttl_max on all nodes, or lower ttl",
    );
    must(
        found,
        c.ttl_max <= TTL_MAX,
        ("ttl_max_range", "ttl_max"),
        || format!("ttl_max ({}) must be at most {}", Span(c.ttl_max), Span(TTL_MAX)),
        "lower ttl_max to the longest ttl that any node uses",
    );
    must(
        found,
        c.drift_permille < DRIFT_PERMILLE_END,
        ("drift_range", "drift_permille"),
        || format!("drift_permille ({}) must be below {DRIFT_PERMILLE_END}", c.drift_permille),
        "use 10 (1 %), which is far more than a working clock drifts",
    );
}

fn renewing(c: &Config, found: &mut Found) {
    must(
        found,
        c.try_timeout >= INSTANT,
        ("try_timeout_min", "try_timeout"),
        || format!("try_timeout ({}) must be at least {}", Span(c.try_timeout), Span(INSTANT)),
        "raise try_timeout: a tenth of the ttl suits most stores",
    );
    must(
        found,
        c.try_timeout <= c.renew_every,
        ("try_within_renewal", "renew_every"),
        || {
            format!(
                "try_timeout ({}) must be at most renew_every ({}): a slow call would delay the next renewal",
                Span(c.try_timeout),
                Span(c.renew_every)
            )
        },
        "raise renew_every or lower try_timeout",
    );
    let needed = c.renew_every.saturating_add(c.try_timeout.saturating_mul(TRIES));
    must(
        found,
        needed <= c.stop_after(),
        ("three_tries", "renew_every"),
        || {
            format!(
                "renew_every ({}) + {TRIES} × try_timeout ({}) = {} must be at most ttl × (1 − drift) − margin \
                 ({} − {} = {}): {TRIES} tries must fit before work is told to stop",
                Span(c.renew_every),
                Span(c.try_timeout),
                Span(needed),
                Span(c.valid_for()),
                Span(c.margin),
                Span(c.stop_after())
            )
        },
        "lower renew_every, try_timeout or margin, or raise ttl",
    );
}

fn stopping(c: &Config, found: &mut Found) {
    must(
        found,
        c.margin < c.valid_for(),
        ("margin_within_validity", "margin"),
        || {
            format!(
                "margin ({}) must be below ttl × (1 − drift) ({}): otherwise work is told to stop as soon as it starts",
                Span(c.margin),
                Span(c.valid_for())
            )
        },
        "lower margin: a fifth of the ttl suits most work",
    );
    must(
        found,
        c.kill_budget >= INSTANT,
        ("kill_budget_min", "kill_budget"),
        || {
            format!(
                "kill_budget ({}) must be at least {}: a timer and a kill need that long",
                Span(c.kill_budget),
                Span(INSTANT)
            )
        },
        "raise kill_budget",
    );
    must(
        found,
        c.kill_budget.saturating_mul(2) <= c.margin,
        ("margin_over_kill_budget", "margin"),
        || {
            format!(
                "margin ({}) must be at least 2 × kill_budget (2 × {} = {}): half for the work to stop, half \
                 to kill it",
                Span(c.margin),
                Span(c.kill_budget),
                Span(c.kill_budget.saturating_mul(2))
            )
        },
        "raise margin or lower kill_budget",
    );
}
