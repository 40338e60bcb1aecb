//! Which faults a run may meet, and how often: each kind has its own rate.

use std::collections::BTreeMap;
use std::str::FromStr;

use crate::options::{Mistake, quoted};

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultKind {
    /// A process dies, and perhaps comes back, under the same name or another one.
    Crash,
    /// A process is told to leave, and perhaps comes back.
    Leave,
    /// A process, or its whole machine, stands still for a while.
    Pause,
    /// The same, exactly between a worker's check and what it does then.
    PauseAtCheck,
    /// The same, exactly between the core's decision and its being carried out.
    PauseAtStep,
    /// A process cannot reach the store, nor the store it.
    Cut,
    /// What a process sends does not reach the store.
    CutRequests,
    /// What the store answers does not reach a process.
    CutAnswers,
    /// Only renewals reach the store: the connection for everything else is cut.
    CutWork,
    /// The store is slow.
    SlowStore,
    /// The store fails, before or after it has done what it was asked.
    Errors,
    /// Answers are lost after the write was applied.
    LostAnswers,
    /// Answers come twice, or late.
    DoubledAnswers,
    /// Writes arrive once more, late: somebody between repeats them.
    DoubledWrites,
    /// A watch breaks, as at a compaction, and begins anew.
    WatchBreak,
    /// A watch is late.
    WatchLag,
    /// A watch loses changes, unseen.
    WatchLoss,
    /// Listings are far behind, where the store allows that.
    StaleLists,
    /// The store restarts.
    StoreRestart,
    /// The store fails over and loses the last acknowledged writes, where it may.
    Failover,
    /// The store is emptied.
    Emptied,
    /// The store is rolled back to an older copy.
    RolledBack,
    /// Most nodes go at once.
    MassLeave,
    /// All nodes are restarted, one after the other.
    RollingRestart,
    /// A node's weight changes.
    Weight,
    /// A node's capacity changes.
    Capacity,
    /// A node does not accept new shards for a while.
    Accepting,
    /// The group becomes larger or smaller.
    Resize,
    /// An operator pins a shard.
    Pin,
    /// An operator drains a node.
    Drain,
    /// An operator freezes voluntary moves.
    Freeze,
    /// An operator asks for one shard to be released.
    Release,
    /// Named shards can't be run for a while, at one node or anywhere.
    Disengage,
    /// A record is damaged.
    Corrupt,
    /// The record `meta` is damaged.
    CorruptMeta,
    /// A node's record vanishes.
    Vanish,
    /// A shard's record vanishes.
    VanishShard,
    /// All shards' records of a group vanish at once.
    VanishShards,
    /// What operators asked for vanishes.
    VanishControl,
    /// The record `meta` vanishes.
    VanishMeta,
    /// Work refuses to stop when it is told to.
    Refuse,
    /// Work crashes again and again.
    WorkCrash,
    /// A node is replaced by a newer version, which writes fields that the others don't know.
    Upgrade,
    /// All nodes go back to an older version, one after the other.
    Downgrade,
    /// The namespace is moved to what only newer versions speak, for a while.
    Protocol,
    /// A second process runs under a name that is in use.
    Twin,
    /// A wall clock steps.
    WallStep,
    /// A process is starved: whatever it does, it does late.
    Sluggish,
    /// What a process writes, but for renewals, is under way for long.
    Stall,
    /// The gate of a node takes long to answer.
    SlowGate,
    /// The rate of a boot clock changes, within the bound.
    ClockRate,
    /// The store refuses writes, and can be read.
    FullDisk,
    /// A node plans with another placement than the others, for a while.
    Placement,
    /// All nodes are restarted with another ttl, one after the other.
    RollingTtl,
    /// Everything but renewals reaches the store.
    CutRenewals,
    /// A virtual machine is frozen, once or several times, and its boot clock and timers with it.
    Frozen,
}

