//! Durations as people write them.

use std::time::Duration;

/// Reads `250ms`, `10s`, `1.5s`, `2m`, `1h30m`.
pub fn parse(text: &str) -> Result<Duration, String> {
    let mut rest = text.trim();
    let wrong = || match rest_is_number(text.trim()) {
        true => format!("invalid duration {text:?}: add a unit, for example {}s", text.trim()),
        false => format!("invalid duration {text:?}"),
    };
    let mut total = 0u128;
    if rest.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(wrong)?;
        let (number, after) = rest.split_at(number_end);
        let after = after.trim_start();
        let unit_end = after.find(|c: char| !c.is_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_end);
        let nanos = match unit {
            "us" | "µs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" | "min" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            "d" => 86_400_000_000_000,
            _ => return Err(wrong()),
        };
        total += scaled(number, nanos).ok_or_else(wrong)?;
        rest = after.trim_start();
    }
    u64::try_from(total).map(Duration::from_nanos).map_err(|_| format!("duration {text:?} is too long"))
}

fn rest_is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
}

/// `number × unit` in integers; at most nine decimals.
pub fn scaled(number: &str, unit: u64) -> Option<u128> {
    let (whole, decimals) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || whole.len() > 18 || decimals.len() > 9 || decimals.contains('.') {
        return None;
    }
    let mut value = whole.parse::<u128>().ok()? * u128::from(unit);
    if !decimals.is_empty() {
        value += decimals.parse::<u128>().ok()? * u128::from(unit) / 10u128.pow(decimals.len() as u32);
    }
    Some(value)
}

/// Writes a duration so that `parse` reads it back.
pub fn show(span: Duration) -> String {
    let nanos = span.as_nanos();
    let (unit, word) = match nanos {
        n if n >= 3_600_000_000_000 && n.is_multiple_of(3_600_000_000_000) => (3_600_000_000_000, "h"),
        n if n >= 120_000_000_000 && n.is_multiple_of(60_000_000_000) => (60_000_000_000, "m"),
        n if n >= 1_000_000_000 || n == 0 => (1_000_000_000, "s"),
        n if n >= 1_000_000 => (1_000_000, "ms"),
        _ => (1_000, "us"),
    };
    let decimals = nanos % unit * 1000 / unit;
    let text = format!("{}.{decimals:03}", nanos / unit);
    format!("{}{word}", text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written() {
        for (text, nanos) in [
            ("250ms", 250_000_000),
            ("10s", 10_000_000_000),
            ("1.5s", 1_500_000_000),
            ("2m", 120_000_000_000),
            ("1h", 3_600_000_000_000),
            ("0s", 0),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_nanos(nanos)), "{text}");
            assert_eq!(show(Duration::from_nanos(nanos)), text);
        }
        assert_eq!(parse("1h 30m"), Ok(Duration::from_secs(5400)));
        for text in ["", "10", "s", "-1s", "1.2.3s", "10 apples", "1e3s", "99999999999999999999s"] {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }
}
