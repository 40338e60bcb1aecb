//! The scenario of one run, drawn from its seed: what does not change while it runs.

use std::time::Duration;

use leasehold_core::config::{Gate, Namespace};
use leasehold_core::record::{FailurePolicy, Policy, ShardSet, ZoneRule};
use leasehold_core::store::{Facts, Freshness, Safety};
use leasehold_core::{Config, GroupConfig, GroupName, NodeName, ShardId, ShardName};

use crate::faults::{Fault, Target};
use crate::rng::{Purpose, Rng};
use crate::runner::options::{Circumstance, Options};
use crate::store::shape::{Generations, Reading, Shape, StoreKind};
use crate::world::clock::{Clock, Instant, MS, SECOND};

/// The scenario of one run.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) seed: u64,
    pub(crate) nodes: usize,
    pub(crate) shards: u32,
    pub(crate) kind: StoreKind,
    pub(crate) shape: Shape,
    pub(crate) facts: Facts,
    pub(crate) group: GroupName,
    /// The group of named shards, in runs that have one.
    pub(crate) named: Option<GroupName>,
    pub(crate) policy: Policy,
    /// Operators take their time between reading a record and writing it.
    pub(crate) operators_race: bool,
    /// Whether other namespaces are on the same store.
    pub(crate) neighbours: bool,
    /// The ttl of most nodes.
    pub(crate) ttl: Instant,
    /// The longest ttl that any node may have.
    pub(crate) ttl_max: Instant,
    /// The longest ttl that a node does have.
    pub(crate) ttl_longest: Instant,
    mixed: bool,
    /// Nodes say their own ttl and nothing of longer ones: `ttl_max` is not set.
    pub(crate) untold: bool,
    /// The ttl of a holder that does not exist, in damaged records.
    pub(crate) usurper_ttl: Instant,
    pub(crate) faults_for: Instant,
    pub(crate) gate: Gate,
    pub(crate) dead_man: DeadMan,
    walls: Walls,
    pub(crate) wall_step_ms_max: u64,
    without: Vec<Circumstance>,
}

/// How long work must run for its earlier failures to be forgotten: short, so that what follows from that fits into a run.
const HEALTHY_AFTER: Duration = Duration::from_secs(5);

/// How many named shards there are, in runs that have any.
pub(crate) const NAMED: usize = 4;

/// Whether the kernel kills a process at its deadline, even a paused one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeadMan {
    Armed,
    Off,
}

/// How wall clocks behave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Walls {
    /// Within a second of each other. Where a store may lose everything, the time of day is the only thing left
    /// that keeps epochs rising, so only these runs may lose it.
    Steady,
    /// Anything.
    Wild,
}