/// Name, class, and expected number of faults in two minutes of a seed that has this kind, in thousandths.
const TABLE: &[(FaultKind, &str, &str, u32)] = &[
    (FaultKind::Crash, "crash", "process", 1600),
    (FaultKind::Leave, "leave", "process", 900),
    (FaultKind::Pause, "pause", "process", 2200),
    (FaultKind::PauseAtCheck, "pause-at-check", "process", 900),
    (FaultKind::PauseAtStep, "pause-at-step", "process", 900),
    (FaultKind::Cut, "cut", "network", 1600),
    (FaultKind::CutRequests, "cut-requests", "network", 900),
    (FaultKind::CutAnswers, "cut-answers", "network", 1200),
    (FaultKind::CutWork, "cut-work", "network", 600),
    (FaultKind::SlowStore, "slow-store", "network", 900),
    (FaultKind::Errors, "errors", "network", 900),
    (FaultKind::LostAnswers, "lost-answers", "network", 1200),
    (FaultKind::DoubledAnswers, "doubled-answers", "network", 900),
    (FaultKind::DoubledWrites, "doubled-writes", "network", 700),
    (FaultKind::WatchBreak, "watch-break", "watch", 900),
    (FaultKind::WatchLag, "watch-lag", "watch", 900),
    (FaultKind::WatchLoss, "watch-loss", "watch", 900),
    (FaultKind::StaleLists, "stale-lists", "watch", 1500),
    (FaultKind::StoreRestart, "store-restart", "store", 700),
    (FaultKind::Failover, "failover", "loss", 900),
    (FaultKind::Emptied, "emptied", "loss", 450),
    (FaultKind::RolledBack, "rolled-back", "loss", 350),
    (FaultKind::MassLeave, "mass-leave", "process", 350),
    (FaultKind::RollingRestart, "rolling-restart", "process", 250),
    (FaultKind::Weight, "weight", "operators", 700),
    (FaultKind::Capacity, "capacity", "operators", 600),
    (FaultKind::Accepting, "accepting", "operators", 600),
    (FaultKind::Resize, "resize", "operators", 500),
    (FaultKind::Pin, "pin", "operators", 600),
    (FaultKind::Drain, "drain", "operators", 600),
    (FaultKind::Freeze, "freeze", "operators", 300),
    (FaultKind::Release, "release", "operators", 600),
    (FaultKind::Disengage, "disengage", "operators", 1500),
    (FaultKind::Corrupt, "corrupt", "records", 1000),
    (FaultKind::CorruptMeta, "corrupt-meta", "records", 600),
    (FaultKind::Vanish, "vanish", "records", 600),
    (FaultKind::VanishShard, "vanish-shard", "records", 500),
    (FaultKind::VanishShards, "vanish-shards", "records", 400),
    (FaultKind::VanishControl, "vanish-control", "records", 400),
    (FaultKind::VanishMeta, "vanish-meta", "records", 600),
    (FaultKind::Refuse, "refuse", "work", 900),
    (FaultKind::WorkCrash, "work-crash", "work", 900),
    (FaultKind::Upgrade, "upgrade", "process", 500),
    (FaultKind::Downgrade, "downgrade", "process", 300),
    (FaultKind::Protocol, "protocol", "process", 400),
    (FaultKind::Twin, "twin", "process", 600),
    (FaultKind::WallStep, "wall-step", "clock", 900),
    (FaultKind::Sluggish, "sluggish", "process", 700),
    (FaultKind::Stall, "stall", "network", 700),
    (FaultKind::SlowGate, "slow-gate", "work", 900),
    (FaultKind::ClockRate, "clock-rate", "clock", 900),
    (FaultKind::FullDisk, "full-disk", "store", 500),
    (FaultKind::Placement, "placement", "process", 400),
    (FaultKind::RollingTtl, "rolling-ttl", "process", 2000),
    (FaultKind::CutRenewals, "cut-renewals", "network", 600),
    (FaultKind::Frozen, "frozen", "clock", 900),
];

impl FaultKind {
    /// How many kinds there are.
    pub(crate) const COUNT: usize = TABLE.len();

