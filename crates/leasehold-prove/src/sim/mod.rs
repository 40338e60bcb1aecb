//! `leasehold sim`: the real core under virtual time and faults, over many seeds, or one of them with its story.

mod arguments;
mod bar;
mod request;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};

use leasehold_cli_common::failure::{Code, Failure};
use leasehold_sim::{Options, Progress, Summary, Tracing, report, run, run_until, shrink, transcript};

pub use arguments::Sim;

use bar::Bar;
use request::{Runs, SimOptions};

/// Runs the simulator.
pub fn sim(what: &Sim) -> Result<(), Failure> {
    let request = SimOptions::read(what)?;
    // What a core says when it panics is part of the report.
    std::panic::set_hook(Box::new(|_| {}));
    let result = match &request.runs {
        Runs::One(seed) => one(what, &request.options, *seed),
        Runs::Many(seeds) => many(what, &request, seeds),
    };
    let _ = std::panic::take_hook();
    result
}

fn one(what: &Sim, options: &Options, seed: u64) -> Result<(), Failure> {
    let options = Options { tracing: Tracing::On, ..options.clone() };
    let outcome = run(&options, seed);
    if what.trace {
        print!("{}", transcript(&outcome.trace));
    }
    // Faults that were chosen explicitly are not reduced.
    let told = if options.keep.is_some() { outcome } else { shrink(&options, &outcome) };
    if what.json {
        println!("{:#}", report::outcome_json(&options, &told));
    } else {
        print!("{}", report::failure(&options, &told));
    }
    if told.violation.is_some() { Err(broken("the schedule")) } else { Ok(()) }
}

fn many(what: &Sim, request: &SimOptions, seeds: &Range<u64>) -> Result<(), Failure> {
    let of = seeds.end - seeds.start;
    let bar = Bar::new(!what.json);
    bar.draw(&Progress { of, ..Progress::default() });
    let (stop, _listener) = stop_when_told()?;
    let tell = |progress: &Progress, _: &AtomicBool| bar.draw(progress);
    let summary = run_until(&request.options, seeds.clone(), request.jobs, &stop, tell);
    bar.end();
    let interrupted = summary.seeds < of;
    let mut totals = report::totals_json(&summary);
    totals["interrupted"] = interrupted.into();
    if !what.json {
        print!("{}", report::totals(&summary));
    }
    // After an interrupt, no schedule is shrunk: that takes time.
    let first = summary.failures.first().filter(|_| !interrupted);
    if let Some((seed, _)) = first {
        let options = Options { tracing: Tracing::On, ..request.options.clone() };
        let told = shrink(&options, &run(&options, *seed));
        match what.json {
            true => totals["first_failure"] = report::outcome_json(&options, &told),
            false => print!("\n{}", report::failure(&options, &told)),
        }
    }
    if what.json {
        println!("{totals:#}");
    }
    verdict(&summary, of)
}

fn verdict(summary: &Summary, of: u64) -> Result<(), Failure> {
    let (ran, failed) = (summary.seeds, summary.failures.len());
    match (failed, ran < of) {
        (0, false) => Ok(()),
        (0, true) => {
            let message = format!("interrupted after {ran} of {of} schedules; no promise was broken");
            Err(Failure::new(Code::Failed, message))
        }
        (_, false) => Err(broken(&format!("{failed} of {of} schedules"))),
        (_, true) => Err(broken(&format!("interrupted after {ran} of {of} schedules; {failed} of those"))),
    }
}

fn broken(which: &str) -> Failure {
    Failure::new(Code::Unhealthy, format!("{which} broke a promise; this is a bug, please report it"))
}

/// Becomes true with the first signal, after which no more seeds are started; a second signal ends the program.
fn stop_when_told() -> Result<(Arc<AtomicBool>, JoinHandle<()>), Failure> {
    use tokio::signal::unix::{SignalKind, signal};
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let guard = runtime.enter();
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    drop(guard);
    let stop = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&stop);
    let listener = Builder::new().name("signals".to_owned()).spawn(move || {
        runtime.block_on(async {
            for signals in 0.. {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                }
                told.store(true, Ordering::Relaxed);
                if signals > 0 {
                    std::process::exit(Failure::new(Code::Failed, "interrupted").code as i32);
                }
            }
        });
    })?;
    Ok((stop, listener))
}
