//! Names and ids. Every name that exists is valid: the constructors check it.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The longest name, in bytes: what the narrowest of the stores can still carry after escaping.
pub const NAME_BYTES_MAX: usize = 200;

/// Why a text is not a valid name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// The name is empty.
    #[error("the {what} is empty")]
    Empty {
        /// Which kind of name.
        what: &'static str,
    },
    /// Too long.
    #[error("the {what} {start:?}… has {bytes} bytes; the maximum is {NAME_BYTES_MAX}")]
    TooLong {
        /// Which kind of name.
        what: &'static str,
        /// How it begins.
        start: String,
        /// How long it is.
        bytes: usize,
    },
    /// It has a character that is not allowed.
    #[error("the {what} {name:?} contains the character {bad:?}; {rule}")]
    Character {
        /// Which kind of name.
        what: &'static str,
        /// The whole text.
        name: String,
        /// The character.
        bad: char,
        /// What is allowed instead.
        rule: &'static str,
    },
    /// It is not `group/name`.
    #[error("invalid shard {0:?}: use the form group/name")]
    NotAShard(String),
}

fn check(what: &'static str, text: &str, slash: Slash) -> Result<(), NameError> {
    if text.is_empty() {
        return Err(NameError::Empty { what });
    }
    if text.len() > NAME_BYTES_MAX {
        return Err(NameError::TooLong { what, start: text.chars().take(24).collect(), bytes: text.len() });
    }
    let bad = |c: char, rule| NameError::Character { what, name: text.to_owned(), bad: c, rule };
    for c in text.chars() {
        if c.is_control() {
            return Err(bad(c, "control characters are not allowed"));
        }
        if c == '/' && slash == Slash::Refused {
            return Err(bad(
                c,
                "a slash is only allowed in shard names, because it separates group and shard",
            ));
        }
    }
    for edge in [text.chars().next(), text.chars().next_back()].into_iter().flatten() {
        if edge.is_whitespace() {
            return Err(bad(edge, "a name must not begin or end with white space"));
        }
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Slash {
    Allowed,
    Refused,
}

/// The text of a name, with its first eight bytes as a number: maps by name compare names all the time, and most names
/// differ there, or end before. Names have no NUL, so the zeros that fill up a short one are below every character.
#[derive(Clone)]
struct Text {
    start: u64,
    text: Arc<str>,
}

impl Text {
    fn new(text: &str) -> Self {
        let mut start = [0; 8];
        let begins = &text.as_bytes()[..text.len().min(8)];
        start[..begins.len()].copy_from_slice(begins);
        Text { start: u64::from_be_bytes(start), text: text.into() }
    }

    /// Whether `start` is all of it.
    fn is_short(&self) -> bool {
        self.start & 0xff == 0
    }
}

impl PartialEq for Text {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.start == other.start && (self.is_short() || self.text == other.text)
    }
}

impl Eq for Text {}

impl Hash for Text {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl Ord for Text {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        match self.start.cmp(&other.start) {
            Ordering::Equal if !self.is_short() => self.text.cmp(&other.text),
            order => order,
        }
    }
}

impl PartialOrd for Text {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

macro_rules! name {
    ($(#[$doc:meta])* $type:ident, $what:literal, $slash:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $type(Text);

        impl $type {
            /// Checks the text and makes a name of it.
            pub fn new(text: impl AsRef<str>) -> Result<Self, NameError> {
                check($what, text.as_ref(), $slash)?;
                Ok($type(Text::new(text.as_ref())))
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0.text
            }
        }

        impl FromStr for $type {
            type Err = NameError;
            fn from_str(text: &str) -> Result<Self, NameError> {
                $type::new(text)
            }
        }

        impl TryFrom<String> for $type {
            type Error = NameError;
            fn try_from(text: String) -> Result<Self, NameError> {
                $type::new(text)
            }
        }

        impl TryFrom<&str> for $type {
            type Error = NameError;
            fn try_from(text: &str) -> Result<Self, NameError> {
                $type::new(text)
            }
        }

        impl PartialEq<str> for $type {
            fn eq(&self, text: &str) -> bool {
                self.as_str() == text
            }
        }

        impl PartialEq<&str> for $type {
            fn eq(&self, text: &&str) -> bool {
                self.as_str() == *text
            }
        }

        impl From<$type> for String {
            fn from(name: $type) -> String {
                name.as_str().to_owned()
            }
        }

        impl Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str(Parse(std::marker::PhantomData))
            }
        }

        impl AsRef<str> for $type {
            fn as_ref(&self) -> &str {
                self.as_str()
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

name!(
    /// The stable name of a node, for placement and for people; a life of it is a [`SessionId`].
    NodeName, "node name", Slash::Refused
);
name!(
    /// The name of a group of shards.
    GroupName, "group name", Slash::Refused
);
name!(
    /// The name of a shard inside its group; of a numbered group, the slot in decimal.
    ShardName, "shard name", Slash::Allowed
);

impl ShardName {
    /// The name of slot `number` of a numbered group.
    pub fn slot(number: u32) -> Self {
        ShardName(Text::new(&number.to_string()))
    }

    /// The slot that this name stands for, if it is a slot number in canonical form.
    pub fn as_slot(&self) -> Option<u32> {
        if self.is_number() { self.as_str().parse().ok() } else { None }
    }

    /// Whether it is a number in decimal, without leading zeros or a sign.
    fn is_number(&self) -> bool {
        match self.as_str().as_bytes() {
            [b'0'] => true,
            [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
            _ => false,
        }
    }

    /// The order in which people count: numbers first and by their value (2 before 10), then names, as
    /// [`natural_cmp`]. Records and plans are ordered by the text instead, as `Ord` does.
    pub fn natural_cmp(&self, other: &ShardName) -> Ordering {
        let (mine, theirs) = (self.as_str(), other.as_str());
        match (self.is_number(), other.is_number()) {
            (true, true) => mine.len().cmp(&theirs.len()).then_with(|| mine.cmp(theirs)),
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            (false, false) => natural_cmp(mine, theirs),
        }
    }
}

/// The order of texts in which people count: digits are compared by their value, so worker-2 comes before worker-10.
pub fn natural_cmp(mine: &str, theirs: &str) -> Ordering {
    let (mut a, mut b) = (mine, theirs);
    loop {
        let number = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let order = match (number(a), number(b)) {
            (0, _) | (_, 0) => match (a.chars().next(), b.chars().next()) {
                (Some(x), Some(y)) => {
                    (a, b) = (&a[x.len_utf8()..], &b[y.len_utf8()..]);
                    x.cmp(&y)
                }
                // The same letters and values, perhaps with other zeros before them.
                (x, y) => return x.cmp(&y).then_with(|| mine.cmp(theirs)),
            },
            (x, y) => {
                let (digits, others) = (a[..x].trim_start_matches('0'), b[..y].trim_start_matches('0'));
                (a, b) = (&a[x..], &b[y..]);
                digits.len().cmp(&others.len()).then_with(|| digits.cmp(others))
            }
        };
        if order.is_ne() {
            return order;
        }
    }
}

/// The unit of ownership: `group/name`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId {
    /// Its group.
    pub group: GroupName,
    /// Its name inside the group.
    pub name: ShardName,
}

impl ShardId {
    /// The shard `name` of `group`.
    pub fn new(group: GroupName, name: ShardName) -> Self {
        ShardId { group, name }
    }

    /// The order in which people count: by group, then as in [`ShardName::natural_cmp`].
    pub fn natural_cmp(&self, other: &ShardId) -> Ordering {
        natural_cmp(self.group.as_str(), other.group.as_str())
            .then_with(|| self.name.natural_cmp(&other.name))
    }

    /// Slot `number` of the numbered group `group`.
    pub fn slot(group: &GroupName, number: u32) -> Self {
        ShardId { group: group.clone(), name: ShardName::slot(number) }
    }
}

impl FromStr for ShardId {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        let (group, name) = text.split_once('/').ok_or_else(|| NameError::NotAShard(text.to_owned()))?;
        Ok(ShardId { group: group.parse()?, name: name.parse()? })
    }
}

impl TryFrom<String> for ShardId {
    type Error = NameError;
    fn try_from(text: String) -> Result<Self, NameError> {
        text.parse()
    }
}

impl TryFrom<&str> for ShardId {
    type Error = NameError;
    fn try_from(text: &str) -> Result<Self, NameError> {
        text.parse()
    }
}

impl From<(GroupName, ShardName)> for ShardId {
    fn from((group, name): (GroupName, ShardName)) -> Self {
        ShardId { group, name }
    }
}

impl TryFrom<(&str, &str)> for ShardId {
    type Error = NameError;
    fn try_from((group, name): (&str, &str)) -> Result<Self, NameError> {
        Ok(ShardId { group: group.parse()?, name: name.parse()? })
    }
}

impl TryFrom<(&str, u32)> for ShardId {
    type Error = NameError;
    fn try_from((group, slot): (&str, u32)) -> Result<Self, NameError> {
        Ok(ShardId { group: group.parse()?, name: ShardName::slot(slot) })
    }
}

impl From<ShardId> for String {
    fn from(id: ShardId) -> String {
        id.to_string()
    }
}

impl Serialize for ShardId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (group, name) = (self.group.as_str(), self.name.as_str());
        serializer.serialize_str(&[group, "/", name].concat())
    }
}

impl<'de> Deserialize<'de> for ShardId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Parse(std::marker::PhantomData))
    }
}

