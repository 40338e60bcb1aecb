//! Health, as pure functions of what a node shows.

use std::time::Duration;

use leasehold_core::View;
use leasehold_core::notice::SessionState;
use leasehold_core::view::{Me, ShardPhase, ShardView};

use super::Source;

/// One question and its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Check {
    pub(super) name: &'static str,
    pub(super) passed: bool,
    pub(super) says: String,
}

impl Check {
    fn new(name: &'static str, passed: bool, says: impl Into<String>) -> Check {
        Check { name, passed, says: says.into() }
    }
}

/// The share in a query such as `share=0.9`.
pub(super) fn share(query: &str) -> Result<Option<f64>, String> {
    let mut share = None;
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let Some(value) = pair.strip_prefix("share=") else {
            return Err(format!("unknown parameter {pair:?}; the only one is share, for example ?share=0.9"));
        };
        match value.parse::<f64>() {
            Ok(number) if (0.0..=1.0).contains(&number) => share = Some(number),
            _ => {
                return Err(format!(
                    "invalid share {value:?}; use a number from 0 to 1, for example ?share=0.9"
                ));
            }
        }
    }
    Ok(share)
}

/// Alive is a node whose driver goes round. A process that waits for its store is alive as well.
pub(super) fn live(source: Option<&Source>) -> Vec<Check> {
    let Some(source) = source else {
        return vec![Check::new("driver", true, "the node has not started: it waits for its store")];
    };
    vec![driver(source.vitals.driver_idle_for(), source.ttl)]
}

/// A driver that did nothing for a whole ttl has lost its session.
fn driver(idle_for: Duration, limit: Duration) -> Check {
    let says = format!("last active {} ago, limit {}", seconds(idle_for), seconds(limit));
    Check::new("driver", idle_for <= limit, says)
}

/// Ready is a node that has a session, whose store answers, and that holds the share that is asked for.
pub(super) fn ready(source: Option<&Source>, share: Option<f64>) -> Vec<Check> {
    let Some(source) = source else {
        return vec![Check::new("attached", false, "the node has not started: it waits for its store")];
    };
    let view = source.views.borrow().clone();
    let mut checks = vec![attached(view.me.as_ref())];
    checks.push(store(source.vitals.store_silent_for(), source.ttl / 2));
    checks.extend(share.map(|share| match source.vitals.has_plan() {
        true => holds(&view, share),
        false => Check::new("share", false, "the node has made no plan yet"),
    }));
    checks
}

fn attached(me: Option<&Me>) -> Check {
    let Some(me) = me else { return Check::new("attached", false, "the node has no view yet") };
    let passed = matches!(me.session_state, SessionState::Attached | SessionState::Degraded);
    let mut says = me.session_state.to_string();
    if !me.cause.is_empty() {
        says.push_str(&format!(", {}", me.cause));
    }
    if let Some(what) = &me.waiting_for {
        says.push_str(&format!(", waiting: {what}"));
    }
    if me.draining {
        says.push_str(", draining");
    }
    Check::new("attached", passed, says)
}

fn store(silent_for: Option<Duration>, limit: Duration) -> Check {
    match silent_for {
        None => Check::new("store", false, "it has not answered yet"),
        Some(ago) => {
            let says = format!("last answer {} ago, limit {}", seconds(ago), seconds(limit));
            Check::new("store", ago <= limit, says)
        }
    }
}

/// Only shards that the plan gives to this node count: others that it still holds are on their way elsewhere.
fn holds(view: &View, share: f64) -> Check {
    let Some(me) = &view.me else { return Check::new("share", false, "the node has no view yet") };
    let wanted = view.shards.iter().filter(|shard| shard.wanted.as_ref() == Some(&me.node));
    let (mut held, mut all) = (0_usize, 0_usize);
    for shard in wanted {
        all += 1;
        held += usize::from(is_held(shard, me));
    }
    let percent = share * 100.0;
    let says = format!("holds {held} of {all} shards that the plan gives it, at least {percent} % wanted");
    Check::new("share", held as f64 >= share * all as f64, says)
}

fn is_held(shard: &ShardView, me: &Me) -> bool {
    me.session.is_some() && shard.session == me.session && shard.state != ShardPhase::Claiming
}

fn seconds(span: Duration) -> String {
    format!("{:.1} s", span.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use leasehold_core::{NodeName, SessionId};

    use super::*;

    fn me(state: SessionState) -> Me {
        let mut me = Me::new(NodeName::new("a").unwrap());
        (me.session_state, me.session) = (state, Some(SessionId::from_bits(7)));
        me
    }

    #[test]
    fn only_a_node_with_a_valid_session_is_attached() {
        use SessionState::{Attached, Degraded, Detached, Joining, Left, Recovering};
        for (state, passed) in [
            (Joining, false),
            (Attached, true),
            (Degraded, true),
            (Detached, false),
            (Recovering, false),
            (Left, false),
        ] {
            assert_eq!(attached(Some(&me(state))).passed, passed, "{state}");
        }
        assert!(!attached(None).passed);
    }

    #[test]
    fn a_driver_that_hangs_and_a_store_that_is_silent_for_too_long_fail() {
        let limit = Duration::from_secs(5);
        let late = Duration::from_millis(5_100);
        assert!(driver(limit, limit).passed && !driver(late, limit).passed);
        assert!(!store(None, limit).passed && store(Some(limit), limit).passed);
        assert_eq!(
            store(Some(late), limit),
            Check::new("store", false, "last answer 5.1 s ago, limit 5.0 s")
        );
    }

    #[test]
    fn a_share_is_a_number_from_0_to_1() {
        assert_eq!(
            (share(""), share("share=0.9"), share("share=1")),
            (Ok(None), Ok(Some(0.9)), Ok(Some(1.0)))
        );
        for wrong in ["share=90", "share=-1", "share=NaN", "share=", "shar=1", "share=0.9&x=1"] {
            assert!(share(wrong).is_err(), "{wrong}");
        }
    }
}
