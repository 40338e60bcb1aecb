//! What people see of nodes that do not renew, by time alone.

use leasehold_core::observer::Observer;
use leasehold_core::record::{NodeRecord, NodeState};
use leasehold_core::store::{Key, Listing, WatchEvent};
use leasehold_core::time::{Moment, Now};
use leasehold_core::view::{NodePhase, ProblemKind, View};

use crate::make;

/// When the first listing arrives: the boot clock in milliseconds, and the wall clock then.
const START_MS: u64 = 100_000;
const UNIX_MS: u64 = 1_700_000_000_000;

fn at(ms: u64) -> Now {
    Now { at: Moment::ZERO + std::time::Duration::from_millis(START_MS + ms), unix_ms: UNIX_MS + ms }
}

/// Two nodes that wrote their records that long before the first listing; `a` holds both shards.
fn cluster(ago_ms: u64) -> Vec<(Key, leasehold_core::store::Stored)> {
    let node = |name: &str, session| NodeRecord {
        written_unix_ms: UNIX_MS - ago_ms,
        ..make::node_record(name, make::session(session), 1, NodeState::Active, session)
    };
    let shard = |number| {
        let held = make::held("a", make::session(1));
        (make::shard_key(number), make::stored(1, &make::shard_record(&make::shard_id(number), 1, held, 9)))
    };
    vec![
        (Key::Group("g".parse().unwrap()), make::stored(1, &make::group_record(2, 3))),
        (make::node_key("a"), make::stored(1, &node("a", 1))),
        (make::node_key("b"), make::stored(1, &node("b", 2))),
        shard(0),
        shard(1),
    ]
}

fn observer(ago_ms: u64) -> Observer {
    let mut observer = Observer::new(None);
    observer.listed(at(0), &Listing { entries: cluster(ago_ms), newest: true, ..Listing::default() });
    observer
}

/// The node renews.
fn renew(observer: &mut Observer, name: &str, session: u128, ms: u64) {
    let record =
        make::node_record(name, make::session(session), 2 + ms, NodeState::Active, 50 + u128::from(ms));
    let change = (make::node_key(name), Some(make::stored(2 + ms, &record)));
    observer.watched(at(ms), WatchEvent::Changed(vec![change]));
}

fn silence_of(view: &View, name: &str) -> Option<(u64, bool)> {
    let node = view.nodes.iter().find(|node| node.name == *name).unwrap();
    assert_eq!(node.state == NodePhase::Silent, node.silence.is_some());
    node.silence.map(|silence| (silence.for_ms, silence.watched))
}

fn told(view: &View) -> Vec<(&str, &str)> {
    let silent = view.problems.iter().filter(|problem| problem.kind == ProblemKind::SilentNode);
    silent.map(|problem| (problem.subject.as_str(), problem.message.as_str())).collect()
}

#[test]
fn a_node_is_silent_after_two_missed_renewals_and_its_shards_are_at_risk() {
    let mut observer = observer(0);
    for ms in [2000, 4000] {
        renew(&mut observer, "a", 1, ms);
        renew(&mut observer, "b", 2, ms);
    }
    renew(&mut observer, "b", 2, 8000);
    let view = observer.replan().view(at(8_400));
    assert_eq!(silence_of(&view, "a"), None, "a slow renewal is none that was missed");
    assert!(view.shards.iter().all(|shard| !shard.at_risk));
    let view = observer.replan().view(at(8_600));
    assert_eq!((silence_of(&view, "a"), silence_of(&view, "b")), (Some((4600, true)), None));
    assert!(view.shards.iter().all(|shard| shard.at_risk));
    assert_eq!(view.groups[0].at_risk, 2);
    let rest = "The node hangs, is gone, or cannot reach the store";
    let message = format!("silent 4.6 s of 10.0 s; 2 shards at risk, taken over in about 6 s. {rest}");
    assert_eq!(told(&view), [("a", message.as_str())]);
    renew(&mut observer, "b", 2, 14_500);
    let view = observer.replan().view(at(14_600));
    let message = format!("silent 10.6 s of 10.0 s; 2 shards at risk, taken over at any moment. {rest}");
    assert_eq!(told(&view), [("a", message.as_str())]);
    // Nobody is left to take anything over.
    let view = observer.replan().view(at(20_000));
    assert!(
        told(&view)[0].1.contains("2 shards at risk, and no other live node serves its groups: start a node")
    );
    assert!(told(&view)[1].1.contains("it holds no shards"));
    renew(&mut observer, "a", 1, 20_100);
    let view = observer.replan().view(at(20_200));
    assert_eq!(silence_of(&view, "a"), None);
    assert!(view.shards.iter().all(|shard| !shard.at_risk));
}

#[test]
fn one_look_goes_by_the_clock_of_the_node_until_it_is_seen_to_renew() {
    let mut observer = observer(7_100);
    let view = observer.replan().view(at(0));
    assert_eq!(silence_of(&view, "a"), Some((7100, false)));
    assert!(
        told(&view)[0].1.starts_with("silent 7.1 s of 10.0 s by its own clock, which may be wrong; 2 shards")
    );
    renew(&mut observer, "a", 1, 500);
    let view = observer.replan().view(at(1000));
    assert_eq!((silence_of(&view, "a"), silence_of(&view, "b")), (None, Some((8100, false))));
    renew(&mut observer, "a", 1, 4500);
    let view = observer.replan().view(at(5000));
    assert_eq!((silence_of(&view, "a"), silence_of(&view, "b")), (None, Some((12_100, true))));
}

#[test]
fn who_heard_of_nobody_calls_nobody_silent_for_that_time() {
    let mut observer = observer(0);
    renew(&mut observer, "a", 1, 1000);
    renew(&mut observer, "b", 2, 1000);
    observer.heard_again(at(21_500), at(1500).at);
    let view = observer.replan().view(at(21_600));
    assert_eq!(told(&view), []);
    assert_eq!(told(&observer.replan().view(at(26_000))).len(), 2);
}

#[test]
fn a_node_that_renews_less_often_is_given_more_time() {
    let mut entries = cluster(0);
    let mut slow = make::node_record("a", make::session(1), 1, NodeState::Active, 1);
    slow.report.renew_every_ms = Some(4000);
    entries[1].1 = make::stored(1, &slow);
    let mut observer = Observer::new(None);
    observer.listed(at(0), &Listing { entries, newest: true, ..Listing::default() });
    let view = observer.replan().view(at(8_400));
    assert_eq!((silence_of(&view, "a"), silence_of(&view, "b")), (None, Some((8400, true))));
    let view = observer.replan().view(at(8_600));
    assert_eq!(silence_of(&view, "a"), Some((8600, true)));
}
