//! What the core plans with.

use std::fmt;
use std::sync::Arc;

use super::choices::Choices;
use super::rendezvous::{self, Spill};
use super::{Assignment, Placement, Question, Ranked, Rendezvous};
use crate::name::ShardId;
use crate::rules::{Rule, Rules};

/// Plans one group, over and over, and recomputes only what changed since the last question. Use one per group.
pub struct Planner {
    way: Way,
    spill: Spill,
    last: Option<(Question, Arc<Assignment>)>,
}

enum Way {
    Rendezvous(Box<Choices>),
    Own(Arc<dyn Placement>),
}

impl Planner {
    /// Plans with weighted rendezvous and bounded load, version 1.
    pub fn rendezvous() -> Self {
        Planner { way: Way::Rendezvous(Box::default()), spill: Spill::On, last: None }
    }

    /// Plans with a rule of the user's own. What it answers is not trusted: a node that does not exist counts as
    /// nobody, and so does an answer that is missing.
    pub fn own(placement: Arc<dyn Placement>) -> Self {
        Planner { way: Way::Own(placement), spill: Spill::On, last: None }
    }

    /// Lets a test break the rule of spill-over: a shard that does not fit its first choice then stays unplaced.
    pub fn obeying(mut self, rules: &Rules) -> Self {
        self.spill = if rules.hold(Rule::SpillOver) { Spill::On } else { Spill::Off };
        self
    }

    /// Names the rule and its version; see [`Placement::id`].
    pub fn id(&self) -> String {
        match &self.way {
            Way::Rendezvous(_) => Rendezvous.id(),
            Way::Own(placement) => placement.id(),
        }
    }

    /// Answers the question; the same question gets the same answer, whatever was asked before.
    pub fn plan(&mut self, question: Question) -> Arc<Assignment> {
        if let Some((last, answer)) = &self.last
            && same(last, &question)
        {
            return answer.clone();
        }
        let answer = match &mut self.way {
            Way::Rendezvous(choices) => rendezvous::place(choices, &question, self.spill),
            Way::Own(placement) => {
                let mut answer = placement.place(&question);
                answer.to.resize(question.shards.len(), None);
                for to in &mut answer.to {
                    *to = to.filter(|&node| (node as usize) < question.nodes.len());
                }
                answer
            }
        };
        let answer = Arc::new(answer);
        self.last = Some((question, answer.clone()));
        answer
    }

    /// The candidates in the order in which they should have this shard; see [`Placement::rank`].
    pub fn rank(&self, question: &Question, shard: &ShardId) -> Vec<u32> {
        match &self.way {
            Way::Rendezvous(_) => rendezvous::rank(question, shard),
            Way::Own(placement) => {
                let mut ranked = placement.rank(question, shard);
                ranked.retain(|&node| (node as usize) < question.nodes.len());
                ranked
            }
        }
    }

    /// The same with scores, for explaining; a rule of the user's own has none.
    pub fn ranked(&self, question: &Question, shard: &ShardId) -> Vec<Ranked> {
        match &self.way {
            Way::Rendezvous(_) => rendezvous::ranked(question, shard),
            Way::Own(_) => {
                self.rank(question, shard).into_iter().map(|node| Ranked { node, score: None }).collect()
            }
        }
    }

    /// The most shards that each node may get, as things are: by balance, and never above its capacity. A rule of the
    /// user's own is only bound by capacity, if it cares.
    pub fn caps(&self, question: &Question) -> Vec<Option<u32>> {
        match &self.way {
            Way::Rendezvous(_) => rendezvous::caps(question).into_iter().map(Some).collect(),
            Way::Own(_) => question.nodes.iter().map(|node| node.capacity).collect(),
        }
    }
}

/// Whether two questions have the same answer because nothing that placement looks at differs.
fn same(a: &Question, b: &Question) -> bool {
    a.nodes == b.nodes
        && a.policy == b.policy
        && a.pins == b.pins
        && a.declined == b.declined
        && (Arc::ptr_eq(&a.shards, &b.shards) || a.shards == b.shards)
}

impl fmt::Debug for Planner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Planner").field("id", &self.id()).finish_non_exhaustive()
    }
}
