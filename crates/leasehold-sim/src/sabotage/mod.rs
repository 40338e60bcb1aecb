//! Rules that can be switched off to show that the invariants notice, and the table that says which invariant did.
//! [`provocation`] has the faults that are made for a rule, [`needs`] what schedules must contain so that rules are missed.

mod needs;
mod provocation;

pub use needs::{Need, needs_table};

use std::fmt;
use std::fmt::Write as _;
use std::ops::Range;
use std::str::FromStr;

use leasehold_core::rules::Rule;

use crate::faults::Profile;
use crate::runner::options::Options;
use crate::runner::{AfterFailure, run_many};
use crate::sabotage::provocation::made_for_it;

/// A rule that is switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sabotage {
    /// A rule of the core. Only a build with the feature `sabotage` can break it.
    Core(Rule),
    /// A duty of the driver.
    Driver(Duty),
    /// The order in which a store reads.
    Store(ReadOrder),
}

/// What the core requires of a driver. The simulated driver can fail to do it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Duty {
    /// Its clock goes on while the machine sleeps.
    ClockCountsSleep,
    /// It looks at the deadline once more before work begins.
    CheckBeforeStart,
    /// It kills at the deadline whatever still runs.
    KillAtDeadline,
    /// It says that work has ended only when nothing of it runs any more.
    EndedMeansEnded,
    /// Each write of user code carries the epoch that its work began under.
    OwnEpochWithWrite,
    /// What a grant owns counts as running until it is gone.
    OwnedWorkCounts,
    /// The dead-man timer stays set until nothing of the work is left, also when its handler is gone.
    TimerOutlastsHandlers,
    /// A check reads the clock, whatever the worker was told.
    CheckComparesClock,
    /// A grant is over when its work has ended.
    EndedGrantIsOver,
}

/// What the core requires of a store that cannot read as of one instant. The simulated store can fail to do it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReadOrder {
    /// It reads `meta` after everything else, and of several keys the last one last.
    MetaReadLast,
}

const RULES: [Rule; 43] = [
    Rule::DeadlineFromSending,
    Rule::Margin,
    Rule::FenceBeforeTakeover,
    Rule::AbsentIsNotDead,
    Rule::ProofAfterShard,
    Rule::SilenceNeedsReads,
    Rule::SilenceLastsTtl,
    Rule::StopBeforeRelease,
    Rule::UnchangedIsUnknown,
    Rule::UnknownIsResolved,
    Rule::NoBlindRetry,
    Rule::FreshSession,
    Rule::LostIsForEver,
    Rule::NoForeignClocks,
    Rule::RecordsStay,
    Rule::EpochRises,
    Rule::SettleBeforeClaim,
    Rule::NoRenewalWhenDetached,
    Rule::Detach,
    Rule::SpillOver,
    Rule::UnownedAtOnce,
    Rule::ReturningCounts,
    Rule::LeftOnlyWhenStopped,
    Rule::VerifyHeld,
    Rule::GenerationChecked,
    Rule::PublishBeforeStart,
    Rule::NodesBeforeStart,
    Rule::PublishedBeforeTrust,
    Rule::ClaimStillThere,
    Rule::PublishedIsHeld,
    Rule::UnstartedIsNoRelease,
    Rule::MetaRestoredByTheLiving,
    Rule::TtlMaxIsHeard,
    Rule::FreezesAddUp,
    Rule::OwnRecordNotOlder,
    Rule::WatchSettlesNoClaim,
    Rule::DriftCounts,
    Rule::TheirTtlCounts,
    Rule::FullStoreRenewsNothing,
    Rule::RetiredSlotReturns,
    Rule::GroupWriteIsASwap,
    Rule::ViewsAgree,
    Rule::ZonesCount,
];

const DUTIES: [Duty; 9] = [
    Duty::ClockCountsSleep,
    Duty::CheckBeforeStart,
    Duty::KillAtDeadline,
    Duty::EndedMeansEnded,
    Duty::OwnEpochWithWrite,
    Duty::OwnedWorkCounts,
    Duty::TimerOutlastsHandlers,
    Duty::CheckComparesClock,
    Duty::EndedGrantIsOver,
];

impl Sabotage {
    /// Everything that this build can switch off.
    pub fn all() -> Vec<Sabotage> {
        let rules = RULES.into_iter().filter(|_| cfg!(feature = "sabotage")).map(Sabotage::Core);
        // Breaking this one shows only if the rule of the core that backs it is off too, which needs the feature.
        let orders = [ReadOrder::MetaReadLast].into_iter().filter(|_| cfg!(feature = "sabotage"));
        let duties = DUTIES.into_iter().map(Sabotage::Driver);
        rules.chain(orders.map(Sabotage::Store)).chain(duties).collect()
    }
}

