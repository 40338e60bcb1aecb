//! What people read: the result of a run, the trace of a failure, and the totals of many runs.

pub(crate) mod outcome;
pub(crate) mod timeline;
pub(crate) mod trace;
pub(crate) mod words;

use std::fmt::Write;

use crate::report::outcome::Outcome;
use crate::report::trace::transcript;
use crate::runner::Summary;
use crate::runner::options::Options;
use crate::world::clock::SECOND;

/// How many entries before the end are shown.
const LINES_MAX: usize = 120;

/// The command that shows this run again, exactly.
pub fn command(options: &Options, outcome: &Outcome) -> String {
    let program = match options.sabotage {
        // The real program cannot switch rules off.
        Some(_) => "cargo run --release -p leasehold-sim --features sabotage --",
        None => "leasehold sim",
    };
    let mut text = format!("{program} --seed {}", outcome.seed);
    // What is made for the rule comes with it.
    let made = |sabotage: crate::sabotage::Sabotage| sabotage.options(&Options::default());
    let usual = options.sabotage.map_or_else(Options::default, made);
    if options.nodes != usual.nodes {
        let _ = write!(text, " --nodes {}", options.nodes);
    }
    if options.shards != usual.shards {
        let _ = write!(text, " --shards {}", options.shards);
    }
    if let Some(kind) = options.store.filter(|_| options.store != usual.store) {
        let _ = write!(text, " --store-kind {kind}");
    }
    if options.faults_for != usual.faults_for {
        let _ = match options.faults_for.subsec_millis() {
            0 => write!(text, " --for {}s", options.faults_for.as_secs()),
            _ => write!(text, " --for {}ms", options.faults_for.as_millis()),
        };
    }
    if options.faults != usual.faults {
        let _ = write!(text, " --faults {}", options.faults);
    }
    if let Some(sabotage) = options.sabotage {
        let _ = write!(text, " --sabotage {sabotage}");
    }
    let numbers: Vec<_> = outcome.faults.iter().map(|planned| planned.number.to_string()).collect();
    let _ =
        write!(text, " --keep {}", if numbers.is_empty() { "none".to_owned() } else { numbers.join(",") });
    text + " --trace"
}

/// Everything about a run that broke a promise: which, the schedule, the end of the trace, a timeline, the command.
pub fn failure(options: &Options, outcome: &Outcome) -> String {
    let mut text = String::new();
    let Some(violation) = &outcome.violation else {
        let _ = writeln!(text, "seed {}: all promises kept", outcome.seed);
        return text;
    };
    let _ = writeln!(text, "seed {} on {}: {violation}", outcome.seed, outcome.store);
    let _ = writeln!(text, "\nschedule, {} faults:", outcome.faults.len());
    for planned in &outcome.faults {
        let _ = writeln!(text, "  {planned}");
    }
    let skipped = outcome.trace.len().saturating_sub(LINES_MAX);
    if !outcome.trace.is_empty() {
        let _ = writeln!(text, "\ntrace{}:", if skipped > 0 { ", last part" } else { "" });
        text.push_str(&transcript(&outcome.trace[skipped..]));
    }
    let _ = write!(text, "\n{}", outcome.timeline.picture(violation.shard, 60 * SECOND));
    let _ = writeln!(text, "\nto reproduce: {}", command(options, outcome));
    text
}

/// The totals of many runs, for people.
pub fn totals(summary: &Summary) -> String {
    let stats = &summary.stats;
    let mut text = String::new();
    let _ = writeln!(text, "{} schedules, {} broke a promise", summary.seeds, summary.failures.len());
    let _ = writeln!(
        text,
        "{} virtual hours, {} faults, {} core steps, {} starts, {} detachments, {} sessions fenced, {} incarnations",
        stats.virtual_ns / SECOND / 3600,
        stats.faults,
        stats.steps,
        stats.starts,
        stats.detachments,
        stats.fenced,
        stats.incarnations
    );
    let _ = writeln!(
        text,
        "{} writes to fenced sinks, {} refused; after all faults: all owned within {} s, plan reached within {} s at most",
        stats.sink_writes,
        stats.sink_rejected,
        stats.owned_after / SECOND,
        stats.converged_after / SECOND
    );
    for (seed, violation) in summary.failures.iter().take(20) {
        let _ = writeln!(text, "seed {seed}: {violation}");
    }
    text
}

/// The totals of many runs, for programs.
pub fn totals_json(summary: &Summary) -> serde_json::Value {
    let failures: Vec<_> = summary
        .failures
        .iter()
        .map(|(seed, violation)| serde_json::json!({ "seed": seed, "violation": violation }))
        .collect();
    serde_json::json!({ "seeds": summary.seeds, "failures": failures, "stats": summary.stats })
}

/// One run, for programs.
pub fn outcome_json(options: &Options, outcome: &Outcome) -> serde_json::Value {
    let faults: Vec<_> = outcome.faults.iter().map(ToString::to_string).collect();
    serde_json::json!({
        "seed": outcome.seed,
        "store": outcome.store.as_str(),
        "violation": outcome.violation,
        "faults": faults,
        "stats": outcome.stats,
        "command": command(options, outcome),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::invariants::Violation;

    #[test]
    fn the_command_asks_for_the_same_schedule_and_every_failure_has_a_picture() {
        let options = Options { faults_for: Duration::from_millis(7500), ..Options::default() };
        let mut outcome = crate::run(&options, 1);
        assert!(command(&options, &outcome).contains(" --for 7500ms "), "{}", command(&options, &outcome));
        let (invariant, message) = ("nobody_stays_detached", String::new());
        outcome.violation = Some(Violation { invariant, at: 0, shard: None, message });
        let told = failure(&options, &outcome);
        assert!(told.contains("any shard, from "), "{told}");
        assert!(told.contains('█'), "{told}");
    }
}
