//! The schedule of one run: drawn from the seed before the run begins, so that it can be shrunk by leaving entries out.

use super::profile::{Profile, Swarm};
use crate::faults::{
    Damage, Fault, FaultKind, Grace, GroupKind, PausePoint, Raise, Restart, Shutdown, Target, Traffic,
};
use crate::rng::{Purpose, Rng};
use crate::runner::options::Options;
use crate::store::Generation;
use crate::world::clock::{Instant, MS, SECOND};
use crate::world::network::UNDER_WAY_MAX;
use crate::world::scenario::{NAMED, Scenario};

/// One fault, and when it strikes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduledFault {
    /// Its number in the whole schedule of its seed.
    pub number: usize,
    /// When it strikes, in true time.
    pub at: Instant,
    /// What it is.
    pub fault: Fault,
}

/// The faults of a run.
pub(crate) fn planned(options: &Options, seed: u64, scenario: &Scenario) -> Vec<ScheduledFault> {
    let mut faults = match &options.script {
        Some(script) => in_order(script.iter().cloned()),
        None => schedule(seed, &options.faults, scenario),
    };
    if let Some(keep) = &options.keep {
        faults.retain(|planned| keep.contains(&planned.number));
    }
    faults
}

/// The whole schedule of a seed.
fn schedule(seed: u64, profile: &Profile, scenario: &Scenario) -> Vec<ScheduledFault> {
    let mut planned = Vec::new();
    for kind in FaultKind::all() {
        // By its name, so that a new kind of fault changes nothing about the others.
        let key =
            kind.as_str().bytes().fold(0, |key: u64, byte| key.wrapping_mul(257) + u64::from(byte)) << 16;
        let mut swarm = Rng::new(seed, Purpose::Swarm, key);
        let mut expected = u64::from(profile.rate(kind)) * scenario.faults_for / (120 * SECOND);
        if profile.swarm() == Swarm::Drawn {
            let share = if swarm.permille(500) { swarm.pick(&[500, 1000, 1000, 2000, 3000]) } else { 0 };
            expected = expected * share / 1000;
        }
        let count = expected / 1000 + u64::from(swarm.below(1000) < expected % 1000);
        for turn in 0..count {
            let mut rng = Rng::new(seed, Purpose::Fault, key | turn);
            let at = rng.between(SECOND, scenario.faults_for);
            let Some(fault) = draw(kind, &mut rng, scenario) else { continue };
            if matches!(fault, Fault::Emptied { .. }) {
                planned.extend(emptied_again(&mut rng, scenario, at).map(|at| (at, fault.clone())));
                planned.extend(emptied_early(&mut rng, scenario, &fault));
            }
            if matches!(fault, Fault::Downgrade { .. }) {
                planned.extend(upgraded_before(&mut rng, scenario, at));
            }
            if let Fault::Vanish { what: Target::Shard(_) | Target::Named(_) | Target::Shards } = fault {
                planned.extend(around_a_loss(&mut rng, scenario, at));
            }
            planned.push((at, fault));
        }
    }
    in_order(planned)
}

/// A store is often emptied once more, about when the nodes that waited begin to claim.
fn emptied_again(rng: &mut Rng, scenario: &Scenario, at: Instant) -> Option<Instant> {
    let again = at + scenario.ttl_max + rng.below(8 * SECOND);
    (rng.permille(400) && again < scenario.faults_for).then_some(again)
}

/// Sometimes a store is emptied while the first nodes come, one after the other, and all records are being made: what is
/// under way at that moment lands in the empty store.
fn emptied_early(rng: &mut Rng, scenario: &Scenario, fault: &Fault) -> Vec<(Instant, Fault)> {
    if !rng.permille(250) {
        return Vec::new();
    }
    let at = rng.between(300 * MS, 1200 * MS);
    let slot = rng.below(scenario.nodes as u64) as usize;
    let lasts = rng.between(500 * MS, UNDER_WAY_MAX);
    let before = rng.below(SECOND / 2).min(lasts);
    vec![(at, Fault::Stall { slot, lasts }), (at + lasts - before, fault.clone())]
}