    /// All kinds.
    pub fn all() -> impl Iterator<Item = FaultKind> {
        TABLE.iter().map(|row| row.0)
    }

    /// Its name on the command line.
    pub fn as_str(self) -> &'static str {
        TABLE.iter().find(|row| row.0 == self).map_or("?", |row| row.1)
    }
}

/// Which faults a run may meet, and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    rates: BTreeMap<FaultKind, u32>,
    swarm: Swarm,
}

/// Whether each seed has only some of the kinds. Runs that have a few kinds, but much of those, find more than runs
/// that have a little of everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Swarm {
    /// Each seed draws which kinds it has, and how much of them.
    Drawn,
    /// Every seed has all kinds of the profile.
    Whole,
}

impl Profile {
    /// Every kind of fault.
    pub fn all() -> Self {
        Profile { rates: TABLE.iter().map(|row| (row.0, row.3)).collect(), swarm: Swarm::Drawn }
    }

    /// No faults.
    pub fn none() -> Self {
        Profile { rates: BTreeMap::new(), swarm: Swarm::Whole }
    }

    /// These kinds, in every seed.
    pub fn only(kinds: impl IntoIterator<Item = (FaultKind, u32)>) -> Self {
        Profile { rates: kinds.into_iter().collect(), swarm: Swarm::Whole }
    }

    /// The expected number of faults of this kind in two minutes, in thousandths.
    pub(crate) fn rate(&self, kind: FaultKind) -> u32 {
        self.rates.get(&kind).copied().unwrap_or(0)
    }

    pub(crate) fn swarm(&self) -> Swarm {
        self.swarm
    }
}

impl Default for Profile {
    fn default() -> Self {
        Profile::all()
    }
}

impl std::fmt::Display for Profile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if *self == Profile::all() {
            return f.write_str("all");
        }
        if self.rates.is_empty() {
            return f.write_str("none");
        }
        let mut words: Vec<String> = Vec::new();
        if self.swarm == Swarm::Drawn {
            words.push("swarm".to_owned());
        }
        for (kind, rate) in &self.rates {
            words.push(format!("{}={}.{:03}", kind.as_str(), rate / 1000, rate % 1000));
        }
        f.write_str(&words.join(","))
    }
}

/// The most faults of one kind that can be asked for in two minutes.
const RATE_MAX: u32 = 1000;

impl Profile {
    /// Reads `all`, `none`, or a list of kinds and classes, each with how many to expect in two minutes if wished:
    /// `crash=3,network,pause=0.5`. If the list begins with `-`, it says what to take away from `all`: `-loss,-twin`.
    /// The word `swarm` lets each seed draw which of them it has, as it does with `all`.
    pub fn parse(text: &str) -> Result<Self, Vec<Mistake>> {
        match text.trim() {
            "all" => return Ok(Profile::all()),
            "none" => return Ok(Profile::none()),
            _ => {}
        }
        let subtracts = text.trim().starts_with('-');
        let mut profile = if subtracts { Profile::all() } else { Profile::none() };
        let (mut mistakes, mut unknown) = (Vec::new(), Vec::new());
        let mut named = false;
        for word in text.split(',').map(str::trim) {
            if word == "swarm" {
                profile.swarm = Swarm::Drawn;
                continue;
            }
            named |= !word.is_empty();
            let (word, away) = word.strip_prefix('-').map_or((word, false), |word| (word, true));
            let (word, wished) = word.split_once('=').map_or((word, None), |(word, rate)| (word, Some(rate)));
            let rate = wished.map(parse_rate).transpose().map_err(|mistake| mistakes.push(mistake));
            if away && let Some(rate) = wished {
                let what = format!("\"-{word}={rate}\" both takes away and says how many");
                mistakes.push(Mistake::new(what, format!("write -{word} or {word}={rate}")));
            }
            let rows: Vec<_> = TABLE.iter().filter(|row| row.1 == word || row.2 == word).collect();
            if rows.is_empty() {
                unknown.push(word);
            }
            for row in rows {
                match away {
                    true => profile.rates.remove(&row.0),
                    false => profile.rates.insert(row.0, rate.ok().flatten().unwrap_or(row.3)),
                };
            }
        }
        if !named {
            mistakes.push(Mistake::new("the list names no fault", "say none if that is meant, or all"));
        } else if !unknown.is_empty() {
            mistakes.push(unknown_faults(&unknown));
        }
        if mistakes.is_empty() { Ok(profile) } else { Err(mistakes) }
    }
}

