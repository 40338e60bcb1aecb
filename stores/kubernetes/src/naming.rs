//! Names of Leases and values of labels. Kubernetes allows fewer characters and less length than Leasehold does, so a
//! name is a readable part and a hash of the whole; the exact name is an annotation, which is checked on reading.

use ring::digest::{Context, SHA256};

/// The longest readable part of a name, so that all of it stays below the 253 characters of Kubernetes.
const READABLE_MAX: usize = 100;
/// The longest value of a label.
const LABEL_MAX: usize = 63;
/// 128 bits in five-bit characters.
const HASH_CHARS: usize = 26;

/// The name of the Lease for a record: `<prefix>-<kind>-<readable>-<hash>`. No two records of any two namespaces have
/// the same hash, short of a collision of SHA-256 cut to 128 bits; should there ever be one, its annotation tells.
pub(crate) fn lease_name(prefix: &str, namespace: &str, kind: &str, key: &str) -> String {
    let own = key.split_once('/').map_or(key, |(_, name)| name);
    let readable = readable(&format!("{namespace}-{own}"));
    format!("{prefix}-{kind}-{readable}-{}", hash(&[prefix, namespace, key]))
}

/// The value of a label that stands for this text alone: the text itself where that is allowed, else a hash.
pub(crate) fn label_value(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric();
    let allowed = !text.is_empty()
        && text.len() <= LABEL_MAX
        && text.starts_with(plain)
        && text.ends_with(plain)
        && text.chars().all(|c| plain(c) || "-_.".contains(c));
    match allowed && !looks_hashed(text) {
        true => text.to_owned(),
        false => format!("hash.{}", hash(&[text])),
    }
}

/// A text that could be the hash of another one is hashed itself, so that no two texts have one value.
fn looks_hashed(text: &str) -> bool {
    text.strip_prefix("hash.").is_some_and(|rest| rest.len() == HASH_CHARS)
}

fn readable(text: &str) -> String {
    let mut readable = String::new();
    for c in text.chars().map(|c| c.to_ascii_lowercase()) {
        match c {
            'a'..='z' | '0'..='9' => readable.push(c),
            _ if readable.ends_with('-') || readable.is_empty() => {}
            _ => readable.push('-'),
        }
        if readable.len() >= READABLE_MAX {
            break;
        }
    }
    let readable = readable.trim_end_matches('-');
    if readable.is_empty() { "x".to_owned() } else { readable.to_owned() }
}

fn hash(parts: &[&str]) -> String {
    let mut context = Context::new(&SHA256);
    for part in parts {
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part.as_bytes());
    }
    let digest = context.finish();
    let mut bits = u128::from_be_bytes(digest.as_ref()[..16].try_into().expect("SHA-256 has 32 bytes"));
    let alphabet = b"0123456789abcdefghijklmnopqrstuv";
    let mut text = String::with_capacity(HASH_CHARS);
    for _ in 0..HASH_CHARS {
        text.push(alphabet[(bits & 31) as usize] as char);
        bits >>= 5;
    }
    text
}

/// Whether Kubernetes takes this as the beginning of names.
pub(crate) fn is_prefix(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    (1..=LABEL_MAX).contains(&text.len())
        && text.starts_with(plain)
        && text.ends_with(plain)
        && text.chars().all(|c| plain(c) || c == '-')
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn is_dns_subdomain(name: &str) -> bool {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        name.len() <= 253
            && name.split('.').all(|part| {
                part.starts_with(plain) && part.ends_with(plain) && part.chars().all(|c| plain(c) || c == '-')
            })
    }

    #[test]
    fn names_are_valid_and_never_shared() {
        let (long, wide) = ("l".repeat(200), "\u{1f980}".repeat(50));
        let keys = [
            "meta",
            "shards/g/a",
            "shards/g/A",
            "shards/g/a.",
            "shards/g/a/b",
            "shards/g/a-b",
            "shards/g-a/b",
            "nodes/g-a-b",
            "groups/g-a-b",
            "shards/g/-",
            "shards/g/\u{e9}",
            "shards/g/e\u{301}",
        ];
        let mut keys: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
        keys.push(format!("shards/{long}/{wide}"));
        let mut seen = BTreeSet::new();
        for namespace in ["demo", "demo-g", "d", &long, &wide] {
            for key in &keys {
                let name = lease_name("leasehold", namespace, "shard", key);
                assert!(is_dns_subdomain(&name), "{name}");
                assert!(seen.insert(name.clone()), "{name} twice");
            }
        }
    }

    #[test]
    fn label_values_are_valid_and_never_shared() {
        let long = "l".repeat(64);
        let mut seen = BTreeSet::new();
        let hashed = label_value("not plain");
        for text in ["demo", "Demo", "a_b.c-1", "-a", "a-", "not plain", &hashed, &long, "\u{e9}"] {
            let value = label_value(text);
            assert!(value.len() <= LABEL_MAX, "{value}");
            assert!(value.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)), "{value}");
            assert!(seen.insert(value.clone()), "{value} twice");
        }
        assert_eq!(label_value("orders"), "orders");
    }
}