/// Only what is newer can go back.
fn upgraded_before(rng: &mut Rng, scenario: &Scenario, at: Instant) -> Vec<(Instant, Fault)> {
    let mut upgrades = Vec::new();
    for slot in 0..scenario.nodes {
        if rng.permille(500) {
            let after = rng.between(10 * MS, SECOND);
            upgrades.push((rng.between(SECOND / 2, at), Fault::Upgrade { slot, after }));
        }
    }
    upgrades
}

/// What makes the loss of a shard's record dangerous: a paused holder, which does not see it,
/// and a node that joins only then and has never seen the record. Often not every slot has a record at that time,
/// because the group has just become larger than what there is room for: a group that is not full remembers less.
fn around_a_loss(rng: &mut Rng, scenario: &Scenario, at: Instant) -> Vec<(Instant, Fault)> {
    let mut around = Vec::new();
    if rng.permille(300) {
        let before = at.saturating_sub(rng.between(SECOND, scenario.ttl)).max(SECOND / 2);
        let slots = scenario.shards * 3 / 2;
        let nodes = scenario.nodes as u32;
        let (each, rest) = ((slots - 1) / nodes, (slots - 1) % nodes);
        for slot in 0..scenario.nodes {
            let capacity = Some(if slot == 0 { each + rest } else { each });
            around.push((before, Fault::Capacity { slot, capacity }));
        }
        around.push((before, Fault::Resize { shards: slots }));
    }
    let first = rng.below(scenario.nodes as u64) as usize;
    let stand_still = 1 + rng.below(scenario.nodes as u64) as usize;
    for slot in (0..stand_still).map(|next| (first + next) % scenario.nodes) {
        let lasts = rng.between(scenario.ttl / 5, scenario.ttl * 3 / 2);
        let before = at.saturating_sub(rng.below(SECOND));
        around.push((before, Fault::Pause { slot, lasts, point: PausePoint::Anywhere }));
    }
    if rng.permille(700) {
        let slot = (first + scenario.nodes - 1) % scenario.nodes;
        let then = Restart::NewName { after: rng.between(10 * MS, SECOND) };
        around.push((at, Fault::Crash { slot, then }));
    }
    around.retain(|_| rng.permille(900));
    around
}

/// Faults in the order in which they strike, numbered.
fn in_order(faults: impl IntoIterator<Item = (Instant, Fault)>) -> Vec<ScheduledFault> {
    let mut faults: Vec<_> = faults.into_iter().collect();
    faults.sort_by_key(|(at, _)| *at);
    let numbered = faults.into_iter().enumerate();
    numbered.map(|(number, (at, fault))| ScheduledFault { number, at, fault }).collect()
}

/// How long a fault lasts: short, about as long as leases are, or long.
fn lasts(rng: &mut Rng, ttl: Instant) -> Instant {
    match rng.below(10) {
        0..=2 => rng.between(10 * MS, ttl / 5),
        3..=7 => rng.between(ttl / 5, ttl * 3 / 2),
        _ => rng.between(ttl, ttl * 4),
    }
}

fn comeback(rng: &mut Rng, ttl: Instant) -> Restart {
    let after = if rng.permille(500) { rng.between(10 * MS, SECOND) } else { rng.between(SECOND, 3 * ttl) };
    match rng.below(10) {
        0..=6 => Restart::SameName { after },
        7..=8 => Restart::NewName { after },
        _ => Restart::Never,
    }
}

