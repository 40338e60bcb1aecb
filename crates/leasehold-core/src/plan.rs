//! Roster and plan: the live nodes, and which shard each should hold. Pure functions of the mirror.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use xxhash_rust::xxh3::Xxh3;

use crate::config::GroupConfig;
use crate::mirror::{Lasting, Mirror};
use crate::name::{Epoch, GroupName, NodeName, SessionId, ShardId};
use crate::placement::{Assignment, Candidate, Placement, Planner, Question, Ranked, WrongAnswer};
use crate::record::{
    Control, NodeRecord, NodeState, Policy, RecordError, Served, ShardSet, ShardState, Slots, ZoneRule,
};
use crate::rules::{Rule, Rules};

/// A live node, with everything that planning needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its session.
    pub session: SessionId,
    /// Active or draining.
    pub state: NodeState,
    /// Whether it takes new shards.
    pub accepting: bool,
    /// Whether it will soon.
    pub returning: bool,
    /// Its weight, with operators' overrides applied.
    pub weight: u32,
    /// Its total capacity.
    pub capacity: Option<u32>,
    /// Its zone.
    pub zone: Option<String>,
    /// The groups that it serves.
    pub groups: BTreeMap<GroupName, Served>,
    /// Shards that it declines.
    pub declined: BTreeSet<ShardId>,
    /// Hash of the view that it plans with.
    pub view: u64,
    /// Its ttl, in milliseconds.
    pub ttl_ms: u64,
}

impl Member {
    /// A member as its record shows it.
    pub fn of(record: &NodeRecord) -> Self {
        Member {
            session: record.session,
            state: record.state,
            accepting: record.accepting,
            returning: record.returning,
            weight: record.weight,
            capacity: record.capacity,
            zone: record.zone.clone(),
            groups: record.groups.clone(),
            declined: record.declined.iter().cloned().collect(),
            view: record.view,
            ttl_ms: record.ttl_ms,
        }
    }

    /// Whether a record certainly still shows this member, but for the view: [`Member::of`] it, with operators' commands applied,
    /// would be the same. Most renewals change nothing, and every node compares every renewal, so nothing is copied.
    pub fn is_shown_by(&self, record: &NodeRecord, control: Option<&Control>) -> bool {
        let Member {
            session,
            state,
            accepting,
            returning,
            weight,
            capacity,
            zone,
            groups,
            declined,
            view: _,
            ttl_ms,
        } = self;
        let overridden = control.and_then(|control| control.weights.get(&record.node));
        let drained = control.is_some_and(|control| control.drain.contains_key(&record.node));
        *session == record.session
            && *state == if drained { NodeState::Draining } else { record.state }
            && *accepting == record.accepting
            && *returning == record.returning
            && weight == overridden.unwrap_or(&record.weight)
            && *capacity == record.capacity
            && *zone == record.zone
            && *groups == record.groups
            && declined.iter().eq(&record.declined)
            && *ttl_ms == record.ttl_ms
    }

    /// Whether it declines a shard.
    pub fn declines(&self, shard: &ShardId) -> bool {
        self.declined.contains(shard)
            || self.groups.get(&shard.group).is_some_and(|served| served.declines(&shard.name))
    }

    /// The shards of a group that it declines, of those that the group has.
    fn declined_of(&self, name: &GroupName, group: &GroupSettings) -> Vec<ShardId> {
        let mut declined: Vec<ShardId> =
            self.declined.iter().filter(|shard| shard.group == *name).cloned().collect();
        let Some(served) = self.groups.get(name) else { return declined };
        match group.set {
            ShardSet::Numbered(slots) => {
                // What is beyond the group may be anything, in a damaged record.
                let ranges = served.slots_declined.ranges().take_while(|(from, _)| *from < slots);
                let all = ranges.flat_map(|(from, last)| from..=last.min(slots - 1));
                declined.extend(all.map(|slot| ShardId::slot(name, slot)));
            }
            ShardSet::Named if !served.names_declined.is_empty() || served.names_known.is_some() => {
                declined.extend(group.shards.iter().filter(|shard| served.declines(&shard.name)).cloned());
            }
            ShardSet::Named => {}
        }
        declined
    }

    /// Whether the plan may give it shards at all, now or in a moment.
    pub fn receives(&self) -> bool {
        self.state == NodeState::Active && (self.accepting || self.returning) && self.weight > 0
    }

