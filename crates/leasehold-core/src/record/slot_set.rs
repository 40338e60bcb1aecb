use std::collections::BTreeMap;
use std::fmt;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Base64url, RFC 4648, section 5, without padding: it needs no escape in JSON or in a URL.
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
/// What a bitmap's text begins with.
const BITMAP: &str = "b:";
/// Up to this many characters a set is written as ranges, which people can read.
const RANGES_LEN_MAX: usize = 64;

/// An exact set of slots of one numbered group: never a slot too many, never one too few.
///
/// In records it is text: ranges such as `0-2,5`, or, where those are long and it is shorter, `b:` and a bitmap in
/// base64url (bit `n % 8` of byte `n / 8` stands for slot `n`). So half of 10,000 slots take at most 1,669 characters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlotSet(
    /// First to last slot of each range, with at least one missing slot between two ranges.
    BTreeMap<u32, u32>,
);

impl SlotSet {
    /// The slots below this one.
    pub fn below(end: u32) -> SlotSet {
        SlotSet(end.checked_sub(1).map(|last| (0, last)).into_iter().collect())
    }

    /// Adds a slot. Returns whether it is new.
    pub fn insert(&mut self, slot: u32) -> bool {
        if self.contains(slot) {
            return false;
        }
        self.insert_range(slot, slot);
        true
    }

    /// Removes a slot. Returns whether it was there.
    pub fn remove(&mut self, slot: u32) -> bool {
        let Some((from, last)) = self.range_of(slot) else { return false };
        self.0.remove(&from);
        if from < slot {
            self.0.insert(from, slot - 1);
        }
        if slot < last {
            self.0.insert(slot + 1, last);
        }
        true
    }

    /// Whether it holds a slot.
    pub fn contains(&self, slot: u32) -> bool {
        self.range_of(slot).is_some()
    }

    /// How many slots it holds.
    pub fn len(&self) -> usize {
        self.ranges().map(|(from, last)| (last - from) as usize + 1).sum()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Its slots, in order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.ranges().flat_map(|(from, last)| from..=last)
    }

    /// Its ranges, in order: the first and the last slot of each.
    pub fn ranges(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.0.iter().map(|(from, last)| (*from, *last))
    }

    /// What is in either.
    pub fn union(&self, other: &SlotSet) -> SlotSet {
        let mut both = self.clone();
        for (from, last) in other.ranges() {
            both.insert_range(from, last);
        }
        both
    }

    fn range_of(&self, slot: u32) -> Option<(u32, u32)> {
        let (from, last) = self.0.range(..=slot).next_back()?;
        (slot <= *last).then_some((*from, *last))
    }

    /// Adds a range and joins it with those that it overlaps or touches.
    fn insert_range(&mut self, mut from: u32, mut last: u32) {
        if let Some((before, end)) = self.0.range(..=from).next_back()
            && end.saturating_add(1) >= from
        {
            (from, last) = (*before, last.max(*end));
        }
        while let Some((next, end)) = self.0.range(from..).next().map(|(next, end)| (*next, *end))
            && next <= last.saturating_add(1)
        {
            self.0.remove(&next);
            last = last.max(end);
        }
        self.0.insert(from, last);
    }

    fn bitmap(&self) -> String {
        let last = self.0.last_key_value().map_or(0, |(_, last)| *last);
        let mut bytes = vec![0_u8; last as usize / 8 + 1];
        for slot in self.iter() {
            bytes[slot as usize / 8] |= 1 << (slot % 8);
        }
        let mut text = String::from(BITMAP);
        for three in bytes.chunks(3) {
            let bits =
                three.iter().enumerate().fold(0, |bits, (at, byte)| bits | u32::from(*byte) << (16 - 8 * at));
            for digit in 0..=three.len() {
                text.push(char::from(ALPHABET[(bits >> (18 - 6 * digit)) as usize % 64]));
            }
        }
        text
    }

    fn of_bitmap(text: &str) -> Option<SlotSet> {
        let mut slots = SlotSet::default();
        let mut at = 0;
        for four in text.as_bytes().chunks(4) {
            let mut bits = 0;
            for (place, digit) in four.iter().enumerate() {
                bits |= (ALPHABET.iter().position(|known| known == digit)? as u32) << (18 - 6 * place);
            }
            let bytes = four.len().checked_sub(1).filter(|bytes| *bytes > 0)?;
            // What is left over of the last digit must be nothing, so that a set has one text.
            if bits & (0x00ff_ffff >> (8 * bytes)) != 0 {
                return None;
            }
            for byte in 0..bytes {
                let byte = (bits >> (16 - 8 * byte)) as u8;
                for bit in (0..8).filter(|bit| byte & 1 << bit != 0) {
                    slots.insert_range(at + bit, at + bit);
                }
                at = at.checked_add(8)?;
            }
        }
        Some(slots)
    }

    fn of_ranges(text: &str) -> Option<SlotSet> {
        let mut slots = SlotSet::default();
        for part in text.split(',').filter(|_| !text.is_empty()) {
            let (from, last) = part.split_once('-').unwrap_or((part, part));
            let (from, last) = (from.parse().ok()?, last.parse().ok()?);
            if from > last {
                return None;
            }
            slots.insert_range(from, last);
        }
        Some(slots)
    }
}

