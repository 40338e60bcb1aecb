//! Parses numbers and durations of the command line, and collects every problem so that all are reported together.

use std::time::Duration;

use leasehold_cli_common::settings::{Problem, span};

/// A whole number within limits, or a problem.
pub(crate) fn number(
    problems: &mut Vec<Problem>,
    flag: &str,
    text: Option<&str>,
    low: u64,
    high: u64,
) -> Option<u64> {
    let text = text?;
    match text.parse::<u64>() {
        Ok(number) if (low..=high).contains(&number) => Some(number),
        _ => {
            let advice = match high {
                u64::MAX => "use a whole number, for example 7".to_owned(),
                _ => format!("use a whole number from {low} to {high}"),
            };
            problems.push(Problem::new(flag, format!("invalid value {text:?}"), advice));
            None
        }
    }
}

/// A duration, or a problem.
pub(crate) fn duration(problems: &mut Vec<Problem>, flag: &str, text: Option<&str>) -> Option<Duration> {
    match span::parse(text?) {
        Ok(span) => Some(span),
        Err(what) => {
            problems.push(Problem::new(flag, what, "use a number with a unit: 250ms, 10s, 2m or 1h"));
            None
        }
    }
}
