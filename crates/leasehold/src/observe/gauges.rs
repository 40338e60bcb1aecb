//! The gauges of a node: set from each view, and again every second, so that a recorder sees them whenever it is installed.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_core::notice::SessionState;
use leasehold_core::view::{Me, ProblemKind, ShardPhase, ShardView};
use leasehold_core::{GroupName, Moment, View};
use metrics::{counter, gauge};

/// How often they are set again.
const AGAIN_EVERY: Duration = Duration::from_secs(1);

/// Counters of each group are there as soon as the group is known, so that a first increment is seen as one.
const OF_EACH_GROUP: [&str; 4] = [
    "leasehold_work_failures_total",
    "leasehold_stuck_total",
    "leasehold_quarantined_total",
    "leasehold_no_room_total",
];

/// All states of a session, each a gauge of its own.
const STATES: [SessionState; 6] = [
    SessionState::Joining,
    SessionState::Attached,
    SessionState::Degraded,
    SessionState::Detached,
    SessionState::Recovering,
    SessionState::Left,
];

/// What the gauges of one node show. Groups and problems that are gone stay in here with zeros: a gauge that nobody sets
/// keeps its last value.
pub(super) struct Gauges {
    again_at: Moment,
    ttl: Duration,
    state: SessionState,
    weight: u32,
    capacity: Option<u32>,
    draining: bool,
    frozen: bool,
    nodes: usize,
    streak: u32,
    stop_at: Option<Moment>,
    groups: BTreeMap<GroupName, OfGroup>,
    problems: BTreeMap<ProblemKind, usize>,
}

#[derive(Default)]
struct OfGroup {
    shards: usize,
    owned: usize,
    wanted: usize,
    running: usize,
    unowned: usize,
    quarantined: usize,
    stuck: usize,
}

impl Gauges {
    /// Those of a node whose sessions have this ttl.
    pub(super) fn new(ttl: Duration) -> Self {
        Gauges {
            again_at: Moment::ZERO,
            ttl,
            state: SessionState::Joining,
            weight: 0,
            capacity: None,
            draining: false,
            frozen: false,
            nodes: 0,
            streak: 0,
            stop_at: None,
            groups: BTreeMap::new(),
            problems: BTreeMap::new(),
        }
    }

    /// Takes in a view that was made just now.
    pub(super) fn view(&mut self, view: &View, running: &BTreeMap<GroupName, usize>, now: Moment) {
        self.clear();
        self.frozen = view.frozen.is_some();
        self.nodes = view.nodes.iter().filter(|node| node.state.is_alive()).count();
        for group in &view.groups {
            self.group(&group.group).unowned = group.unowned;
        }
        for problem in &view.problems {
            *self.problems.entry(problem.kind).or_default() += 1;
        }
        if let Some(me) = &view.me {
            self.state = me.session_state;
            let own = view.nodes.iter().find(|node| me.session == Some(node.session));
            (self.weight, self.capacity) = own.map_or((0, None), |node| (node.weight, node.capacity));
            self.draining = me.draining;
            self.streak = me.renewals_failed;
            self.stop_at = me.stop_in_ms.map(|ms| now + Duration::from_millis(ms));
            for shards in view.shards.chunk_by(|a, b| a.id.0.group == b.id.0.group) {
                self.shards(me, shards);
            }
        }
        self.running(running);
    }

    /// Shards of one group, as the node itself sees them.
    fn shards(&mut self, me: &Me, shards: &[ShardView]) {
        let count = |is: &dyn Fn(&ShardView) -> bool| shards.iter().filter(|shard| is(shard)).count();
        let group = self.group(&shards[0].id.0.group);
        group.shards = count(&|shard| shard.state != ShardPhase::Retired);
        group.wanted = count(&|shard| shard.wanted.as_ref() == Some(&me.node));
        group.owned = count(&|shard| is_mine(shard, me));
        group.quarantined = count(&|shard| is_mine(shard, me) && shard.state == ShardPhase::Quarantined);
        group.stuck = count(&|shard| is_mine(shard, me) && shard.state == ShardPhase::Stuck);
    }

