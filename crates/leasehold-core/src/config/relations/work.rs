//! The node's work, its limits and its labels.

use std::time::Duration;

use super::acquiring::pauses;
use super::{Found, capacity, must};
use crate::config::Config;
use crate::span::Span;

pub(super) fn check(c: &Config, found: &mut Found) {
    pauses(&c.restart, None, ("restart_pause", "restart"), found);
    must(
        found,
        c.healthy_after > Duration::ZERO,
        ("healthy_after_min", "healthy_after"),
        || "healthy_after (0 ms) must be above zero: failures would never count".to_owned(),
        "set it to a time that healthy work always runs",
    );
    must(
        found,
        (1..=1000).contains(&c.vanish_freeze_permille),
        ("vanish_freeze_range", "vanish_freeze_permille"),
        || format!("vanish_freeze_permille ({}) must be from 1 to 1000", c.vanish_freeze_permille),
        "334 freezes moves when a third of the nodes vanish; 1000 never freezes",
    );
    must(
        found,
        c.give_up_at_once >= 1,
        ("give_up_at_once_min", "give_up_at_once"),
        || "give_up_at_once (0) must be at least 1: no shard would ever move".to_owned(),
        "raise it",
    );
    must(
        found,
        c.retired_kept >= c.ttl_max,
        ("retired_outlives_ttl_max", "retired_kept"),
        || {
            format!(
                "retired_kept ({}) must be at least ttl_max ({}): every node must have listed the shard as retired \
                 before its record is deleted",
                Span(c.retired_kept),
                Span(c.ttl_max)
            )
        },
        "raise retired_kept",
    );
    let texts = [("zone", &c.zone), ("address", &c.address)];
    for (name, _) in texts.iter().filter(|(_, text)| text.as_deref() == Some("")) {
        must(
            found,
            false,
            ("text_not_empty", name),
            || format!("{name} is empty"),
            "set a value or remove it",
        );
    }
    capacity(c.capacity, "capacity", found);
}