impl Scenario {
    pub(crate) fn new(options: &Options, seed: u64) -> Self {
        let mut rng = Rng::new(seed, Purpose::Setting, 0);
        let any = rng.pick(&StoreKind::ALL);
        let kind = options.store.unwrap_or(any);
        let has = |circumstance| !options.without.contains(&circumstance);
        let mut shape = kind.shape();
        if !has(Circumstance::ReadsApart) {
            shape.reading = Reading::OneInstant;
        }
        let usual = shape.ttl.as_nanos() as u64;
        let ttl = rng.pick(&[usual, usual, usual / 2]);
        let mixed = rng.permille(250) && has(Circumstance::MixedTtls);
        let drawn = rng.pick(&[Walls::Steady, Walls::Steady, Walls::Wild]);
        let mut more = Rng::new(seed, Purpose::World, 0);
        let zones = [ZoneRule::Ignore, ZoneRule::Ignore, ZoneRule::Spread, ZoneRule::Prefer("a".to_owned())];
        let mut endings = Rng::new(seed, Purpose::World, 1);
        // A rolling change of the ttl only makes sense where `ttl_max` is not set.
        let rolls =
            |script: &Vec<_>| script.iter().any(|(_, fault)| matches!(fault, Fault::RollingTtl { .. }));
        let drawn_untold = more.permille(150) && has(Circumstance::MixedTtls);
        let untold = options.script.as_ref().map_or(drawn_untold, rolls);
        let (ttl, longer) = if untold { (usual / 2, 4) } else { (ttl, 2) };
        let mixed = mixed || untold;
        let walls = if options.script.is_some() { Walls::Steady } else { drawn };
        Scenario {
            seed,
            nodes: options.nodes.max(1),
            shards: options.shards.max(1),
            facts: shape.facts(kind),
            kind,
            shape,
            group: GroupName::new("work").expect("a valid name"),
            named: rng.permille(300).then(|| GroupName::new("jobs").expect("a valid name")),
            policy: Policy {
                zones: zones[more.below(4) as usize * usize::from(has(Circumstance::Zones))].clone(),
                on_failure: on_failure(&mut endings),
                ..policy(&mut rng)
            },
            operators_race: options.script.is_none(),
            neighbours: more.permille(300),
            ttl,
            ttl_max: ttl * longer,
            ttl_longest: if mixed { ttl * longer } else { ttl },
            mixed,
            untold,
            usurper_ttl: 4 * ttl * if mixed { longer } else { 1 },
            faults_for: (options.faults_for.as_nanos() as u64).max(5 * SECOND),
            gate: rng.pick(&[Gate::Open, Gate::Open, Gate::Open, Gate::Ask]),
            dead_man: rng.pick(&[DeadMan::Off, DeadMan::Off, DeadMan::Armed]),
            walls,
            wall_step_ms_max: if walls == Walls::Wild { 7_200_000 } else { 500 },
            without: options.without.clone(),
        }
    }

    /// Whether runs may have this, as the seed draws it.
    pub(crate) fn has(&self, circumstance: Circumstance) -> bool {
        !self.without.contains(&circumstance)
    }

    /// Whether this fault is possible on this store, in this run.
    pub(crate) fn allows(&self, fault: &Fault) -> bool {
        if self.untold && loses_meta(fault) {
            return false;
        }
        match fault {
            Fault::RollingTtl { .. } => self.untold,
            Fault::WatchBreak { .. } | Fault::WatchLag { .. } | Fault::WatchLoss { .. } => self.shape.watch,
            Fault::Disengage { .. } => self.named.is_some(),
            Fault::SlowGate { .. } => self.gate == Gate::Ask,
            Fault::StaleLists { .. } => self.shape.reads == Freshness::ListsMayLag,
            Fault::Failover { .. } => {
                self.shape.safety == Safety::LosesLastWrites && self.walls == Walls::Steady
            }
            Fault::Emptied { .. } => self.walls == Walls::Steady,
            Fault::RolledBack { .. } => {
                self.shape.generation == Generations::OnRestore && self.walls == Walls::Steady
            }
            Fault::Corrupt { what: Target::Shard(_) | Target::Meta, .. } => self.walls == Walls::Steady,
            // No node may know what a lost record said of epochs.
            Fault::Vanish { what: Target::Node(_) | Target::Control } => true,
            Fault::Vanish { .. } => self.walls == Walls::Steady,
            _ => true,
        }
    }

    /// The clocks of machine number `machine`: rates at the very edges of what is promised, or anywhere between.
    pub(crate) fn clock(&self, machine: usize) -> Clock {
        let mut rng = Rng::new(self.seed, Purpose::Machine, machine as u64);
        let within = rng.between(990_000, 1_010_001);
        let spread_ms = if self.walls == Walls::Wild { 7_200_000 } else { 500 };
        Clock {
            boot: rng.between(1000 * SECOND, 1_000_000 * SECOND),
            rate: rng.pick(&[990_000, 1_010_000, 1_000_000, within]),
            wall_ms: 1_750_000_000_000 + rng.below(spread_ms),
            stood_still: 0,
            since: 0,
            former: Vec::new(),
            frozen: false,
            stepped_at: 0,
        }
    }