    /// The number of shards whose work runs here, by group.
    pub(super) fn running(&mut self, running: &BTreeMap<GroupName, usize>) {
        self.groups.values_mut().for_each(|group| group.running = 0);
        for (name, count) in running {
            self.group(name).running = *count;
        }
    }

    /// All but the running work becomes zero, and the state says that the node is gone.
    pub(super) fn clear(&mut self) {
        (self.state, self.draining, self.frozen) = (SessionState::Left, false, false);
        (self.weight, self.capacity) = (0, Some(0));
        (self.nodes, self.streak, self.stop_at) = (0, 0, None);
        self.problems.values_mut().for_each(|count| *count = 0);
        for group in self.groups.values_mut() {
            *group = OfGroup { running: group.running, ..OfGroup::default() };
        }
    }

    fn group(&mut self, name: &GroupName) -> &mut OfGroup {
        if !self.groups.contains_key(name) {
            self.groups.insert(name.clone(), OfGroup::default());
        }
        self.groups.get_mut(name).expect("it was put in")
    }

    /// When they should be set again.
    pub(super) fn again_at(&self) -> Moment {
        self.again_at
    }

    /// Sets them; the store has been silent for that long.
    pub(super) fn set(&mut self, node: &str, silent_for: Duration, now: Moment) {
        self.again_at = now + AGAIN_EVERY;
        let of_node = |name: &'static str, value: f64| gauge!(name, "node" => node.to_owned()).set(value);
        gauge!("leasehold_info", "node" => node.to_owned(), "version" => env!("CARGO_PKG_VERSION")).set(1.0);
        for state in STATES {
            gauge!("leasehold_session_state", "node" => node.to_owned(), "state" => state.as_str())
                .set(f64::from(u8::from(state == self.state)));
        }
        let attached = matches!(self.state, SessionState::Attached | SessionState::Degraded);
        of_node("leasehold_attached", f64::from(u8::from(attached)));
        of_node("leasehold_ttl_seconds", self.ttl.as_secs_f64());
        of_node("leasehold_store_silent_seconds", silent_for.as_secs_f64());
        of_node("leasehold_weight", f64::from(self.weight));
        of_node("leasehold_capacity", self.capacity.map_or(f64::INFINITY, f64::from));
        of_node("leasehold_draining", f64::from(u8::from(self.draining)));
        of_node("leasehold_frozen", f64::from(u8::from(self.frozen)));
        of_node("leasehold_nodes", self.nodes as f64);
        of_node("leasehold_renewal_failure_streak", f64::from(self.streak));
        let stop_in = self.stop_at.map_or(Duration::ZERO, |stop_at| stop_at.since(now));
        of_node("leasehold_deadline_seconds", stop_in.as_secs_f64());
        for (kind, count) in &self.problems {
            gauge!("leasehold_problems", "node" => node.to_owned(), "kind" => kind.as_str())
                .set(*count as f64);
        }
        for (name, group) in &self.groups {
            let of_group = |metric: &'static str, value: usize| {
                gauge!(metric, "node" => node.to_owned(), "group" => name.to_string()).set(value as f64);
            };
            for counted in OF_EACH_GROUP {
                counter!(counted, "node" => node.to_owned(), "group" => name.to_string()).increment(0);
            }
            of_group("leasehold_shards", group.shards);
            of_group("leasehold_shards_owned", group.owned);
            of_group("leasehold_shards_wanted", group.wanted);
            of_group("leasehold_shards_running", group.running);
            of_group("leasehold_shards_unowned", group.unowned);
            of_group("leasehold_shards_quarantined", group.quarantined);
            of_group("leasehold_shards_stuck", group.stuck);
        }
    }
}

/// Whether the node holds a shard: its record says so, or it is in a state that is only known of own shards.
fn is_mine(shard: &ShardView, me: &Me) -> bool {
    use ShardPhase::{Backoff, Claiming, Releasing, Running, Stopping};
    let by_state = matches!(shard.state, Running | Stopping | Backoff | Releasing);
    me.session.is_some() && shard.state != Claiming && (shard.session == me.session || by_state)
}