impl fmt::Display for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.group, self.name)
    }
}

impl fmt::Debug for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

macro_rules! id {
    ($(#[$doc:meta])* $type:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $type(u128);

        impl $type {
            /// An id from 128 random bits, which the caller must take from the system's randomness.
            pub const fn from_bits(bits: u128) -> Self {
                $type(bits)
            }

            /// The 128 bits.
            pub const fn to_bits(self) -> u128 {
                self.0
            }

            /// The id of 32 hexadecimal digits.
            pub(crate) fn from_digits(digits: &[u8]) -> Option<Self> {
                from_hex_digits(digits).map($type)
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:032x}", self.0)
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:08x}", (self.0 >> 96) as u32)
            }
        }

        impl FromStr for $type {
            type Err = String;
            fn from_str(text: &str) -> Result<Self, String> {
                let id = $type::from_digits(text.as_bytes());
                id.ok_or_else(|| format!("invalid id {text:?}: expected 32 hexadecimal digits"))
            }
        }

        impl Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let digits = to_hex_digits(self.0);
                serializer.serialize_str(std::str::from_utf8(&digits).expect("hexadecimal digits are ASCII"))
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str(Parse(std::marker::PhantomData))
            }
        }
    };
}

/// Parses a name or an id in place, without a copy: every record has several of them.
struct Parse<T>(std::marker::PhantomData<T>);

