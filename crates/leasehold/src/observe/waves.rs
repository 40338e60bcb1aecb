//! Waves: what happens to many shards at nearly the same time becomes one line of the log.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::time::Duration;

use leasehold_core::event::StopReason;
use leasehold_core::record::MoveReason;
use leasehold_core::{GroupName, Moment, NodeName, SessionId, ShardId};

/// A wave is over when nothing was added to it for so long.
const QUIET: Duration = Duration::from_millis(200);

/// A wave that goes on for longer is told in parts.
const LONGEST: Duration = Duration::from_secs(5);

/// Up to so many shards or nodes are named; more are only counted.
const NAMED_MAX: usize = 3;

/// For how long a dead node is named as the one whose shards fail over.
const DEAD_FOR: Duration = Duration::from_secs(60);

/// So many sessions that this node fenced are remembered.
const FENCED_KEPT: usize = 256;

/// What happens in a wave, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Started(MoveReason),
    Released(MoveReason),
    /// Told to stop although the shard was not handed over: it is lost, or may be.
    Stopped(StopReason),
    Joined,
    /// Its session is over without a word of its own.
    Ended,
}

/// The waves that go on, and which nodes died lately.
#[derive(Default)]
pub(super) struct Waves {
    open: Vec<Wave>,
    dead: Vec<Dead>,
    /// The sessions that this node fenced last.
    fenced_here: VecDeque<SessionId>,
}

/// A node that died lately.
struct Dead {
    node: NodeName,
    at: Moment,
    /// Whether a wave that named it is over.
    told: bool,
}

/// One of them.
#[derive(Debug)]
pub(super) struct Wave {
    pub(super) kind: Kind,
    began_at: Moment,
    last_at: Moment,
    /// How many shards or nodes.
    pub(super) count: usize,
    groups: BTreeSet<GroupName>,
    /// The first of them; all that ended.
    named: Vec<String>,
    /// The shortest and the longest time without an owner, of those shards where it is known.
    unowned: Option<(Duration, Duration)>,
    /// Where they came from or go to.
    nodes: BTreeSet<NodeName>,
}

impl Waves {
    pub(super) fn started(
        &mut self,
        shard: &ShardId,
        why: MoveReason,
        unowned_for: Option<Duration>,
        now: Moment,
    ) {
        let dead = match why {
            MoveReason::Failover => self.dead_lately(now),
            _ => BTreeSet::new(),
        };
        let wave = self.add(Kind::Started(why), shard.to_string(), now);
        wave.groups.insert(shard.group.clone());
        wave.nodes.extend(dead);
        if let Some(gap) = unowned_for {
            let (least, most) = wave.unowned.unwrap_or((gap, gap));
            wave.unowned = Some((least.min(gap), most.max(gap)));
        }
    }

    pub(super) fn released(
        &mut self,
        shard: &ShardId,
        why: MoveReason,
        successor: Option<&NodeName>,
        now: Moment,
    ) {
        let wave = self.add(Kind::Released(why), shard.to_string(), now);
        wave.groups.insert(shard.group.clone());
        wave.nodes.extend(successor.cloned());
    }

    pub(super) fn stopped(&mut self, shard: &ShardId, why: StopReason, now: Moment) {
        self.add(Kind::Stopped(why), shard.to_string(), now).groups.insert(shard.group.clone());
    }

    pub(super) fn joined(&mut self, node: &NodeName, now: Moment) {
        self.add(Kind::Joined, node.to_string(), now);
    }

    /// The session of a node is over. If this node fenced it, that is told already, or in a moment.
    pub(super) fn ended(&mut self, node: &NodeName, session: SessionId, now: Moment) {
        if !self.fenced_here.contains(&session) {
            self.add(Kind::Ended, node.to_string(), now);
        }
    }

    /// This node fenced a session, which is told by itself.
    pub(super) fn fenced_here(&mut self, node: &NodeName, session: SessionId) {
        self.fenced_here.truncate(FENCED_KEPT - 1);
        self.fenced_here.push_front(session);
        if let Some(wave) = self.open.iter_mut().find(|wave| wave.kind == Kind::Ended)
            && let Some(at) = wave.named.iter().position(|name| name.as_str() == node.as_str())
        {
            wave.named.remove(at);
            wave.count -= 1;
        }
        self.open.retain(|wave| wave.count > 0);
    }

    /// A node is dead: shards that fail over within the next time were probably its own. Those that died before it, and
    /// whose shards have failed over, have no more of them.
    pub(super) fn died(&mut self, node: &NodeName, now: Moment) {
        if self.dead.iter().any(|dead| dead.node == *node && !dead.told) {
            return;
        }
        self.dead.retain(|dead| dead.node != *node && !dead.told);
        self.dead.push(Dead { node: node.clone(), at: now, told: false });
    }

    fn dead_lately(&mut self, now: Moment) -> BTreeSet<NodeName> {
        self.dead.retain(|dead| now.since(dead.at) <= DEAD_FOR);
        self.dead.iter().map(|dead| dead.node.clone()).collect()
    }

