//! Rules that can be switched off, to show that the invariants notice, and the table that says by which.

use std::fmt;
use std::fmt::Write as _;
use std::str::FromStr;

use leasehold_core::rules::Rule;

use crate::options::Options;
use crate::runner::{AfterFailure, run_many};

/// A rule that is switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sabotage {
    /// A rule of the core. Only a build with the feature `sabotage` can break it.
    Core(Rule),
    /// A duty of the driver.
    Driver(Duty),
}

/// What a driver owes to the core; the simulated one can fail to.
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
}

const RULES: [Rule; 24] = [
    Rule::DeadlineFromSending,
    Rule::Margin,
    Rule::FenceBeforeTakeover,
    Rule::AbsentIsNotDead,
    Rule::ProofAfterShard,
    Rule::SilenceNeedsReads,
    Rule::SilenceLastsTtl,
    Rule::StopBeforeRelease,
    Rule::UnchangedIsUnknown,
    Rule::UnknownIsSettled,
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
    Rule::LeftOnlyWhenStopped,
    Rule::VerifyHeld,
    Rule::CorruptIsHeld,
    Rule::GenerationChecked,
];

const DUTIES: [Duty; 4] =
    [Duty::ClockCountsSleep, Duty::CheckBeforeStart, Duty::KillAtDeadline, Duty::EndedMeansEnded];

impl Sabotage {
    /// Everything that this build can switch off.
    pub fn all() -> Vec<Sabotage> {
        let rules = RULES.into_iter().filter(|_| cfg!(feature = "sabotage")).map(Sabotage::Core);
        rules.chain(DUTIES.into_iter().map(Sabotage::Driver)).collect()
    }
}

impl fmt::Display for Sabotage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Sabotage::Core(rule) => format!("{rule:?}"),
            Sabotage::Driver(duty) => format!("{duty:?}"),
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
            format!("there is no rule {text:?} to switch off; there are {}{needs}", names.join(", "))
        })
    }
}

/// Switches every rule off in turn and says which promise was seen broken, and after how many seeds, as a table in
/// Markdown.
pub fn sabotage_table(options: &Options, seeds_max: u64, jobs: usize) -> String {
    let mut text = String::from(
        "| rule switched off | caught by | seeds needed | first seed |\n| --- | --- | ---: | ---: |\n",
    );
    let chosen = |sabotage: &Sabotage| options.sabotage.is_none_or(|only| only == *sabotage);
    for sabotage in Sabotage::all().into_iter().filter(chosen) {
        let options = Options { sabotage: Some(sabotage), ..options.clone() };
        let summary = run_many(&options, 0..seeds_max, jobs, AfterFailure::Stop, |_| {});
        let _ = match summary.failures.first() {
            Some((seed, violation)) => {
                writeln!(text, "| `{sabotage}` | `{}` | {} | {seed} |", violation.invariant, seed + 1)
            }
            None => writeln!(text, "| `{sabotage}` | **not caught** | {} | |", summary.seeds),
        };
        eprintln!("{}", text.lines().last().unwrap_or_default());
    }
    text
}
