use std::fmt;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// More ranges than this are joined to one. What is in the set by mistake costs a wait, and what is missing could cost an
/// owner too many.
const RANGES_MAX: usize = 1024;

/// A set of slots. In records it is a number where it holds the slots below that, and else text such as `0-2,5`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slots(
    /// From and up to, in order, with gaps between them.
    Vec<(u32, u32)>,
);

impl Slots {
    /// The slots below this one.
    pub fn below(end: u32) -> Slots {
        Slots((end > 0).then_some((0, end)).into_iter().collect())
    }

    /// Whether it holds a slot.
    pub fn contains(&self, slot: u32) -> bool {
        let after = self.0.partition_point(|(from, _)| *from <= slot);
        after > 0 && slot < self.0[after - 1].1
    }

    /// Whether it holds all slots below this one.
    pub fn covers(&self, end: u32) -> bool {
        end == 0 || self.0.first().is_some_and(|(from, to)| *from == 0 && *to >= end)
    }

    /// What is in either.
    pub fn union(&self, other: &Slots) -> Slots {
        let mut ranges: Vec<(u32, u32)> = self.0.iter().chain(&other.0).copied().collect();
        ranges.sort_unstable();
        let mut joined: Vec<(u32, u32)> = Vec::with_capacity(ranges.len());
        for (from, to) in ranges {
            match joined.last_mut() {
                Some(last) if from <= last.1 => last.1 = last.1.max(to),
                _ => joined.push((from, to)),
            }
        }
        if let (true, Some(first), Some(last)) =
            (joined.len() > RANGES_MAX, joined.first().copied(), joined.last().copied())
        {
            joined = vec![(first.0, last.1)];
        }
        Slots(joined)
    }
}

impl FromIterator<u32> for Slots {
    fn from_iter<I: IntoIterator<Item = u32>>(slots: I) -> Slots {
        let single = slots.into_iter().map(|slot| (slot, slot.saturating_add(1))).collect();
        Slots::default().union(&Slots(single))
    }
}

impl fmt::Display for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (from, to)) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            match to - from {
                1 => write!(f, "{comma}{from}")?,
                _ => write!(f, "{comma}{from}-{}", to - 1)?,
            }
        }
        Ok(())
    }
}

impl Serialize for Slots {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0[..] {
            [] => serializer.serialize_u32(0),
            [(0, end)] => serializer.serialize_u32(end),
            _ => serializer.collect_str(self),
        }
    }
}

impl<'de> Deserialize<'de> for Slots {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Slots, D::Error> {
        deserializer.deserialize_any(Reader)
    }
}

struct Reader;

impl Visitor<'_> for Reader {
    type Value = Slots;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number of slots, or ranges of them such as 0-2,5")
    }

    fn visit_u64<E: de::Error>(self, end: u64) -> Result<Slots, E> {
        let end = u32::try_from(end).map_err(|_| E::invalid_value(de::Unexpected::Unsigned(end), &self))?;
        Ok(Slots::below(end))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Slots, E> {
        let range = |part: &str| {
            let (from, last) = part.split_once('-').unwrap_or((part, part));
            let (from, last) = (from.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
            (from <= last && last < u32::MAX).then(|| (from, last + 1))
        };
        let ranges: Option<Vec<(u32, u32)>> = text.split(',').map(range).collect();
        let ranges = ranges.ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))?;
        Ok(Slots::default().union(&Slots(ranges)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_written_and_read_back() {
        for (slots, text) in [
            (vec![], "0"),
            (vec![0, 1, 2], "3"),
            (vec![2, 0, 1, 5], "\"0-2,5\""),
            (vec![7, 9, 8, 3], "\"3,7-9\""),
        ] {
            let set: Slots = slots.iter().copied().collect();
            assert_eq!(serde_json::to_string(&set).unwrap(), text);
            assert_eq!(serde_json::from_str::<Slots>(text).unwrap(), set);
            assert!((0..12).all(|slot| set.contains(slot) == slots.contains(&slot)), "{text}");
        }
        for text in ["-1", "\"\"", "\"3-1\"", "\"a\"", "\"1,,2\"", "5000000000", "null", "\"4294967295\""] {
            assert!(serde_json::from_str::<Slots>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_in_either_is_in_the_union() {
        let (even, odd): (Slots, Slots) = ((0..10).step_by(2).collect(), (1..10).step_by(2).collect());
        assert_eq!(even.union(&odd), Slots::below(10));
        assert!(even.union(&odd).covers(10) && !even.covers(2) && even.covers(1));
        let many: Slots = (0..1 << 14).step_by(2).collect();
        assert!((0..1 << 14).step_by(2).all(|slot| many.contains(slot)), "joining loses nothing");
        assert!(many.to_string().len() < 20);
    }
}