    /// Whether it takes now what the plan gives to it.
    pub fn takes_now(&self) -> bool {
        self.receives() && self.accepting
    }
}

/// The live nodes.
pub type Roster = BTreeMap<NodeName, Member>;

/// The settings in effect for a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSettings {
    /// Numbered or named.
    pub set: ShardSet,
    /// The shards that should be held, in order.
    pub shards: Arc<[ShardId]>,
    /// The rules.
    pub policy: Policy,
    /// New epochs are above this.
    pub epoch_floor: Epoch,
    /// These slots have had a record.
    pub filled: Slots,
    /// Whether these come from the store or from a node's own settings.
    pub from_store: bool,
}

/// The plan of one group.
#[derive(Clone, Debug)]
pub struct GroupPlan {
    /// What was asked.
    pub question: Question,
    /// Which node should hold which shard.
    pub answer: Arc<Assignment>,
    /// What was wrong with the answer of the user's own placement.
    pub wrong_answer: Option<WrongAnswer>,
}

/// Which node should hold which shard.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Per group.
    pub groups: BTreeMap<GroupName, GroupPlan>,
    /// Hash of everything that went into it: nodes with the same one agree.
    pub view: u64,
}

impl Plan {
    /// The node that should hold this shard.
    pub fn wanted(&self, shard: &ShardId) -> Option<&NodeName> {
        let group = self.groups.get(&shard.group)?;
        let index = group.question.shards.binary_search(shard).ok()?;
        let node = (*group.answer.to.get(index)?)?;
        group.question.nodes.get(node as usize).map(|node| &node.name)
    }

    /// Whether any node should hold this shard.
    pub fn has(&self, shard: &ShardId) -> bool {
        self.groups.get(&shard.group).is_some_and(|group| group.question.shards.binary_search(shard).is_ok())
    }

    /// All shards with their planned nodes.
    pub fn iter(&self) -> impl Iterator<Item = (&ShardId, Option<&NodeName>)> {
        self.groups.values().flat_map(|group| {
            let names = &group.question.nodes;
            (group.question.shards.iter().zip(group.answer.to.iter())).map(move |(shard, to)| {
                (shard, to.and_then(|to| names.get(to as usize)).map(|node| &node.name))
            })
        })
    }

    /// How many shards each node should hold.
    pub fn wanted_counts(&self) -> BTreeMap<NodeName, usize> {
        let mut counts = BTreeMap::new();
        for name in self.iter().filter_map(|(_, to)| to) {
            *counts.entry(name.clone()).or_insert(0) += 1;
        }
        counts
    }
}

/// Makes plans, and remembers what helps with the next one.
pub struct Planning {
    own: Option<Arc<dyn Placement>>,
    planners: BTreeMap<GroupName, Planner>,
    slots: BTreeMap<GroupName, (u32, Arc<[ShardId]>)>,
    rules: Rules,
}

impl std::fmt::Debug for Planning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Planning").field("groups", &self.planners.keys()).finish_non_exhaustive()
    }
}

impl Planning {
    /// With our placement, or the user's own.
    pub fn new(own: Option<Arc<dyn Placement>>) -> Self {
        Planning { own, planners: BTreeMap::new(), slots: BTreeMap::new(), rules: Rules::default() }
    }

    /// The same rule, with nothing remembered: for trying out what would happen.
    pub fn afresh(&self) -> Self {
        Planning { rules: self.rules.clone(), ..Planning::new(self.own.clone()) }
    }

    /// The id of the user's own placement, if there is one.
    pub fn own_id(&self) -> Option<String> {
        self.own.as_ref().map(|_| self.planner().id())
    }

    #[cfg(feature = "sabotage")]
    pub(crate) fn obey(&mut self, rules: &Rules) {
        self.rules = rules.clone();
    }

    fn planner(&self) -> Planner {
        let planner = match &self.own {
            Some(own) => Planner::own(own.clone()),
            None => Planner::rendezvous(),
        };
        planner.obeying(&self.rules)
    }

