//! The clever placement agrees with the dumb one, whatever was asked before.

mod twin;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use leasehold_core::name::{GroupName, NodeName, ShardId, ShardName};
use leasehold_core::placement::{Candidate, Placement, Planner, Question, Rendezvous};
use leasehold_core::record::{Policy, ZoneRule};
use proptest::prelude::*;

fn group() -> GroupName {
    GroupName::new("work").unwrap()
}

fn shard(number: u32) -> ShardId {
    // Some are slots, some have names, so that their order is neither that of numbers nor that of making.
    match number % 3 {
        0 => ShardId::slot(&group(), number),
        _ => ShardId::new(group(), ShardName::new(format!("tenant/{number}")).unwrap()),
    }
}

fn node(number: u32) -> NodeName {
    NodeName::new(format!("worker-{number}")).unwrap()
}

fn any_candidate(number: u32) -> impl Strategy<Value = Candidate> {
    let weight = prop_oneof![
        6 => 1u32..=4,
        1 => Just(0),
        1 => Just(100),
        1 => Just(u32::MAX),
    ];
    let capacity = prop_oneof![3 => Just(None), 2 => (0u32..12).prop_map(Some)];
    let zone = prop::option::weighted(0.8, prop_oneof![Just("a"), Just("b"), Just("c")]);
    (weight, capacity, zone).prop_map(move |(weight, capacity, zone)| Candidate {
        name: node(number),
        weight,
        capacity,
        zone: zone.map(str::to_owned),
    })
}

fn any_nodes() -> impl Strategy<Value = Vec<Candidate>> {
    prop::collection::btree_set(0u32..12, 0..8)
        .prop_flat_map(|numbers| numbers.into_iter().map(any_candidate).collect::<Vec<_>>())
        .prop_shuffle()
}

fn any_policy() -> impl Strategy<Value = Policy> {
    let zones = prop_oneof![
        3 => Just(ZoneRule::Ignore),
        2 => Just(ZoneRule::Spread),
        2 => Just(ZoneRule::Prefer("a".to_owned())),
    ];
    let balance = prop_oneof![Just(1000), Just(1100), 1000u32..2000, Just(u32::MAX)];
    (zones, balance).prop_map(|(zones, balance_permille)| Policy {
        zones,
        balance_permille,
        ..Policy::default()
    })
}

fn any_question() -> impl Strategy<Value = Question> {
    let shards = prop::collection::btree_set(0u32..60, 0..40).prop_map(|s| s.into_iter().collect::<Vec<_>>());
    let pins = prop::collection::btree_map(0u32..60, 0u32..12, 0..6);
    let declined = prop_oneof![
        2 => Just(BTreeMap::new()),
        1 => prop::collection::btree_map(0u32..60, prop::collection::vec(0u32..12, 1..9), 0..40),
    ];
    (any_nodes(), shards.prop_shuffle(), any_policy(), pins, declined).prop_map(
        |(nodes, shards, policy, pins, declined)| Question {
            nodes,
            shards: shards.into_iter().map(shard).collect(),
            policy,
            pins: pins.into_iter().map(|(s, n)| (shard(s), node(n))).collect(),
            declined: (declined.into_iter())
                .map(|(s, by)| (shard(s), by.into_iter().map(node).collect()))
                .collect(),
        },
    )
}

/// One step from a question to the next.
#[derive(Clone, Debug)]
enum Step {
    Join(Candidate),
    Leave(usize),
    Change(usize, Candidate),
    Policy(Policy),
    Pin(u32, Option<u32>),
    Decline(u32, Vec<u32>),
    Add(u32),
    Drop(usize),
    Nothing,
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (20u32..24).prop_flat_map(any_candidate).prop_map(Step::Join),
        3 => any::<prop::sample::Index>().prop_map(|i| Step::Leave(i.index(1000))),
        3 => (any::<prop::sample::Index>(), any_candidate(0)).prop_map(|(i, c)| Step::Change(i.index(1000), c)),
        1 => any_policy().prop_map(Step::Policy),
        1 => (0u32..60, prop::option::of(0u32..12)).prop_map(|(s, n)| Step::Pin(s, n)),
        1 => (0u32..60, prop::collection::vec(0u32..12, 0..5)).prop_map(|(s, by)| Step::Decline(s, by)),
        1 => (60u32..90).prop_map(Step::Add),
        1 => any::<prop::sample::Index>().prop_map(|i| Step::Drop(i.index(1000))),
        1 => Just(Step::Nothing),
    ]
}