    fn add(&mut self, kind: Kind, name: String, now: Moment) -> &mut Wave {
        let at = self.open.iter().position(|wave| wave.kind == kind).unwrap_or_else(|| {
            self.open.push(Wave {
                kind,
                began_at: now,
                last_at: now,
                count: 0,
                groups: BTreeSet::new(),
                named: Vec::new(),
                unowned: None,
                nodes: BTreeSet::new(),
            });
            self.open.len() - 1
        });
        let wave = &mut self.open[at];
        wave.last_at = now;
        // A node may come and go within a wave.
        if matches!(kind, Kind::Joined | Kind::Ended) && wave.named.contains(&name) {
            return wave;
        }
        wave.count += 1;
        // One that ended may be taken out again.
        if wave.named.len() < NAMED_MAX || kind == Kind::Ended {
            wave.named.push(name);
        }
        wave
    }

    /// When the next wave is over.
    pub(super) fn due_at(&self) -> Moment {
        self.open.iter().map(Wave::over_at).min().unwrap_or(Moment::NEVER)
    }

    /// Takes out the waves that are over.
    pub(super) fn over(&mut self, now: Moment) -> Vec<Wave> {
        self.take(|wave| wave.over_at() <= now)
    }

    /// Takes out these waves, although they may go on.
    pub(super) fn take(&mut self, wanted: impl Fn(&Wave) -> bool) -> Vec<Wave> {
        let (taken, left): (Vec<Wave>, _) = std::mem::take(&mut self.open).into_iter().partition(wanted);
        self.open = left;
        if taken.iter().any(|wave| wave.kind == Kind::Started(MoveReason::Failover)) {
            self.dead.iter_mut().for_each(|dead| dead.told = true);
        }
        taken
    }
}

impl Wave {
    fn over_at(&self) -> Moment {
        (self.last_at + QUIET).min(self.began_at + LONGEST)
    }

    /// The group, if all shards are in one.
    pub(super) fn group(&self) -> Option<&str> {
        match self.groups.len() {
            1 => self.groups.first().map(GroupName::as_str),
            _ => None,
        }
    }

    /// The shard, if there is only one.
    pub(super) fn shard(&self) -> Option<&str> {
        (self.count == 1).then(|| self.named[0].as_str())
    }

    /// From the first to the last.
    pub(super) fn took_ms(&self) -> u64 {
        millis(self.last_at.since(self.began_at))
    }

    /// The longest time without an owner.
    pub(super) fn unowned_ms(&self) -> Option<u64> {
        self.unowned.map(|(_, most)| millis(most))
    }

    /// `orders/1, orders/2` or `64 shards`.
    fn who(&self) -> String {
        if self.count <= NAMED_MAX {
            return self.named.join(", ");
        }
        let nodes = matches!(self.kind, Kind::Joined | Kind::Ended);
        let what = if nodes { "nodes" } else { "shards" };
        format!("{} {what}", self.count)
    }

    /// ` in 7 ms`, unless that says nothing.
    fn took(&self) -> String {
        match self.took_ms() {
            0 => String::new(),
            _ => format!(" in {}", in_words(self.last_at.since(self.began_at))),
        }
    }

    fn nodes(&self, before: &str) -> String {
        let names: Vec<&str> = self.nodes.iter().map(NodeName::as_str).collect();
        match names.len() {
            0 => String::new(),
            n if n <= NAMED_MAX => format!("{before}{}", names.join(", ")),
            n => format!("{before}{n} nodes"),
        }
    }
}

/// The wave as a sentence.
impl fmt::Display for Wave {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (who, took) = (self.who(), self.took());
        match self.kind {
            Kind::Started(why) => {
                write!(f, "{who} started{took}")?;
                match self.unowned {
                    Some((least, most)) if in_words(least) == in_words(most) => {
                        write!(f, " after {} without an owner", in_words(most))?;
                    }
                    Some((_, most)) => write!(f, " after up to {} without an owner", in_words(most))?,
                    None => {}
                }
                write!(f, ": {}{}", words(why.as_str()), self.nodes(" of "))
            }
            Kind::Released(why) => {
                write!(f, "{who} released{took}{}: {}", self.nodes(" to "), words(why.as_str()))
            }
            Kind::Stopped(why) => write!(f, "{who} told to stop{took}: {why}"),
            Kind::Joined if self.count == 1 => write!(f, "node {who} joined"),
            Kind::Joined if self.count <= NAMED_MAX => write!(f, "nodes {who} joined{took}"),
            Kind::Joined => write!(f, "{who} joined{took}"),
            Kind::Ended if self.count <= NAMED_MAX => {
                let one = self.count == 1;
                let (sessions, are) =
                    if one { ("session of node", "is") } else { ("sessions of nodes", "are") };
                write!(f, "{sessions} {who} {are} over: fenced, or replaced by a new one")
            }
            Kind::Ended => write!(f, "sessions of {who} are over{took}: fenced, or replaced by new ones"),
        }
    }
}

fn words(word: &str) -> String {
    word.replace('_', " ")
}

