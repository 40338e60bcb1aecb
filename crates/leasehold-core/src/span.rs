//! Durations in text for people.

use std::fmt;
use std::time::Duration;

/// A duration as people write it: `250 ms`, `5.9 s`, `24 h`.
pub(crate) struct Span(pub(super) Duration);

impl Span {
    /// The same, rounded down to whole milliseconds.
    pub(crate) fn whole_ms(span: Duration) -> Self {
        Span(Duration::from_millis(u64::try_from(span.as_millis()).unwrap_or(u64::MAX)))
    }
}

const MINUTE: u128 = 60_000_000_000;
const HOUR: u128 = 60 * MINUTE;

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.as_nanos();
        let text = match nanos {
            n if n >= HOUR && n % HOUR == 0 => format!("{} h", n / HOUR),
            n if n >= 2 * MINUTE && n % MINUTE == 0 => format!("{} min", n / MINUTE),
            n if n >= 1_000_000_000 => format!("{} s", decimal(n / 1_000_000)),
            n => format!("{} ms", decimal(n / 1_000)),
        };
        f.pad(&text)
    }
}

/// `thousandths / 1000` with the decimals that it needs and no more; integers only, so that it reads the same
/// everywhere.
pub(crate) fn decimal(thousandths: u128) -> String {
    let text = format!("{}.{:03}", thousandths / 1000, thousandths % 1000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_read_as_people_write_them() {
        let cases: [(u64, &str); 9] = [
            (0, "0 ms"),
            (1_500, "0.001 ms"),
            (250_000_000, "250 ms"),
            (1_000_000_000, "1 s"),
            (5_900_000_000, "5.9 s"),
            (10_100_000_001, "10.1 s"),
            (60_000_000_000, "60 s"),
            (300_000_000_000, "5 min"),
            (86_400_000_000_000, "24 h"),
        ];
        for (nanos, text) in cases {
            assert_eq!(Span(Duration::from_nanos(nanos)).to_string(), text);
        }
    }
}
