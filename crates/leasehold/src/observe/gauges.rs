//! The gauges of a node: set from each view, and again every second, so that a recorder sees them whenever it is installed.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_core::notice::SessionState;
use leasehold_core::view::{Me, ProblemKind, ShardPhase, ShardView};
use leasehold_core::{GroupName, Moment, View};
use metrics::gauge;

/// How often they are set again.
const AGAIN_EVERY: Duration = Duration::from_secs(1);

/// What the gauges of one node show. Groups and problems that are gone stay in here with zeros: a gauge that nobody sets
/// keeps its last value.
#[derive(Default)]
pub(super) struct Gauges {
    again_at: Moment,
    attached: bool,
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
    owned: usize,
    wanted: usize,
    running: usize,
    unowned: usize,
    quarantined: usize,
    stuck: usize,
}

impl Gauges {
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
            self.attached = matches!(me.session_state, SessionState::Attached | SessionState::Degraded);
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

    /// All but the running work becomes zero.
    pub(super) fn clear(&mut self) {
        (self.attached, self.draining, self.frozen) = (false, false, false);
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

    /// Sets them.
    pub(super) fn set(&mut self, node: &str, now: Moment) {
        self.again_at = now + AGAIN_EVERY;
        let of_node = |name: &'static str, value: f64| gauge!(name, "node" => node.to_owned()).set(value);
        of_node("leasehold_attached", f64::from(u8::from(self.attached)));
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