/// Whole milliseconds.
pub(super) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// A duration as precisely as people want it: `7 ms`, `15.1 s`, `3 min 20 s`, `2 h 5 min`.
pub(super) fn in_words(span: Duration) -> String {
    let ms = millis(span);
    let (seconds, minutes) = (ms / 1000, ms / 60_000);
    match ms {
        0 => "less than 1 ms".to_owned(),
        1..1_000 => format!("{ms} ms"),
        1_000..60_000 => format!("{seconds}.{} s", ms % 1000 / 100),
        60_000..3_600_000 => format!("{minutes} min {} s", seconds % 60),
        _ => format!("{} h {} min", minutes / 60, minutes % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Moment {
        Moment::from_millis(ms)
    }

    fn node(name: &str) -> NodeName {
        name.parse().unwrap()
    }

    fn shard(slot: usize) -> ShardId {
        format!("orders/{slot}").parse().unwrap()
    }

    fn told(waves: Vec<Wave>) -> Vec<String> {
        waves.iter().map(Wave::to_string).collect()
    }

    #[test]
    fn a_failover_is_one_line_that_names_the_dead_node() {
        let mut waves = Waves::default();
        waves.died(&node("old"), at(100));
        waves.died(&node("before"), at(69_000));
        waves.started(&shard(99), MoveReason::Failover, None, at(69_100));
        assert_eq!(told(waves.take(|_| true)), ["orders/99 started: failover of before"]);
        waves.died(&node("e1"), at(70_000));
        for slot in 0..64 {
            let gap = Some(Duration::from_millis(15_100 + slot as u64 / 10));
            waves.started(&shard(slot), MoveReason::Failover, gap, at(70_100 + slot as u64 / 9));
        }
        assert_eq!(waves.due_at(), at(70_107) + QUIET);
        assert!(waves.over(at(70_300)).is_empty());
        let over = waves.over(at(70_307));
        assert_eq!(
            (over[0].group(), over[0].shard(), over[0].unowned_ms()),
            (Some("orders"), None, Some(15_106))
        );
        assert_eq!(told(over), ["64 shards started in 7 ms after 15.1 s without an owner: failover of e1"]);
        assert_eq!(waves.due_at(), Moment::NEVER);
    }

    #[test]
    fn few_shards_are_named_and_gaps_that_differ_have_a_limit() {
        let mut waves = Waves::default();
        let ms = Duration::from_millis;
        waves.started(&shard(1), MoveReason::Rebalance, Some(ms(2)), at(0));
        waves.started(&shard(2), MoveReason::Rebalance, Some(ms(40)), at(9));
        waves.started(&shard(3), MoveReason::WorkEnded, None, at(9));
        waves.released(&shard(4), MoveReason::Drain, Some(&node("b")), at(10));
        waves.stopped(&shard(5), StopReason::NotOurs, at(11));
        waves.joined(&node("b"), at(11));
        waves.joined(&node("b"), at(12));
        assert_eq!(
            told(waves.take(|_| true)),
            [
                "orders/1, orders/2 started in 9 ms after up to 40 ms without an owner: rebalance",
                "orders/3 started: work ended",
                "orders/4 released to b: drain",
                "orders/5 told to stop: not ours",
                "node b joined",
            ]
        );
    }

    #[test]
    fn a_session_that_this_node_fenced_is_not_told_twice() {
        let mut waves = Waves::default();
        let session = |name: &str| SessionId::from_bits(u128::from(name.as_bytes()[0]));
        for name in ["a", "b", "c", "c"] {
            waves.ended(&node(name), session(name), at(0));
        }
        waves.fenced_here(&node("b"), session("b"));
        waves.fenced_here(&node("x"), session("x"));
        assert_eq!(
            told(waves.over(at(200))),
            ["sessions of nodes a, c are over: fenced, or replaced by a new one"]
        );
        // Whichever is told first.
        waves.ended(&node("d"), session("d"), at(300));
        waves.fenced_here(&node("d"), session("d"));
        waves.fenced_here(&node("e"), session("e"));
        waves.ended(&node("e"), session("e"), at(300));
        assert_eq!((waves.due_at(), waves.over(at(900)).len()), (Moment::NEVER, 0));
        waves.ended(&node("f"), session("f"), at(900));
        assert_eq!(
            told(waves.take(|_| true)),
            ["session of node f is over: fenced, or replaced by a new one"]
        );
    }

    #[test]
    fn a_wave_without_end_is_told_in_parts() {
        let mut waves = Waves::default();
        let mut told = Vec::new();
        for ms in (0..12_000).step_by(100) {
            told.extend(waves.over(at(ms)));
            waves.released(&shard(1), MoveReason::Drain, None, at(ms));
        }
        told.extend(waves.take(|_| true));
        assert_eq!(told.iter().map(|wave| wave.count).collect::<Vec<_>>(), [50, 50, 20]);
    }

    #[test]
    fn durations_read_as_people_write_them() {
        for (ms, text) in [
            (0, "less than 1 ms"),
            (1, "1 ms"),
            (999, "999 ms"),
            (15_149, "15.1 s"),
            (59_999, "59.9 s"),
            (200_000, "3 min 20 s"),
            (7_500_000, "2 h 5 min"),
        ] {
            assert_eq!(in_words(Duration::from_millis(ms)), text);
        }
    }
}
