//! What schedules must contain: for each fault or circumstance a rule whose absence shows only where that is part of the schedule.

use std::fmt::Write as _;
use std::ops::Range;

use leasehold_core::rules::Rule;

use crate::faults::{Fault, FaultKind};
use crate::runner::options::{Circumstance, Options};
use crate::runner::{AfterFailure, run_many};
use crate::sabotage::{Duty, ReadOrder, Sabotage};

/// Something that schedules contain, and the rule that only this shows to be broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// What it is, in words.
    pub what: &'static str,
    /// The rule that is switched off.
    pub sabotage: Sabotage,
    leave_out: LeaveOut,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeaveOut {
    Fault(FaultKind),
    Circumstance(Circumstance),
}

const fn fault(what: &'static str, kind: FaultKind, rule: Rule) -> Need {
    Need { what, sabotage: Sabotage::Core(rule), leave_out: LeaveOut::Fault(kind) }
}

const fn drawn(what: &'static str, circumstance: Circumstance, sabotage: Sabotage) -> Need {
    Need { what, sabotage, leave_out: LeaveOut::Circumstance(circumstance) }
}

const NEEDS: [Need; 12] = [
    drawn(
        "listings and reads of several keys that are not of one instant",
        Circumstance::ReadsApart,
        Sabotage::Store(ReadOrder::MetaReadLast),
    ),
    drawn(
        "different ttls, also without `ttl_max`",
        Circumstance::MixedTtls,
        Sabotage::Core(Rule::TheirTtlCounts),
    ),
    fault("ttls changed by a rolling restart", FaultKind::RollingTtl, Rule::TtlMaxIsHeard),
    drawn("work with subtasks", Circumstance::OwnedParts, Sabotage::Driver(Duty::OwnedWorkCounts)),
    drawn(
        "work that survives a kill for a while",
        Circumstance::Outlasting,
        Sabotage::Driver(Duty::TimerOutlastsHandlers),
    ),
    drawn(
        "user code that runs between waking up and the first look of its driver",
        Circumstance::FirstOnWaking,
        Sabotage::Driver(Duty::CheckComparesClock),
    ),
    fault("frozen machines", FaultKind::Frozen, Rule::FreezesAddUp),
    drawn("zones", Circumstance::Zones, Sabotage::Core(Rule::ZonesCount)),
    fault("placements that differ", FaultKind::Placement, Rule::ViewsAgree),
    fault("a full disk", FaultKind::FullDisk, Rule::FullStoreRenewsNothing),
    fault("groups that become smaller and larger", FaultKind::Resize, Rule::RetiredSlotReturns),
    fault("operators that write while nodes do", FaultKind::Resize, Rule::GroupWriteIsASwap),
];

impl Need {
    /// All of them that this build can show.
    pub fn all() -> Vec<Need> {
        let can = Sabotage::all();
        NEEDS.into_iter().filter(|need| can.contains(&need.sabotage)).collect()
    }

    /// The runs that notice the broken rule.
    pub fn with(self, usual: &Options) -> Options {
        self.sabotage.options(usual)
    }

    /// The same without what only they contain.
    pub fn without(self, usual: &Options) -> Options {
        let mut options = self.with(usual);
        match self.leave_out {
            LeaveOut::Circumstance(circumstance) => options.without.push(circumstance),
            LeaveOut::Fault(kind) => {
                options.faults = options.faults.without(kind);
                options.script.iter_mut().for_each(|script| script.retain(|(_, it)| !is_of(it, kind)));
            }
        }
        options
    }
}

/// Whether a fault of a script is of this kind, of those that scripts are tried without.
fn is_of(fault: &Fault, kind: FaultKind) -> bool {
    match kind {
        FaultKind::RollingTtl => matches!(fault, Fault::RollingTtl { .. }),
        FaultKind::Placement => matches!(fault, Fault::Placement { .. }),
        _ => false,
    }
}

/// Runs each sabotage with and without what it needs. Returns a Markdown table of how many seeds noticed it, and whether all
/// were noticed with what they need and none without.
pub fn needs_table(options: &Options, seeds: Range<u64>, jobs: usize) -> (String, bool) {
    let mut text = "| schedules contain | rule switched off | noticed in | noticed without that |\n| --- | --- | ---: | ---: |\n".to_owned();
    let mut all_needed = true;
    let noticed = |options: &Options| {
        let summary = run_many(options, seeds.clone(), jobs, AfterFailure::GoOn, |_| {});
        (summary.failures.len(), summary.seeds)
    };
    for need in Need::all() {
        let ((with, of), (without, _)) = (noticed(&need.with(options)), noticed(&need.without(options)));
        all_needed &= with > 0 && without == 0;
        let _ = writeln!(text, "| {} | `{}` | {with} of {of} seeds | {without} |", need.what, need.sabotage);
        eprintln!("{}", text.lines().last().unwrap_or_default());
    }
    (text, all_needed)
}