impl<T: FromStr<Err: fmt::Display>> serde::de::Visitor<'_> for Parse<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}

/// What each byte is worth as a hexadecimal digit, or [`NO_DIGIT`].
const DIGIT_VALUES: [u8; 256] = {
    let mut values = [NO_DIGIT; 256];
    let mut digit = 0;
    while digit < 16 {
        values[b"0123456789abcdef"[digit] as usize] = digit as u8;
        digit += 1;
    }
    values
};
const NO_DIGIT: u8 = 0x80;

/// 32 hexadecimal digits as a number. Every record has several, and no branch can predict random digits.
fn from_hex_digits(digits: &[u8]) -> Option<u128> {
    let digits: &[u8; 32] = digits.try_into().ok()?;
    let half = |digits: &[u8]| {
        digits.iter().fold((0_u64, 0_u8), |(sum, seen), digit| {
            let value = DIGIT_VALUES[usize::from(*digit)];
            (sum << 4 | u64::from(value), seen | value)
        })
    };
    let ((high, in_high), (low, in_low)) = (half(&digits[..16]), half(&digits[16..]));
    ((in_high | in_low) & NO_DIGIT == 0).then_some(u128::from(high) << 64 | u128::from(low))
}

fn to_hex_digits(bits: u128) -> [u8; 32] {
    let digit = |at: usize| b"0123456789abcdef"[(bits >> (124 - 4 * at)) as usize & 0xf];
    std::array::from_fn(digit)
}

id!(
    /// One life of a node. Fresh for every life, never reused.
    SessionId
);
id!(
    /// Which write made a record what it is. Fresh for every write, so that a write can be told apart from its retry.
    WriteId
);
id!(
    /// One life of a namespace: another one means that the store was emptied, restored or rolled back.
    Incarnation
);

/// The fencing token of a shard: rises at every new start, never falls, is never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(pub u64);

impl Epoch {
    /// The epoch after this one.
    pub fn next(self) -> Epoch {
        Epoch(self.0.saturating_add(1))
    }

    /// The epoch after this one and all of `floors`.
    pub fn next_above(self, floors: impl IntoIterator<Item = Epoch>) -> Epoch {
        let highest = floors.into_iter().fold(self, Ord::max);
        Epoch(highest.0.checked_add(1).expect("2^64 starts of one shard cannot happen"))
    }
}

impl From<u64> for Epoch {
    fn from(epoch: u64) -> Self {
        Epoch(epoch)
    }
}

impl From<Epoch> for u64 {
    fn from(epoch: Epoch) -> u64 {
        epoch.0
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_ordered_as_their_texts_are() {
        let endings = ["", "a", "b", "ab", "é", "0", "10", " z", "\u{10ffff}"];
        let starts = ["a", "b", "é", "1234567", "12345678", "123456789", "1234567é", "\u{10ffff}x"];
        let texts: Vec<String> =
            starts.iter().flat_map(|start| endings.map(|end| format!("{start}{end}"))).collect();
        let names: Vec<GroupName> = texts.iter().map(|text| text.parse().unwrap()).collect();
        for (a, name) in texts.iter().zip(&names) {
            for (b, other) in texts.iter().zip(&names) {
                assert_eq!(name.cmp(other), a.cmp(b), "{a:?} and {b:?}");
                assert_eq!(name == other, a == b, "{a:?} and {b:?}");
            }
        }
    }

    #[test]
    fn only_canonical_numbers_are_slots() {
        for text in
            ["0", "7", "10", "4294967295", "4294967296", "+5", "-0", "05", "00", "1a", "a", "1 1", "٣"]
        {
            let slow = text.parse::<u32>().ok().filter(|number| number.to_string() == text);
            assert_eq!(text.parse::<ShardName>().unwrap().as_slot(), slow, "{text:?}");
        }
    }
}
