//! What the demo shows at one moment, as plain data.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::time::Duration;

use leasehold::clock;
use leasehold_core::{Moment, View};

use super::NODES_MAX;
use super::verdict::Verdict;
use crate::cluster::{Cluster, Fate, GROUP, Member};

/// How many moves are remembered.
const LOG_MAX: usize = 10_000;

/// What the demo shows.
#[derive(Debug)]
pub(super) struct Scene {
    began_at: Moment,
    pub(super) ttl: Duration,
    /// Where the nodes find their store.
    url: String,
    /// The place of each shard's holder.
    pub(super) owners: Vec<Option<usize>>,
    pub(super) nodes: Vec<Actor>,
    pub(super) log: VecDeque<(Duration, String)>,
    pub(super) verdict: Verdict,
    /// The node that keys act on.
    pub(super) chosen: usize,
    pub(super) frozen: Option<String>,
}

/// A node in the scene.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Actor {
    pub(super) name: String,
    pub(super) weight: u32,
    pub(super) shards: usize,
    pub(super) state: String,
    pub(super) there: bool,
    /// How long until it stops its work unless it can renew.
    pub(super) stop_in: Option<Duration>,
}

impl Scene {
    pub(super) fn new(shards: u32, ttl: Duration, url: String) -> Scene {
        Scene {
            began_at: clock::now(),
            ttl,
            url,
            owners: vec![None; shards as usize],
            nodes: Vec::new(),
            log: VecDeque::new(),
            verdict: Verdict::default(),
            chosen: 0,
            frozen: None,
        }
    }

    /// Starts one more node; the answer is its place, or why it cannot be.
    pub(super) fn add_to(&self, cluster: &mut Cluster) -> io::Result<usize> {
        if cluster.members().len() >= NODES_MAX {
            return Err(io::Error::other(format!("a demo has at most {NODES_MAX} nodes")));
        }
        cluster.add(&self.url)
    }

    /// How long the demo has run.
    pub(super) fn age(&self) -> Duration {
        clock::now().since(self.began_at)
    }

    /// Remembers a line.
    pub(super) fn say(&mut self, line: impl Into<String>) {
        self.log.push_back((self.age(), line.into()));
        while self.log.len() > LOG_MAX {
            self.log.pop_front();
        }
    }

    /// How many shards have a live holder.
    pub(super) fn held(&self) -> usize {
        self.owners
            .iter()
            .filter(|owner| owner.is_some_and(|place| self.nodes.get(place).is_some_and(|node| node.there)))
            .count()
    }

    /// Takes in what the store and the nodes say.
    pub(super) fn update(&mut self, view: &View, cluster: &Cluster) -> io::Result<()> {
        let places: BTreeMap<&str, usize> = cluster
            .members()
            .iter()
            .enumerate()
            .map(|(place, member)| (member.name.as_str(), place))
            .collect();
        let mut owners = vec![None; self.owners.len()];
        for shard in view.shards.iter().filter(|shard| shard.id.0.group.as_str() == GROUP) {
            let place = shard.holder.as_ref().and_then(|holder| places.get(holder.as_str()).copied());
            if let Some(owner) = shard.id.0.name.as_slot().and_then(|slot| owners.get_mut(slot as usize)) {
                *owner = place;
            }
        }
        self.tell_moves(&owners, cluster.members());
        self.owners = owners;
        self.frozen = view.frozen.clone();
        self.nodes =
            cluster.members().iter().enumerate().map(|(place, member)| self.actor(place, member)).collect();
        self.verdict = Verdict::of(&cluster.history()?);
        Ok(())
    }

    fn actor(&self, place: usize, member: &Member) -> Actor {
        let status = member.status();
        let stop_at = Moment::from_nanos(status.stop_at_ns);
        let shards = self.owners.iter().filter(|owner| **owner == Some(place)).count();
        let state = match member.fate {
            Fate::Running if status.session_state.is_empty() => "starting".to_owned(),
            Fate::Running => status.session_state.clone(),
            Fate::Paused => "paused (SIGSTOP)".to_owned(),
            Fate::Killed => "killed (SIGKILL)".to_owned(),
            Fate::Draining => "draining".to_owned(),
            Fate::Ended => "left".to_owned(),
        };
        let stop_in = (member.is_there() && shards > 0).then(|| stop_at.since(clock::now()));
        Actor {
            name: member.name.clone(),
            weight: member.weight,
            shards,
            state,
            there: member.is_there(),
            stop_in,
        }
    }

    /// One line for all shards that went the same way since the last look.
    fn tell_moves(&mut self, owners: &[Option<usize>], members: &[Member]) {
        let mut moves: BTreeMap<(Option<usize>, Option<usize>), usize> = BTreeMap::new();
        for (before, after) in self.owners.iter().zip(owners) {
            if before != after {
                *moves.entry((*before, *after)).or_default() += 1;
            }
        }
        let name = |place: Option<usize>| place.map_or("nobody", |place| members[place].name.as_str());
        let lines: Vec<String> = moves
            .iter()
            .map(|((from, to), count)| {
                format!(
                    "{count} {} {} → {}",
                    if *count == 1 { "shard" } else { "shards" },
                    name(*from),
                    name(*to)
                )
            })
            .collect();
        for line in lines {
            self.say(line);
        }
    }
}

/// A duration for people: `12 ms`, `1.3 s`.
pub(super) fn people(span: Duration) -> String {
    match span.as_millis() {
        ms @ 0..1000 => format!("{ms} ms"),
        ms => format!("{}.{} s", ms / 1000, ms % 1000 / 100),
    }
}