impl Sabotage {
    /// The runs that must notice it: with all faults, or with faults made for it where several must come together.
    pub fn options(self, usual: &Options) -> Options {
        let mut options = Options { sabotage: Some(self), ..usual.clone() };
        if usual.faults == Profile::all()
            && let Some(made) = made_for_it(self)
        {
            options.faults = made.faults.parse().expect("a list of faults");
            options.store = usual.store.or(made.store);
            options.script = made.script;
            if let Some((nodes, shards)) = made.size {
                (options.nodes, options.shards) = (nodes, shards);
            }
        }
        options
    }

    /// The rule that backs this one, and is switched off too: otherwise breaking this one would not show.
    #[cfg(feature = "sabotage")]
    pub(crate) fn behind(self) -> Option<Rule> {
        match self {
            Sabotage::Store(ReadOrder::MetaReadLast) => Some(Rule::ClaimStillThere),
            Sabotage::Core(Rule::WatchSettlesNoClaim) => Some(Rule::ClaimStillThere),
            _ => None,
        }
    }

    /// What the rule says, in a few words.
    fn says(self) -> &'static str {
        match self {
            Sabotage::Core(rule) => rule_says(rule),
            Sabotage::Driver(Duty::ClockCountsSleep) => "the clock advances while the machine is suspended",
            Sabotage::Driver(Duty::CheckBeforeStart) => {
                "the deadline is looked at once more before work begins"
            }
            Sabotage::Driver(Duty::KillAtDeadline) => "what still runs at the deadline is killed",
            Sabotage::Driver(Duty::EndedMeansEnded) => "work has ended only when nothing of it runs",
            Sabotage::Driver(Duty::OwnEpochWithWrite) => {
                "a write carries the epoch that its work began under"
            }
            Sabotage::Store(ReadOrder::MetaReadLast) => {
                "a store that cannot read as of one instant reads `meta` last"
            }
            Sabotage::Driver(Duty::OwnedWorkCounts) => "what a grant owns counts as running until it is gone",
            Sabotage::Driver(Duty::TimerOutlastsHandlers) => {
                "the dead-man timer stays set until nothing of the work is left"
            }
            Sabotage::Driver(Duty::CheckComparesClock) => {
                "a check reads the clock, whatever anybody was told"
            }
            Sabotage::Driver(Duty::EndedGrantIsOver) => "a grant is over when its work has ended",
        }
    }
}

fn rule_says(rule: Rule) -> &'static str {
    match rule {
        Rule::DeadlineFromSending => "the deadline counts from before the renewal was sent",
        Rule::Margin => "work is told to stop a margin before the session ends",
        Rule::FenceBeforeTakeover => "a session is fenced by a swap before its shards are taken",
        Rule::AbsentIsNotDead => "a record that vanished proves nothing",
        Rule::ProofAfterShard => "the proof of death is read after the shard record",
        Rule::SilenceNeedsReads => "silence does not count while our own reads fail",
        Rule::SilenceLastsTtl => "silence lasts a whole ttl before it means death",
        Rule::StopBeforeRelease => "a shard is released only after its work has stopped",
        Rule::UnchangedIsUnknown => "a read-back without a change does not mean that the write failed",
        Rule::UnknownIsResolved => "a write of unknown outcome is resolved, never assumed",
        Rule::NoBlindRetry => "a write of unknown outcome is never repeated over whatever is there",
        Rule::FreshSession => "a new life adopts nothing of a former session",
        Rule::LostIsForEver => "no late confirmation revives a lost grant",
        Rule::NoForeignClocks => "no decision depends on a timestamp of another machine",
        Rule::RecordsStay => "a release keeps the record and its epoch",
        Rule::EpochRises => "every start has a higher epoch",
        Rule::SettleBeforeClaim => "an emptied store is not claimed at once",
        Rule::NoRenewalWhenDetached => "a detached session is never renewed",
        Rule::Detach => "a node that cannot prove its session detaches",
        Rule::SpillOver => "what does not fit under a cap goes to the next in rank",
        Rule::UnownedAtOnce => "no stabiliser delays an unowned shard",
        Rule::ReturningCounts => "nodes that are coming back count in the plan",
        Rule::LeftOnlyWhenStopped => "*left* is not written while work is unconfirmed",
        Rule::VerifyHeld => "a holder whose record names another stops",
        Rule::GenerationChecked => "another generation of the store detaches",
        Rule::PublishBeforeStart => "nothing starts before a renewal that publishes it has landed",
        Rule::NodesBeforeStart => {
            "after a claim over anything but a release, all nodes and `meta` are read before the start"
        }
        Rule::PublishedBeforeTrust => {
            "a release is relied on only if the shard was published when it was claimed"
        }
        Rule::ClaimStillThere => "after all nodes were read, the shard's record must still be the claim",
        Rule::PublishedIsHeld => "a shard that another live session publishes is not started",
        Rule::UnstartedIsNoRelease => "giving up a claim that never started is not a release",
        Rule::MetaRestoredByTheLiving => {
            "`meta` is restored only by a session renewed after the damage was seen"
        }
        Rule::TtlMaxIsHeard => "running nodes learn of a longer ttl that others use",
        Rule::FreezesAddUp => "short freezes add up from one renewal to the next",
        Rule::OwnRecordNotOlder => "a node whose own record is older than its last renewal detaches",
        Rule::WatchSettlesNoClaim => "a watch event alone does not settle a claim",
        Rule::DriftCounts => {
            "deadlines come earlier, and waits last longer, by what rates of clocks may differ"
        }
        Rule::TheirTtlCounts => "how long a session may be silent follows from its own ttl",
        Rule::FullStoreRenewsNothing => "a store that is full keeps no session alive",
        Rule::RetiredSlotReturns => "a retired slot is free again once its group has grown",
        Rule::GroupWriteIsASwap => "a group's record that an operator has just written is not written over",
        Rule::ViewsAgree => "nothing is given up for a node that plans with another view",
        Rule::ZonesCount => "the plan keeps to the zones of the policy",
        _ => "a rule of the core",
    }
}

