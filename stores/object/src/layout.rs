//! Maps records to objects and back.

use leasehold_store::Key;
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

/// How many objects the shards of one group are packed into. Every client of a namespace must have the same number;
/// `docs/object.md` has the measurements behind it.
pub(crate) const PAGES: u32 = 16;

/// The object that every change but a plain renewal rewrites, so that one small read shows whether anything changed.
pub(crate) const MARKER: &str = "changed.json";

/// Where the records of nodes lie.
pub(crate) const NODES: &str = "nodes/";
/// Where the leases of registered keys lie.
pub(crate) const LEASES: &str = "leases/";
/// Where registered keys lie.
pub(crate) const REGISTERED: &str = "registered/";

/// What an object's name says about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Holds one record.
    Single,
    /// Holds the shards of a group whose names fall on it.
    Page,
    /// Belongs to this crate, and holds no record.
    Own,
    /// A foreign object.
    Foreign,
}

/// The object that a record lies in, below the namespace.
pub(crate) fn object_of(key: &Key, pages: u32) -> String {
    match key {
        Key::Meta => "meta.json".to_owned(),
        Key::Control => "control.json".to_owned(),
        Key::Group(group) => format!("groups/{}.json", escaped(group.as_str())),
        Key::Node(node) => format!("nodes/{}.json", escaped(node.as_str())),
        Key::Shard(shard) => {
            let page = xxh3_64(shard.name.as_str().as_bytes()) % u64::from(pages);
            format!("shards/{}/{page:02}.json", escaped(shard.group.as_str()))
        }
    }
}

/// What an object below the namespace is.
pub(crate) fn kind_of(object: &str) -> Kind {
    if object == MARKER || object.starts_with(LEASES) || object.starts_with(REGISTERED) {
        return Kind::Own;
    }
    let Some(stem) = object.strip_suffix(".json") else { return Kind::Foreign };
    let parts: Vec<&str> = stem.split('/').collect();
    match parts.as_slice() {
        ["meta" | "control"] => Kind::Single,
        ["groups" | "nodes", name] if is_escaped(name) => Kind::Single,
        ["shards", group, page] if is_escaped(group) && is_page(page) => Kind::Page,
        _ => Kind::Foreign,
    }
}

/// The record that an object holds which holds one, unless its name is too long to tell.
pub(crate) fn key_of(object: &str) -> Option<Key> {
    let stem = object.strip_suffix(".json")?;
    let key = match stem.split_once('/') {
        None => stem.parse().ok()?,
        Some((kind, name)) => format!("{kind}/{}", unescaped(name)?).parse().ok()?,
    };
    (kind_of(object) == Kind::Single && belongs(&key, object, PAGES)).then_some(key)
}

/// The object that holds the group whose shards are in this one.
pub(crate) fn group_of(page: &str) -> Option<String> {
    let (group, _) = page.strip_prefix("shards/")?.split_once('/')?;
    Some(format!("groups/{group}.json"))
}

/// Whether an object may hold this record.
pub(crate) fn belongs(key: &Key, object: &str, pages: u32) -> bool {
    object_of(key, pages) == object
}

/// The longest name of a folder or object that is written out. Some servers end at 255 bytes.
const ESCAPED_MAX: usize = 180;

/// A name with everything but letters, digits, `-`, `_` and inner dots written as `=` and two hexadecimal digits: no
/// store, tool or URL needs to quote the rest. Very long ones end in a hash. A reader that needs the name finds it in the
/// object, where two that met by their hash would lie side by side.
pub(crate) fn escaped(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for (at, byte) in name.bytes().enumerate() {
        let inner = at > 0 && at + 1 < name.len();
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => out.push(byte as char),
            b'.' if inner => out.push('.'),
            _ => out.push_str(&format!("={byte:02x}")),
        }
    }
    if out.len() > ESCAPED_MAX {
        out.truncate(ESCAPED_MAX - 34);
        out.push_str(&format!("=={:032x}", xxh3_128(name.as_bytes())));
    }
    out
}

/// The name that was escaped, unless only its hash is left.
fn unescaped(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, more @ ..] = rest {
        match (first, more) {
            (b'=', [high, low, after @ ..]) => {
                let digit = |byte: &u8| (*byte as char).to_digit(16);
                bytes.push((digit(high)? * 16 + digit(low)?) as u8);
                rest = after;
            }
            (b'=', _) => return None,
            (byte, _) => {
                bytes.push(*byte);
                rest = more;
            }
        }
    }
    String::from_utf8(bytes).ok()
}

fn is_escaped(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.=".contains(&byte))
}

fn is_page(text: &str) -> bool {
    text.len() >= 2 && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_never_meet() {
        let long = ["x".repeat(199), "x".repeat(200), "\u{e9}".repeat(100)];
        let odd =
            ["a", "A", ".", "..", "a.b", "a/b", "=2f", "%2F", " ", "\u{e9}", "\u{1f980}", ".a", "a.", "ab="];
        let mut seen = std::collections::BTreeSet::new();
        for name in odd.into_iter().chain(long.iter().map(String::as_str)) {
            let text = escaped(name);
            assert!(is_escaped(&text) && text.len() <= ESCAPED_MAX, "{text}");
            assert!(seen.insert(text), "{name}");
        }
    }

    #[test]
    fn every_record_has_its_object() {
        for key in [
            "meta",
            "control",
            "groups/g",
            "nodes/n",
            "nodes/..",
            "nodes/a b=c\u{e9}",
            "shards/g/0",
            "shards/a b/c/d",
        ] {
            let key: Key = key.parse().unwrap();
            let object = object_of(&key, PAGES);
            let wanted = if matches!(key, Key::Shard(_)) { Kind::Page } else { Kind::Single };
            assert_eq!(kind_of(&object), wanted, "{object}");
            assert!(belongs(&key, &object, PAGES));
            match &key {
                Key::Shard(shard) => {
                    let group = object_of(&Key::Group(shard.group.clone()), PAGES);
                    assert_eq!(group_of(&object), Some(group));
                }
                single => assert_eq!(key_of(&object).as_ref(), Some(single)),
            }
        }
        for foreign in ["nodes", "something", "shards/x", "shards/g/7.json", "nodes/a b.json", "x/meta.json"]
        {
            assert_eq!(kind_of(foreign), Kind::Foreign, "{foreign}");
        }
        let long: Key = format!("nodes/{}", "x".repeat(190)).parse().unwrap();
        assert_eq!(key_of(&object_of(&long, PAGES)), None, "nobody can tell");
        assert_eq!(kind_of(MARKER), Kind::Own);
    }
}