impl FromIterator<u32> for SlotSet {
    fn from_iter<I: IntoIterator<Item = u32>>(slots: I) -> SlotSet {
        let mut set = SlotSet::default();
        for slot in slots {
            set.insert(slot);
        }
        set
    }
}

impl Extend<u32> for SlotSet {
    fn extend<I: IntoIterator<Item = u32>>(&mut self, slots: I) {
        for slot in slots {
            self.insert(slot);
        }
    }
}

/// As ranges, for people.
impl fmt::Display for SlotSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (from, last)) in self.ranges().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            match last - from {
                0 => write!(f, "{comma}{from}")?,
                _ => write!(f, "{comma}{from}-{last}")?,
            }
        }
        Ok(())
    }
}

impl Serialize for SlotSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let ranges = self.to_string();
        let last = self.0.last_key_value().map_or(0, |(_, last)| *last);
        let bitmap_len = BITMAP.len() + ((last as usize / 8 + 1) * 4).div_ceil(3);
        match ranges.len() <= bitmap_len.max(RANGES_LEN_MAX) {
            true => serializer.serialize_str(&ranges),
            false => serializer.serialize_str(&self.bitmap()),
        }
    }
}

impl<'de> Deserialize<'de> for SlotSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<SlotSet, D::Error> {
        deserializer.deserialize_str(Reader)
    }
}

struct Reader;

impl Visitor<'_> for Reader {
    type Value = SlotSet;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ranges of slots such as 0-2,5, or b: and a bitmap of them in base64url")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<SlotSet, E> {
        let slots = match text.strip_prefix(BITMAP) {
            Some(bitmap) => SlotSet::of_bitmap(bitmap),
            None => SlotSet::of_ranges(text),
        };
        slots.ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::rng::Rng;

    fn there_and_back(set: &SlotSet) -> String {
        let text = serde_json::to_string(set).unwrap();
        assert_eq!(serde_json::from_str::<SlotSet>(&text).unwrap(), *set, "{text}");
        text
    }

    #[test]
    fn sets_are_written_as_ranges_or_as_a_bitmap() {
        for (slots, text) in [
            (vec![], "\"\""),
            (vec![0], "\"0\""),
            (vec![2, 0, 1, 5], "\"0-2,5\""),
            (vec![7, 9, 8, 3], "\"3,7-9\""),
            (vec![0, 2, 4, 6, 8], "\"0,2,4,6,8\""),
            ((0..60).step_by(2).collect(), "\"b:VVVVVVVVVQU\""),
            (vec![u32::MAX, 0], "\"0,4294967295\""),
        ] {
            let set: SlotSet = slots.iter().copied().collect();
            assert_eq!(there_and_back(&set), text);
            assert!((0..12).all(|slot| set.contains(slot) == slots.contains(&slot)), "{text}");
            assert_eq!(set.len(), slots.len());
        }
        assert_eq!(SlotSet::below(0), SlotSet::default());
        assert_eq!(there_and_back(&SlotSet::below(10_000)), "\"0-9999\"");
        assert!(SlotSet::below(10_000).insert(10_000));
        assert!(!SlotSet::below(10_000).insert(9_999));
    }

    #[test]
    fn what_is_no_set_is_refused() {
        for text in [
            "\"-1\"",
            "\"3-1\"",
            "\"a\"",
            "\"1,,2\"",
            "\"4294967296\"",
            "3",
            "null",
            "\"b:A\"",
            "\"b:=\"",
            "\"b:VQF\"",
        ] {
            assert!(serde_json::from_str::<SlotSet>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn half_of_ten_thousand_slots_fit_into_a_record() {
        let even: SlotSet = (0..10_000).step_by(2).collect();
        let odd: SlotSet = (1..10_000).step_by(2).collect();
        assert!(there_and_back(&even).len() <= 1_671, "{}", there_and_back(&even).len());
        assert_eq!(even.union(&odd), SlotSet::below(10_000));
        assert!(even.iter().all(|slot| !odd.contains(slot)));
    }

    /// It agrees with the set of the standard library, whatever is done to both.
    #[test]
    fn it_is_exact() {
        let mut rng = Rng::new([7; 32]);
        for width in [3, 20, 200, 5_000] {
            let (mut set, mut known) = (SlotSet::default(), BTreeSet::new());
            for step in 0..2_000 {
                let slot = rng.bits() as u32 % width;
                match rng.bits() % 3 {
                    0 => assert_eq!(set.remove(slot), known.remove(&slot)),
                    _ => assert_eq!(set.insert(slot), known.insert(slot)),
                }
                if step % 50 == 0 {
                    assert!(set.iter().eq(known.iter().copied()));
                    assert_eq!((set.len(), set.is_empty()), (known.len(), known.is_empty()));
                    there_and_back(&set);
                }
            }
            let other: SlotSet = (0..width).filter(|_| rng.bits().is_multiple_of(2)).collect();
            let either: BTreeSet<u32> = known.iter().copied().chain(other.iter()).collect();
            assert!(set.union(&other).iter().eq(either.iter().copied()));
            assert_eq!(set.union(&other), either.into_iter().collect());
        }
    }
}