impl fmt::Display for Sabotage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Sabotage::Core(rule) => format!("{rule:?}"),
            Sabotage::Driver(duty) => format!("{duty:?}"),
            Sabotage::Store(order) => format!("{order:?}"),
        };
        let mut words = String::new();
        for c in name.chars() {
            if c.is_uppercase() && !words.is_empty() {
                words.push('-');
            }
            words.push(c.to_ascii_lowercase());
        }
        f.pad(&words)
    }
}

impl FromStr for Sabotage {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let all = Sabotage::all();
        all.iter().copied().find(|sabotage| sabotage.to_string() == text).ok_or_else(|| {
            let names: Vec<_> = all.iter().map(Sabotage::to_string).collect();
            let needs =
                if cfg!(feature = "sabotage") { "" } else { " (the others need the feature `sabotage`)" };
            format!("unknown rule {text:?}; use one of {}{needs}", names.join(", "))
        })
    }
}

/// Switches every rule off in turn. Returns a Markdown table of which invariant noticed after how many seeds, and whether
/// every rule was noticed.
pub fn sabotage_table(options: &Options, seeds: Range<u64>, jobs: usize) -> (String, bool) {
    let mut text = format!(
        "| rule switched off | what it says | faults | caught by | seeds needed, from {} on |\n| --- | --- | --- | --- | ---: |\n",
        seeds.start
    );
    let mut all_caught = true;
    let chosen = |sabotage: &Sabotage| options.sabotage.is_none_or(|only| only == *sabotage);
    for sabotage in Sabotage::all().into_iter().filter(chosen) {
        let options = sabotage.options(options);
        let summary = run_many(&options, seeds.clone(), jobs, AfterFailure::Stop, |_| {});
        let (caught_by, needed) = match summary.failures.first() {
            Some((seed, violation)) => {
                (format!("`{}`", violation.invariant), (seed - seeds.start + 1).to_string())
            }
            None => ("**not caught**".to_owned(), format!("more than {}", summary.seeds)),
        };
        all_caught &= !summary.failures.is_empty();
        let faults = made_for_it(sabotage).map_or_else(|| "all".to_owned(), |made| made.to_string());
        let says = sabotage.says();
        #[cfg(feature = "sabotage")]
        let also = sabotage
            .behind()
            .map_or_else(String::new, |front| format!(" (with `{}` off too)", Sabotage::Core(front)));
        #[cfg(not(feature = "sabotage"))]
        let also = "";
        let _ = writeln!(text, "| `{sabotage}` | {says}{also} | {faults} | {caught_by} | {needed} |");
        eprintln!("{}", text.lines().last().unwrap_or_default());
    }
    (text, all_caught)
}