    /// What holds for the groups: the store's word, or else the static settings of those that serve them. A group whose
    /// record only a newer version understands has none: placing by older settings would be a guess, so nothing of it is
    /// claimed or moved here, and what runs goes on.
    pub fn settings(
        &mut self,
        mirror: &Mirror,
        fallback: &BTreeMap<GroupName, GroupConfig>,
    ) -> BTreeMap<GroupName, GroupSettings> {
        let mut settings = BTreeMap::new();
        let names: BTreeSet<&GroupName> = mirror.groups().keys().chain(fallback.keys()).collect();
        for name in names {
            let seen = mirror.groups().get(name);
            if seen.and_then(|seen| seen.record.as_ref().err()).is_some_and(RecordError::is_too_new) {
                continue;
            }
            let stored = seen.and_then(|seen| seen.best());
            let Some((set, policy)) = stored
                .map(|r| (r.shards, r.policy.clone()))
                .or_else(|| fallback.get(name).map(|c| (c.shards, c.policy.clone())))
            else {
                continue;
            };
            // What a record that was never readable remembers may be anything.
            let unread = || Lasting { epoch_floor: Epoch(0), filled: Slots::below(u32::MAX) };
            let known = mirror.lasting(name).cloned();
            let Lasting { epoch_floor, filled } =
                known.or_else(|| seen.map(|_| unread())).unwrap_or_default();
            let shards = self.shards(mirror, name, set);
            let from_store = stored.is_some();
            settings
                .insert(name.clone(), GroupSettings { set, shards, policy, epoch_floor, filled, from_store });
        }
        settings
    }

    /// The shards of a group of this kind that should be held, in order.
    pub fn shards(&mut self, mirror: &Mirror, group: &GroupName, set: ShardSet) -> Arc<[ShardId]> {
        match set {
            ShardSet::Numbered(slots) => self.numbered(group, slots),
            ShardSet::Named => named(mirror, group),
        }
    }

    fn numbered(&mut self, group: &GroupName, slots: u32) -> Arc<[ShardId]> {
        if let Some((known, shards)) = self.slots.get(group)
            && *known == slots
        {
            return shards.clone();
        }
        let mut shards: Vec<ShardId> = (0..slots).map(|slot| ShardId::slot(group, slot)).collect();
        shards.sort();
        let shards: Arc<[ShardId]> = shards.into();
        self.slots.insert(group.clone(), (slots, shards.clone()));
        shards
    }

    /// Which node should hold which shard.
    pub fn plan(
        &mut self,
        roster: &Roster,
        settings: &BTreeMap<GroupName, GroupSettings>,
        control: Option<&Control>,
    ) -> Plan {
        let mut left: BTreeMap<&NodeName, Option<u32>> =
            roster.iter().map(|(name, member)| (name, member.capacity)).collect();
        let mut groups = BTreeMap::new();
        for (name, group) in settings {
            let mut question = question(name, group, roster, control, &left);
            if !self.rules.hold(Rule::ZonesCount) {
                question.policy.zones = ZoneRule::Ignore;
            }
            if !self.planners.contains_key(name) {
                let planner = self.planner();
                self.planners.insert(name.clone(), planner);
            }
            let planner = self.planners.get_mut(name).expect("it was just made");
            let answer = planner.plan(question.clone());
            for to in answer.to.iter().flatten() {
                let taken = question.nodes.get(*to as usize).and_then(|node| left.get_mut(&node.name));
                if let Some(Some(left)) = taken {
                    *left = left.saturating_sub(1);
                }
            }
            let wrong_answer = planner.wrong_answer().cloned();
            groups.insert(name.clone(), GroupPlan { question, answer, wrong_answer });
        }
        let id = self.planner().id();
        Plan { view: view_hash(&id, roster, &groups), groups }
    }

    /// The nodes in the order in which they should have this shard, without those that decline it.
    pub fn rank<'p>(&self, plan: &'p Plan, shard: &ShardId) -> Vec<&'p NodeName> {
        let (Some(group), Some(planner)) = (plan.groups.get(&shard.group), self.planners.get(&shard.group))
        else {
            return Vec::new();
        };
        let ranked = planner.rank(&group.question, shard);
        ranked
            .into_iter()
            .filter_map(|i| group.question.nodes.get(i as usize))
            .map(|node| &node.name)
            .collect()
    }

    /// The candidates for a shard with what went into their order.
    pub fn ranked(&self, plan: &Plan, shard: &ShardId) -> Vec<Ranked> {
        let group = plan.groups.get(&shard.group).zip(self.planners.get(&shard.group));
        group.map_or_else(Vec::new, |(group, planner)| planner.ranked(&group.question, shard))
    }

    /// The most that each candidate of a group may get.
    pub fn caps(&self, plan: &Plan, group: &GroupName) -> Vec<Option<u32>> {
        let group = plan.groups.get(group).zip(self.planners.get(group));
        group.map_or_else(Vec::new, |(group, planner)| planner.caps(&group.question))
    }
}