fn draw(kind: FaultKind, rng: &mut Rng, scenario: &Scenario) -> Option<Fault> {
    let ttl = scenario.ttl;
    let slot = rng.below(scenario.nodes as u64) as usize;
    let shard = rng.below(u64::from(scenario.shards)) as u32;
    let lasts = lasts(rng, ttl);
    let fault = match kind {
        FaultKind::Crash => Fault::Crash { slot, then: comeback(rng, ttl) },
        FaultKind::Leave => {
            let within = rng.between(SECOND, 2 * ttl);
            let grace = rng.pick(&[Grace::Asked, Grace::None]);
            Fault::Leave { slot, within, then: comeback(rng, ttl), grace }
        }
        FaultKind::Pause => Fault::Pause { slot, lasts, point: PausePoint::Anywhere },
        FaultKind::PauseAtCheck => Fault::Pause { slot, lasts, point: PausePoint::BetweenCheckAndAct },
        FaultKind::PauseAtStep => {
            let point =
                rng.pick(&[PausePoint::BetweenStepAndAct, PausePoint::BeforeStart, PausePoint::BeforeBegin]);
            Fault::Pause { slot, lasts, point }
        }
        FaultKind::Frozen => frozen(rng, slot, lasts, ttl),
        FaultKind::Cut => Fault::Cut { slot, lasts, traffic: Traffic::All },
        FaultKind::CutRequests => Fault::Cut { slot, lasts, traffic: Traffic::Requests },
        FaultKind::CutAnswers => Fault::Cut { slot, lasts, traffic: Traffic::Answers },
        FaultKind::CutWork => Fault::Cut { slot, lasts: 2 * lasts, traffic: Traffic::Work },
        FaultKind::CutRenewals => Fault::Cut { slot, lasts, traffic: Traffic::Renewals },
        FaultKind::SlowStore => Fault::SlowStore { lasts, times: rng.pick(&[3, 10, 30, 100, 300, 1000]) },
        FaultKind::Errors => Fault::Errors { lasts, permille: rng.pick(&[100, 300, 700, 1000]) },
        FaultKind::LostAnswers => Fault::LostAnswers { lasts, permille: rng.pick(&[100, 300, 700]) },
        FaultKind::DoubledAnswers => Fault::DoubledAnswers { lasts, permille: rng.pick(&[100, 300, 700]) },
        FaultKind::DoubledWrites => {
            Fault::DoubledWrites { lasts: lasts + ttl, permille: rng.pick(&[100, 300, 1000]) }
        }
        FaultKind::WatchBreak => Fault::WatchBreak { slot: rng.permille(600).then_some(slot) },
        FaultKind::WatchLag => Fault::WatchLag { slot, lasts, lag: rng.between(100 * MS, ttl) },
        FaultKind::WatchLoss => Fault::WatchLoss { slot, lasts },
        FaultKind::StaleLists => Fault::StaleLists { lasts, lag: rng.between(SECOND, 2 * ttl) },
        FaultKind::StoreRestart => Fault::StoreRestart { lasts: lasts.min(ttl) },
        FaultKind::Failover => {
            Fault::Failover { lasts: rng.between(100 * MS, ttl / 2), loses: rng.between(MS, 2 * SECOND) }
        }
        FaultKind::Emptied => Fault::Emptied { generation: rng.pick(&[Generation::Kept, Generation::New]) },
        FaultKind::RolledBack => Fault::RolledBack { by: rng.between(100 * MS, 40 * SECOND) },
        FaultKind::MassLeave => mass_leave(rng, scenario),
        FaultKind::RollingRestart => Fault::RollingRestart {
            gap: rng.between(500 * MS, ttl * 3 / 2),
            how: rng.pick(&[Shutdown::Killed, Shutdown::Graceful, Shutdown::Graceful]),
        },
        FaultKind::Weight => Fault::Weight { slot, weight: rng.pick(&[0, 1, 50, 100, 200, 400]) },
        FaultKind::Capacity => {
            let capacity = rng.below(u64::from(scenario.shards) + 1) as u32;
            Fault::Capacity { slot, capacity: rng.permille(700).then_some(capacity) }
        }
        FaultKind::Accepting => Fault::NotAccepting { slot, lasts },
        FaultKind::Resize => {
            Fault::Resize { shards: 1 + rng.below(u64::from(scenario.shards) * 3 / 2) as u32 }
        }
        FaultKind::Pin => Fault::Pin { shard, slot, lasts },
        FaultKind::Drain => Fault::Drain { slot, lasts },
        FaultKind::Freeze => Fault::Freeze { lasts },
        FaultKind::Release => Fault::Release { shard },
        FaultKind::Disengage => {
            let shard = rng.below(NAMED as u64) as usize;
            Fault::Disengage { shard, slot: rng.permille(500).then_some(slot), lasts }
        }
        FaultKind::Corrupt => Fault::Corrupt {
            what: match rng.below(10) {
                0..=4 => Target::Shard(shard),
                5..=7 => Target::Node(slot),
                8 => Target::Group(GroupKind::Numbered),
                _ => Target::Control,
            },
            how: rng.pick(&[Damage::Noise, Damage::Cut, Damage::TooNew, Damage::Usurped]),
        },
        FaultKind::CorruptMeta => {
            let how = rng.pick(&[Damage::Noise, Damage::Cut, Damage::TooNew]);
            Fault::Corrupt { what: Target::Meta, how }
        }
        FaultKind::Vanish => Fault::Vanish { what: Target::Node(slot) },
        FaultKind::VanishShard => {
            let named = scenario.named.is_some() && rng.permille(400);
            let what =
                if named { Target::Named(rng.below(NAMED as u64) as usize) } else { Target::Shard(shard) };
            Fault::Vanish { what }
        }
        FaultKind::VanishShards => Fault::Vanish { what: Target::Shards },
        FaultKind::VanishControl => Fault::Vanish { what: Target::Control },
        FaultKind::VanishMeta => Fault::Vanish { what: Target::Meta },
        FaultKind::Refuse => Fault::Refuse { slot, lasts: lasts * 2 },
        FaultKind::WorkCrash => Fault::WorkCrash { slot, lasts },
        FaultKind::StepDown => {
            // Shorter than `rest`, so that what is quiet for that long waits for nothing.
            let shard = rng.permille(700).then(|| rng.below(u64::from(scenario.shards)) as usize);
            Fault::StepDown { slot, shard, pause: rng.pick(&[0, SECOND, 5 * SECOND]) }
        }
        FaultKind::Upgrade => Fault::Upgrade { slot, after: rng.between(10 * MS, ttl) },
        FaultKind::Downgrade => Fault::Downgrade {
            gap: rng.between(500 * MS, ttl),
            how: rng.pick(&[Shutdown::Killed, Shutdown::Graceful, Shutdown::Graceful]),
        },
        FaultKind::Protocol => {
            let raise = rng.pick(&[Raise::Protocol, Raise::Protocol, Raise::Format]);
            Fault::Protocol { slot, raise, lasts: lasts + ttl / 2 }
        }
        FaultKind::Twin => Fault::Twin { slot, lasts: lasts + SECOND },
        FaultKind::WallStep => {
            let by = rng.between(1, scenario.wall_step_ms_max + 1) as i64;
            Fault::WallStep { slot, by_ms: if rng.permille(500) { by } else { -by } }
        }
        FaultKind::Sluggish => Fault::Sluggish { slot, lasts, lag: rng.between(MS, ttl / 10) },
        FaultKind::Stall => Fault::Stall { slot, lasts: lasts.min(UNDER_WAY_MAX) },
        FaultKind::SlowGate => Fault::SlowGate { slot, lasts: lasts * 2 },
        FaultKind::ClockRate => {
            let within = rng.between(990_000, 1_010_001);
            Fault::ClockRate { slot, rate: rng.pick(&[990_000, 1_010_000, within]) }
        }
        FaultKind::FullDisk => Fault::FullDisk { lasts },
        FaultKind::Placement => Fault::Placement { slot, lasts: lasts + ttl / 2 },
        FaultKind::RollingTtl => Fault::RollingTtl {
            gap: rng.between(500 * MS, ttl * 3),
            how: rng.pick(&[Shutdown::Killed, Shutdown::Graceful, Shutdown::Graceful]),
            ttl: rng.pick(&[scenario.ttl, scenario.ttl_max]),
        },
    };
    scenario.allows(&fault).then_some(fault)
}

/// Once, for however long; or several times for less than the margin each, which add up to more between two renewals.
fn frozen(rng: &mut Rng, slot: usize, lasts: Instant, ttl: Instant) -> Fault {
    if rng.permille(400) {
        return Fault::Frozen { slot, lasts, times: 1, gap: 0 };
    }
    let lasts = rng.between(ttl / 20, ttl / 6);
    Fault::Frozen { slot, lasts, times: rng.between(2, 7) as u32, gap: rng.between(5 * MS, ttl / 10) }
}

fn mass_leave(rng: &mut Rng, scenario: &Scenario) -> Fault {
    let keep = rng.below(scenario.nodes as u64) as usize;
    let slots = (0..scenario.nodes).filter(|slot| *slot != keep && rng.permille(800)).collect();
    let how = rng.pick(&[Shutdown::Killed, Shutdown::Graceful]);
    Fault::MassLeave { slots, how, then: comeback(rng, scenario.ttl) }
}