impl FromStr for Profile {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let tell = |mistakes: Vec<Mistake>| mistakes.iter().map(Mistake::to_string).collect::<Vec<_>>();
        Profile::parse(text).map_err(|mistakes| tell(mistakes).join("; "))
    }
}

/// How many to expect in two minutes, in thousandths.
fn parse_rate(text: &str) -> Result<u32, Mistake> {
    let rate = text.parse::<f64>().ok().filter(|rate| (0.0..=f64::from(RATE_MAX)).contains(rate));
    let thousandths = rate.map(|rate| ((rate * 1000.0).round() as u32, rate > 0.0));
    match thousandths {
        Some((thousandths, some)) if thousandths > 0 || !some => Ok(thousandths),
        _ => {
            let what = format!("{text:?} is no number of faults in two minutes");
            Err(Mistake::new(what, format!("write 0, or a number from 0.001 to {RATE_MAX}")))
        }
    }
}

fn unknown_faults(words: &[&str]) -> Mistake {
    let kinds: Vec<_> = TABLE.iter().map(|row| row.1).collect();
    let mut classes: Vec<_> = TABLE.iter().map(|row| row.2).collect();
    classes.sort_unstable();
    classes.dedup();
    let there_are =
        format!("there are the kinds {} and the classes {}", kinds.join(", "), classes.join(", "));
    Mistake::new(format!("there is no fault {}", quoted(words)), there_are)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_lists() {
        let profile: Profile = "crash=3,network".parse().unwrap();
        assert_eq!(profile.rate(FaultKind::Crash), 3000);
        assert_eq!(profile.rate(FaultKind::Cut), 1600);
        assert_eq!(profile.rate(FaultKind::Pause), 0);
        let profile: Profile = "-loss,-twin".parse().unwrap();
        assert_eq!((profile.rate(FaultKind::Emptied), profile.rate(FaultKind::Twin)), (0, 0));
        assert_eq!(profile.rate(FaultKind::Crash), 1600);
        let again: Profile = profile.to_string().parse().unwrap();
        assert_eq!(again, profile);
        assert!("crush".parse::<Profile>().unwrap_err().contains("crash"));
    }

    #[test]
    fn what_cannot_be_is_refused_and_all_of_it_is_told() {
        let wrong = [
            "",
            ",",
            " ",
            "swarm",
            "crash,",
            "crash=-1",
            "crash=NaN",
            "crash=inf",
            "crash=",
            "crash=1e9",
            "crash=0.0001",
            "-crash=3",
            "-",
        ];
        for wrong in wrong {
            assert!(Profile::parse(wrong).is_err(), "{wrong:?}");
        }
        let told = Profile::parse("crush,crash=-1,pause=x,cat").unwrap_err();
        assert_eq!(told.len(), 3, "{told:?}");
        assert!(told[2].what.contains("\"crush\", \"cat\""), "{told:?}");
        assert_eq!(Profile::parse("crash=0").unwrap().rate(FaultKind::Crash), 0);
        assert_eq!(Profile::parse("crash=0.29").unwrap().rate(FaultKind::Crash), 290);
    }

    #[test]
    fn every_kind_has_a_row() {
        assert_eq!(FaultKind::all().count(), FaultKind::Frozen as usize + 1);
        assert!(FaultKind::all().zip(FaultKind::all().skip(1)).all(|(a, b)| a < b));
    }
}