fn named(mirror: &Mirror, group: &GroupName) -> Arc<[ShardId]> {
    (mirror.shards().iter())
        .filter(|(id, seen)| {
            id.group == *group && !matches!(seen.good(), Some(record) if record.state == ShardState::Retired)
        })
        .map(|(id, _)| id.clone())
        .collect()
}

fn question(
    name: &GroupName,
    group: &GroupSettings,
    roster: &Roster,
    control: Option<&Control>,
    left: &BTreeMap<&NodeName, Option<u32>>,
) -> Question {
    let mut declined: BTreeMap<ShardId, Vec<NodeName>> = BTreeMap::new();
    let mut nodes = Vec::new();
    for (node, member) in roster {
        let Some(served) = member.groups.get(name) else { continue };
        if !member.receives() || served.declined {
            continue;
        }
        let in_all = left.get(node).copied().flatten();
        let capacity = in_all.into_iter().chain(served.capacity).min();
        nodes.push(Candidate {
            name: node.clone(),
            weight: member.weight,
            capacity,
            zone: member.zone.clone(),
        });
        for shard in member.declined_of(name, group) {
            let by: &mut Vec<NodeName> = declined.entry(shard).or_default();
            if by.last() != Some(node) {
                by.push(node.clone());
            }
        }
    }
    let pins = control.map(|control| {
        let ours = control.pins.iter().filter(|(shard, _)| shard.group == *name);
        ours.map(|(shard, node)| (shard.clone(), node.clone())).collect()
    });
    // How work ends has no part in where it runs: nodes whose rules for that differ agree on the plan.
    let (on_failure, on_finish) = Default::default();
    let policy = Policy { on_failure, on_finish, ..group.policy.clone() };
    let shards = group.shards.clone();
    Question { nodes, shards, policy, pins: pins.unwrap_or_default(), declined }
}

/// A hash of all that a plan depends on, except the names of the shards of a named group that come and go: those are
/// hashed by count, since each of them is looked at by itself.
fn view_hash(placement: &str, roster: &Roster, groups: &BTreeMap<GroupName, GroupPlan>) -> u64 {
    let mut hash = Xxh3::new();
    let mut add = |part: &str| {
        hash.update(&(part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    };
    add(placement);
    for (name, member) in roster {
        add(name.as_str());
        let counts = member.accepting || member.returning;
        add(&format!("{:?} {counts} {} {:?}", member.state, member.weight, member.capacity));
    }
    for (name, group) in groups {
        add(name.as_str());
        add(&format!("{:?} {}", group.question.policy, group.question.shards.len()));
        for node in &group.question.nodes {
            add(&format!("{} {} {:?} {:?}", node.name, node.weight, node.capacity, node.zone));
        }
        // Without declines as earlier versions have it.
        add(&format!("{:?} {{}}", group.question.pins));
        for (shard, by) in &group.question.declined {
            add(shard.name.as_str());
            by.iter().for_each(|node| add(node.as_str()));
        }
    }
    hash.digest()
}

/// The live nodes in the mirror, with operators' commands applied.
pub fn roster(mirror: &Mirror) -> Roster {
    roster_under(mirror, mirror.control())
}

/// The live nodes, if operators asked for this.
pub fn roster_under(mirror: &Mirror, control: Option<&Control>) -> Roster {
    let alive = mirror.nodes().iter().filter_map(|(name, node)| {
        // A damaged record says nothing new: the node stays what it was until it is proved dead.
        let record = node.seen.as_ref()?.best()?;
        let over = mirror.is_proved_over(&record.session) || mirror.is_process_gone(&record.session);
        (record.state.is_alive() && !over).then(|| (name.clone(), Member::of(record)))
    });
    let mut roster: Roster = alive.collect();
    apply_control(&mut roster, control);
    roster
}

/// Applies operators' commands to a roster.
pub fn apply_control(roster: &mut Roster, control: Option<&Control>) {
    let Some(control) = control else { return };
    for (name, member) in roster {
        if let Some(weight) = control.weights.get(name) {
            member.weight = *weight;
        }
        if control.drain.contains_key(name) {
            member.state = NodeState::Draining;
        }
    }
}
