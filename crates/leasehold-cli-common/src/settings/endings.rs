//! The policies for work that fails or finishes, as people write them: `retry`, `quarantine:8`, `half-open:8:5m`.

use std::time::Duration;

use leasehold_core::record::FailurePolicy;

use super::span;

const FAILURES: u32 = 8;
const PAUSE: Duration = Duration::from_secs(300);

/// What is accepted, for error messages.
pub(crate) const ACCEPTED: &str = "use retry, quarantine, quarantine:FAILURES, half-open or half-open:FAILURES:PAUSE, for \
                                   example half-open:8:5m";

/// Reads a failure policy. What is left out has a default.
pub fn failure_policy(text: &str) -> Result<FailurePolicy, String> {
    let wrong = |what: String| format!("{what}; {ACCEPTED}");
    let mut parts = text.split(':');
    let rule = parts.next().unwrap_or_default();
    let (failures, pause) = (parts.next(), parts.next());
    if parts.next().is_some() {
        return Err(wrong(format!("invalid policy {text:?}")));
    }
    let after = match failures {
        None => FAILURES,
        Some(number) => (number.parse::<u32>().ok().filter(|after| *after > 0))
            .ok_or_else(|| wrong(format!("invalid number of failures {number:?} in {text:?}")))?,
    };
    match (rule, failures, pause) {
        ("retry", None, None) => Ok(FailurePolicy::Retry),
        ("quarantine", _, None) => Ok(FailurePolicy::quarantine(after)),
        ("half-open", _, None) => Ok(FailurePolicy::half_open(after, PAUSE)),
        ("half-open", _, Some(pause)) => {
            let pause = span::parse(pause).map_err(wrong)?;
            match pause.is_zero() {
                true => Err(wrong("the pause of half-open must be above zero".to_owned())),
                false => Ok(FailurePolicy::half_open(after, pause)),
            }
        }
        _ => Err(wrong(format!("invalid policy {text:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_can_be_given_and_mistakes_are_explained() {
        let minutes = |n: u64| Duration::from_secs(60 * n);
        for policy in [
            FailurePolicy::Retry,
            FailurePolicy::quarantine(1),
            FailurePolicy::half_open(3, minutes(90)),
            FailurePolicy::half_open(2, Duration::from_millis(1500)),
        ] {
            assert_eq!(failure_policy(&policy.to_string()), Ok(policy), "{policy}");
        }
        assert_eq!(failure_policy("quarantine"), Ok(FailurePolicy::quarantine(8)));
        assert_eq!(failure_policy("half-open"), Ok(FailurePolicy::half_open(8, minutes(5))));
        assert_eq!(failure_policy("half-open:2"), Ok(FailurePolicy::half_open(2, minutes(5))));
        for wrong in [
            "",
            "never",
            "retry:3",
            "quarantine:0",
            "quarantine:x",
            "half-open:3:0s",
            "half-open:3:5",
            "half-open:1:1s:x",
        ] {
            let error = failure_policy(wrong).unwrap_err();
            assert!(error.ends_with(ACCEPTED), "{wrong}: {error}");
        }
    }
}