fn apply(question: &mut Question, step: Step) {
    let some = |index: usize, len: usize| (len > 0).then(|| index % len);
    match step {
        Step::Join(new) => {
            question.nodes.retain(|node| node.name != new.name);
            question.nodes.push(new);
        }
        Step::Leave(index) => {
            if let Some(at) = some(index, question.nodes.len()) {
                question.nodes.remove(at);
            }
        }
        Step::Change(index, like) => {
            if let Some(at) = some(index, question.nodes.len()) {
                let name = question.nodes[at].name.clone();
                question.nodes[at] = Candidate { name, ..like };
            }
        }
        Step::Policy(policy) => question.policy = policy,
        Step::Pin(s, Some(n)) => drop(question.pins.insert(shard(s), node(n))),
        Step::Pin(s, None) => drop(question.pins.remove(&shard(s))),
        Step::Decline(s, by) => {
            drop(question.declined.insert(shard(s), by.into_iter().map(node).collect()));
        }
        Step::Add(s) => {
            let mut shards: Vec<ShardId> = question.shards.to_vec();
            if !shards.contains(&shard(s)) {
                shards.push(shard(s));
            }
            shards.sort();
            question.shards = shards.into();
        }
        Step::Drop(index) => {
            let mut shards: Vec<ShardId> = question.shards.to_vec();
            if let Some(at) = some(index, shards.len()) {
                shards.remove(at);
            }
            question.shards = shards.into();
        }
        Step::Nothing => {}
    }
}

fn named(question: &Question, to: &[Option<u32>]) -> twin::Plan {
    assert_eq!(to.len(), question.shards.len());
    let name = |node: u32| question.nodes[node as usize].name.to_string();
    question.shards.iter().cloned().zip(to.iter().map(|node| node.map(name))).collect()
}

