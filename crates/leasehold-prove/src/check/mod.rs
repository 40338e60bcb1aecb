//! `leasehold check`: runs real processes on the user's store, breaks them on purpose, and judges when their workers ran.
//!
//! `plan` decides what to do, `trial` does it, `findings` judges it, and `print` and `report` present the result.

mod arguments;
mod fault;
mod findings;
mod lines;
mod lock;
mod offline;
mod operator;
mod outage;
mod plan;
mod print;
mod progress;
mod report;
mod scenario;
mod schedule;
mod trial;
mod written;

use std::time::Duration;

use leasehold_cli_common::failure::{Code, Failure};
use leasehold_cli_common::settings::{Settings, span};
use leasehold_cli_common::signals::Signals;
use leasehold_core::config::Explanation;

pub use arguments::Check;
pub(crate) use progress::Progress;

use crate::cluster::Scratch;
use findings::Findings;
use plan::{CheckOptions, Plan};
use trial::Trial;
use written::Written;

/// Judges a store, or recorded histories.
pub async fn check(what: Check) -> Result<(), Failure> {
    if !what.history.is_empty() {
        return offline::check(&what);
    }
    let request = CheckOptions::read(&what)?;
    let settings = Settings::load(&what.everywhere, None)?;
    let files = Files {
        record: what.record.as_deref().map(Written::prepare).transpose()?,
        report: what.report.as_deref().map(Written::prepare).transpose()?,
    };
    // One that comes while the store is opened is heeded as soon as there is something to clear.
    let mut signals = Signals::listen()?;
    let scratch = Scratch::open(&settings, "check").await?;
    let result = tokio::select! {
        result = on_store(&what, request, &scratch, files) => result,
        () = signals.next() => Err(Failure::new(Code::Failed, "interrupted; nothing was judged")),
    };
    let shown = scratch.shown.clone();
    let stays = scratch.clear().await;
    if let (Err(_), Some(stays)) = (&result, &stays) {
        eprintln!("leasehold: {stays}");
    }
    let (findings, unwritten) = result?;
    if what.json {
        println!("{:#}", findings.as_json());
    } else {
        print!("{}", print::text(&findings));
        println!("{}", stays.unwrap_or_else(|| format!("All test data was removed from {shown}.")));
    }
    // What was judged comes first, whatever became of the files.
    match (findings.verdict(), unwritten.is_empty()) {
        (Ok(()), false) => Err(Failure::new(Code::Failed, unwritten.join("; "))),
        (verdict, _) => {
            unwritten.iter().for_each(|what| eprintln!("leasehold: {what}"));
            verdict
        }
    }
}

/// What is written at the end.
struct Files {
    record: Option<Written>,
    report: Option<Written>,
}

/// What it shows, and which files could not be written.
async fn on_store(
    what: &Check,
    request: CheckOptions,
    scratch: &Scratch,
    files: Files,
) -> Result<(Findings, Vec<String>), Failure> {
    let plan = request.plan(scratch, what.misbehave)?;
    scratch.vet().await?;
    let folder = tempfile::Builder::new().prefix("leasehold-check-").tempdir()?;
    let mut progress = Progress::new(what.json);
    progress.say(format!(
        "{} nodes, {} shards, ttl {}, on {}; seed {}",
        plan.nodes,
        plan.template.shards,
        span::show(plan.template.ttl),
        scratch.shown,
        plan.seed
    ));
    let trial = Trial::prepare(&plan, scratch, folder.path(), &mut progress).await?;
    let outcome = trial.run().await?;
    progress.wipe();
    let findings = Findings::of(&plan, &scratch.shown, &outcome);
    let mut unwritten = Vec::new();
    if let Some(record) = files.record {
        let lines: String = outcome.files.iter().map(|(_, text)| text.as_str()).collect();
        unwritten.extend(record.write(&lines).err());
    }
    if let Some(report) = files.report {
        unwritten.extend(report.write(&report::page(&findings)).err());
    }
    if !findings.is_good() || !unwritten.is_empty() {
        progress.say(format!("the recorded history is kept in {}", folder.keep().display()));
    }
    Ok((findings, unwritten))
}

/// How long after the last fault every shard must run again: a restarted process first waits for its former
/// session; then the worst case of an unowned shard counts.
fn bound(explained: &Explanation) -> Duration {
    explained.failover_worst + explained.recovery_worst + explained.unowned_worst
}

/// How long after it is back a node may take to have its fair share: it recovers, and the stabilisers pass.
fn share_bound(plan: &Plan) -> Duration {
    let policy = &plan.template.policy;
    bound(&plan.explained) + Duration::from_millis(policy.cooldown_ms + policy.min_run_ms)
}
