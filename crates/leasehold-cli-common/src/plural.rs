//! Counts in words.

/// `1 shard`, `2 shards`.
pub fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}
