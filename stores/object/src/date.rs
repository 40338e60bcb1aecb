//! The date that servers write into their answers.

/// Seconds since 1970 of a date such as `Sun, 06 Nov 1994 08:49:37 GMT`.
pub(crate) fn unix_s(date: &str) -> Option<i64> {
    let (_, rest) = date.split_once(", ")?;
    let mut words = rest.split_whitespace();
    let day: i64 = words.next()?.parse().ok()?;
    let month = month(words.next()?)?;
    let year: i64 = words.next()?.parse().ok()?;
    let mut clock = words.next()?.split(':').map(|part| part.parse::<i64>().ok());
    let (hour, minute, second) = (clock.next()??, clock.next()??, clock.next()??);
    Some(days_since_1970(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second)
}

fn month(name: &str) -> Option<i64> {
    let names = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    names.iter().position(|known| *known == name).map(|at| at as i64 + 1)
}

/// Counts years from March, so that the leap day is the last of its year.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    year * 365 + leap_days + (month * 153 + 2) / 5 + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_read() {
        assert_eq!(unix_s("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        assert_eq!(unix_s("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));
        assert_eq!(unix_s("Thu, 29 Feb 2024 12:00:00 GMT"), Some(1_709_208_000));
        assert_eq!(unix_s("yesterday"), None);
    }
}
