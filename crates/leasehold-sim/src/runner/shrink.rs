//! The shortest schedule that still breaks the same promise.

use crate::report::outcome::Outcome;
use crate::runner::options::Options;

/// Leaves faults out, first many at once and then one by one, as long as the same promise is still broken.
///
/// Each purpose draws from its own random stream, so that the remaining faults happen much as before. `failed` must have been a run
/// with these options.
pub fn shrink(options: &Options, failed: &Outcome) -> Outcome {
    let Some(violation) = &failed.violation else { return failed.clone() };
    let mut best = failed.clone();
    let mut keep: Vec<usize> = failed.faults.iter().map(|planned| planned.number).collect();
    // Whatever strikes after the promise was broken has no part in it.
    let before =
        failed.faults.iter().filter(|planned| planned.at <= violation.at).map(|planned| planned.number);
    try_with(options, before.collect(), violation.invariant, &mut keep, &mut best);
    let mut chunk = keep.len().div_ceil(2).max(1);
    loop {
        let mut from = 0;
        let mut shrunk = false;
        while from < keep.len() {
            let mut fewer = keep.clone();
            fewer.drain(from..(from + chunk).min(keep.len()));
            if try_with(options, fewer, violation.invariant, &mut keep, &mut best) {
                shrunk = true;
            } else {
                from += chunk;
            }
        }
        if chunk == 1 && !shrunk {
            return best;
        }
        chunk = chunk.div_ceil(2).max(1);
    }
}

fn try_with(
    options: &Options,
    fewer: Vec<usize>,
    invariant: &str,
    keep: &mut Vec<usize>,
    best: &mut Outcome,
) -> bool {
    let fewer_options = Options { keep: Some(fewer.clone()), ..options.clone() };
    let outcome = crate::run(&fewer_options, best.seed);
    let same = outcome.violation.as_ref().is_some_and(|violation| violation.invariant == invariant);
    if same {
        *keep = fewer;
        *best = outcome;
    }
    same
}