    /// The settings of a node that begins in a slot, with this ttl if it was given another than it has by itself.
    pub(crate) fn config(&self, slot: usize, name: NodeName, ttl: Option<Instant>) -> Config {
        let mut rng = Rng::new(self.seed, Purpose::Setting, 1000 + slot as u64);
        let own = if self.mixed && rng.permille(400) { self.ttl_max } else { self.ttl };
        let ttl = ttl.unwrap_or(own);
        let mut config = Config::with_ttl(name, Duration::from_nanos(ttl));
        if !self.untold {
            config.ttl_max = Duration::from_nanos(self.ttl_max);
        }
        config.weight = rng.pick(&[100, 100, 100, 200]);
        config.zone = Some(if slot.is_multiple_of(2) { "a" } else { "b" }.to_owned());
        config.groups = vec![GroupConfig {
            group: self.group.clone(),
            shards: ShardSet::Numbered(self.shards),
            policy: self.policy.clone(),
            capacity: None,
        }];
        if let Some(group) = &self.named {
            let policy = self.policy.clone();
            let (group, shards) = (group.clone(), ShardSet::Named);
            config.groups.push(GroupConfig { group, shards, policy, capacity: None });
        }
        config.retired_kept = Duration::from_secs(30);
        config.healthy_after = HEALTHY_AFTER;
        config.gate = self.gate;
        config.namespace = Namespace::Unknown;
        config
    }

    /// The named shard with this number.
    pub(crate) fn named_shard(&self, number: usize) -> Option<ShardId> {
        let name = ShardName::new(format!("job {number}")).expect("a valid name");
        self.named.clone().map(|group| ShardId::new(group, name))
    }

    /// A shard's number: its slot, or a number above all slots for a named one.
    pub(crate) fn number_of(&self, shard: &ShardId) -> usize {
        if Some(&shard.group) == self.named.as_ref() {
            let number =
                shard.name.as_str().strip_prefix("job ").and_then(|number| number.parse::<usize>().ok());
            return self.first_named() + number.expect("named shards are called by a number");
        }
        shard.name.as_slot().expect("the other group is numbered") as usize
    }

    /// The shard with this number.
    pub(crate) fn shard(&self, number: usize) -> Option<ShardId> {
        match number.checked_sub(self.first_named()) {
            Some(named) => self.named_shard(named),
            None => Some(ShardId::slot(&self.group, number as u32)),
        }
    }

    /// The number of the first named shard: above all slots that the other group can have.
    pub(crate) fn first_named(&self) -> usize {
        self.shards as usize * 2 + 1
    }

    /// How long work takes to stop: mostly quick.
    pub(crate) fn stops_in(&self, rng: &mut Rng) -> Instant {
        match rng.below(10) {
            0..=6 => rng.between(MS / 10, 50 * MS),
            7..=8 => rng.between(50 * MS, SECOND),
            _ => rng.between(SECOND, self.ttl / 2),
        }
    }
}

/// Whether `meta` may be gone after it, and with it the longest ttl. A node that joins then can only wait for its own, which is
/// promised to be enough only where ttls do not differ or `ttl_max` is set (GUARANTEES, what is not promised).
fn loses_meta(fault: &Fault) -> bool {
    matches!(
        fault,
        Fault::Emptied { .. }
            | Fault::RolledBack { .. }
            | Fault::Failover { .. }
            | Fault::Corrupt { what: Target::Meta, .. }
            | Fault::Vanish { what: Target::Meta }
    )
}

/// What happens to work that keeps crashing.
fn on_failure(rng: &mut Rng) -> FailurePolicy {
    match rng.below(4) {
        0 => FailurePolicy::quarantine(3),
        1 => FailurePolicy::half_open(2, Duration::from_secs(4)),
        _ => FailurePolicy::Retry,
    }
}

fn policy(rng: &mut Rng) -> Policy {
    Policy {
        cooldown_ms: rng.pick(&[500, 5_000, 30_000]),
        min_run_ms: rng.pick(&[0, 2_000]),
        moves_max: rng.pick(&[0, 0, 2]),
        restart_grace_ms: rng.pick(&[0, 0, 5_000]),
        stop_timeout_ms: 5_000,
        ..Policy::default()
    }
}