/// The most shards that could be placed with the valid pins where they are, found in yet another way.
fn most_placeable(question: &Question, plan: &twin::Plan) -> usize {
    let pinned: BTreeSet<&ShardId> = (question.pins.iter())
        .filter(|(id, name)| plan.get(*id) == Some(&Some(name.to_string())))
        .map(|(id, _)| id)
        .collect();
    let mut seats: Vec<(&Candidate, Option<&ShardId>)> = Vec::new();
    for node in &question.nodes {
        let taken = pinned.iter().filter(|id| question.pins[**id] == node.name).count();
        let room = node.capacity.map_or(question.shards.len(), |c| c as usize).saturating_sub(taken);
        if node.weight > 0 {
            seats.extend((0..room).map(|_| (node, None)));
        }
    }
    fn seat<'q>(
        question: &'q Question,
        id: &'q ShardId,
        seats: &mut Vec<(&'q Candidate, Option<&'q ShardId>)>,
        tried: &mut Vec<bool>,
    ) -> bool {
        for at in 0..seats.len() {
            let declined = question.declined.get(id).is_some_and(|by| by.contains(&seats[at].0.name));
            if declined || std::mem::replace(&mut tried[at], true) {
                continue;
            }
            let other = seats[at].1;
            if other.is_none_or(|other| seat(question, other, seats, tried)) {
                seats[at].1 = Some(id);
                return true;
            }
        }
        false
    }
    let mut placed = pinned.len();
    for id in question.shards.iter().filter(|id| !pinned.contains(id)) {
        let mut tried = vec![false; seats.len()];
        placed += usize::from(seat(question, id, &mut seats, &mut tried));
    }
    placed
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_clever_one_agrees_with_the_dumb_one(question in any_question()) {
        let found = named(&question, &Rendezvous.place(&question).to);
        prop_assert_eq!(found, twin::place(&question));
    }

    #[test]
    fn a_plan_does_not_depend_on_what_was_asked_before(
        mut question in any_question(),
        steps in prop::collection::vec(any_step(), 1..12),
    ) {
        let mut planner = Planner::rendezvous();
        for step in steps {
            apply(&mut question, step);
            let found = planner.plan(question.clone());
            prop_assert_eq!(&*found, &Rendezvous.place(&question));
        }
        prop_assert_eq!(named(&question, &planner.plan(question.clone()).to), twin::place(&question));
    }

    #[test]
    fn the_order_of_nodes_and_shards_is_irrelevant(question in any_question(), by in any::<prop::sample::Index>()) {
        let mut other = question.clone();
        if !other.nodes.is_empty() {
            let turn = by.index(other.nodes.len());
            other.nodes.rotate_left(turn);
        }
        other.nodes.reverse();
        let mut shards = other.shards.to_vec();
        shards.sort();
        other.shards = shards.into();
        let (a, b) = (Rendezvous.place(&question), Rendezvous.place(&other));
        prop_assert_eq!(named(&question, &a.to), named(&other, &b.to));
    }

    #[test]
    fn whatever_can_be_placed_is_placed_and_capacity_is_respected(question in any_question()) {
        let answer = Rendezvous.place(&question);
        let plan = named(&question, &answer.to);
        let placed = answer.to.iter().flatten().count();
        prop_assert_eq!(placed, most_placeable(&question, &plan));
        for (at, node) in question.nodes.iter().enumerate() {
            let held: Vec<&ShardId> = (question.shards.iter().zip(&answer.to))
                .filter(|(_, to)| **to == Some(at as u32))
                .map(|(id, _)| id)
                .collect();
            prop_assert!(node.capacity.is_none_or(|capacity| held.len() <= capacity as usize));
            for id in held {
                let declined = question.declined.get(id).is_some_and(|by| by.contains(&node.name));
                prop_assert!(!declined, "{} got {id}, which it declined", node.name);
                prop_assert!(node.weight > 0 || question.pins.get(id) == Some(&node.name));
            }
        }
    }

    #[test]
    fn the_ranking_begins_with_the_pin_and_names_all_that_may_have_the_shard(question in any_question()) {
        for id in question.shards.iter() {
            let ranked = Planner::rendezvous().rank(&question, id);
            let may = |node: &Candidate| {
                let declined = question.declined.get(id).is_some_and(|by| by.contains(&node.name));
                let pinned = question.pins.get(id) == Some(&node.name);
                !declined && node.capacity != Some(0) && (node.weight > 0 || pinned)
            };
            let mut found = ranked.clone();
            found.sort_unstable();
            let all = (0..question.nodes.len() as u32).filter(|&i| may(&question.nodes[i as usize]));
            prop_assert_eq!(found, all.collect::<Vec<_>>());
            if let Some(pin) = question.pins.get(id)
                && let Some(node) = question.nodes.iter().find(|node| node.name == *pin)
                && may(node)
            {
                prop_assert_eq!(&question.nodes[ranked[0] as usize].name, pin);
            }
        }
    }
}

/// Answers whatever it was made with.
struct Careless(Vec<Option<u32>>);

impl Placement for Careless {
    fn id(&self) -> String {
        "careless/1".to_owned()
    }
    fn place(&self, _: &Question) -> leasehold_core::placement::Assignment {
        leasehold_core::placement::Assignment { to: self.0.clone() }
    }
    fn rank(&self, _: &Question, _: &ShardId) -> Vec<u32> {
        vec![7, 1, 0]
    }
}

#[test]
fn an_answer_of_the_users_own_is_not_trusted() {
    let candidate = |n| Candidate { name: node(n), weight: 1, capacity: None, zone: None };
    let question = Question {
        nodes: vec![candidate(0), candidate(1)],
        shards: (0..3).map(shard).collect(),
        policy: Policy::default(),
        pins: BTreeMap::new(),
        declined: BTreeMap::new(),
    };
    let ask = |answer: &[Option<u32>]| {
        Planner::own(Arc::new(Careless(answer.to_vec()))).plan(question.clone()).to.clone()
    };
    assert_eq!(ask(&[Some(1), Some(2), None]), [Some(1), None, None]);
    assert_eq!(ask(&[Some(1)]), [Some(1), None, None]);
    assert_eq!(ask(&[Some(0); 9]), [Some(0); 3]);
    let planner = Planner::own(Arc::new(Careless(Vec::new())));
    assert_eq!(planner.rank(&question, &shard(0)), [1, 0]);
    assert_eq!(planner.id(), "careless/1");
}
