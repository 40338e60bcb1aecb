//! The content of an object: rows of records, each with its own version, as readable JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use leasehold_core::record;
use leasehold_store::{Key, Stored, Version};
use serde::Deserialize;
use serde_json::value::RawValue;
use xxhash_rust::xxh3::xxh3_128;

use crate::layout::{self, Kind};

/// The version of this format that this code writes, and the newest that it reads.
pub(crate) const FORMAT: u32 = 1;

/// What is under an object's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// Nothing.
    Absent,
    /// Rows.
    Page(Page),
    /// Something that this code cannot read.
    Unreadable(Unreadable),
}

/// Records that lie in one object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Page {
    /// Every record, with its own version.
    pub(crate) rows: BTreeMap<Key, Stored>,
    /// Rows that are not Leasehold's, kept as they are.
    strange: BTreeMap<String, String>,
    /// This page was written over a damaged one of this version: what is not in it may have been, and counts as
    /// damaged until it is written.
    damage: Option<Version>,
}

/// An object that cannot be read. Every record that may lie in it counts as unreadable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unreadable {
    version: Version,
    /// What each of its records is shown as.
    value: Arc<[u8]>,
    /// The format of a newer version that it is written in. Without one it is damaged: cut off, edited by hand, another
    /// program's.
    newer: Option<u32>,
}

/// What a record is shown as that may have been in a page which was damaged. It is the same before and after the
/// page is written again, so that no wait for such a record starts over.
const LOST: &[u8] = b"it may have been in an object that was damaged";

#[derive(Deserialize)]
struct Head {
    format: u32,
}

#[derive(Deserialize)]
struct Written<'a> {
    #[serde(default)]
    damage: Option<String>,
    #[serde(borrow)]
    rows: BTreeMap<String, &'a RawValue>,
}

/// One row. The record is JSON as it was given; what is not JSON is kept as text or as bytes in hexadecimal.
#[derive(Deserialize)]
struct Row<'a> {
    version: String,
    #[serde(borrow, default)]
    record: Option<&'a RawValue>,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    bytes: Option<String>,
}

impl Content {
    /// Reads an object. `mark` is the store's mark of this state.
    pub(crate) fn decode(object: &str, body: &[u8], mark: &str, pages: u32) -> Self {
        if let Ok(Head { format }) = serde_json::from_slice(body)
            && format > FORMAT
        {
            // Records have formats of their own; a reader must see that this one is newer, too.
            let value = format!("{{\"format\":{}}}", format.max(record::FORMAT + 1));
            let version = Version::new(format!("newer:{mark}"));
            let value = value.into_bytes().into();
            return Content::Unreadable(Unreadable { version, value, newer: Some(format) });
        }
        let Ok(written) = serde_json::from_slice::<Written<'_>>(body) else {
            let version = Version::new(format!("damaged:{mark}"));
            let value = if layout::kind_of(object) == Kind::Page { LOST } else { body };
            return Content::Unreadable(Unreadable { version, value: value.into(), newer: None });
        };
        let mut page = Page { damage: written.damage.map(Version::new), ..Page::default() };
        for (name, raw) in written.rows {
            match name.parse::<Key>() {
                Ok(key) if layout::belongs(&key, object, pages) => {
                    page.rows.insert(key, stored(raw));
                }
                _ => {
                    page.strange.insert(name, raw.get().to_owned());
                }
            }
        }
        Content::Page(page)
    }

    /// The record under this key, if there is one or may have been one.
    pub(crate) fn row(&self, key: &Key) -> Option<Stored> {
        match self {
            Content::Absent => None,
            Content::Page(page) => page.rows.get(key).cloned().or_else(|| {
                let version = page.damage.clone()?;
                Some(Stored { version, value: LOST.into() })
            }),
            Content::Unreadable(Unreadable { version, value, .. }) => {
                Some(Stored { version: version.clone(), value: value.clone() })
            }
        }
    }

    /// The records that it shows.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &Key> {
        let page = if let Content::Page(page) = self { Some(page) } else { None };
        page.into_iter().flat_map(|page| page.rows.keys())
    }

    /// What hides records that may be in it and that it does not show, if something does.
    pub(crate) fn hiding(&self) -> Option<&Version> {
        match self {
            Content::Absent => None,
            Content::Page(page) => page.damage.as_ref(),
            Content::Unreadable(unreadable) => Some(&unreadable.version),
        }
    }

    /// The format of a newer version that it is written in.
    pub(crate) fn newer(&self) -> Option<u32> {
        match self {
            Content::Unreadable(unreadable) => unreadable.newer,
            Content::Absent | Content::Page(_) => None,
        }
    }

    /// Rows that are not Leasehold's.
    pub(crate) fn strange(&self, object: &str) -> Vec<String> {
        match self {
            Content::Page(page) => page.strange.keys().map(|row| format!("{object}#{row}")).collect(),
            Content::Absent | Content::Unreadable(_) => Vec::new(),
        }
    }

    /// What the object holds once these rows are as wished. A damaged page becomes one that remembers it.
    pub(crate) fn with(&self, object: &str, rows: &[(Key, Option<Stored>)]) -> Page {
        let mut page = match self {
            Content::Absent => Page::default(),
            Content::Page(page) => page.clone(),
            Content::Unreadable(unreadable) => {
                let remembered = layout::kind_of(object) == Kind::Page;
                Page { damage: remembered.then(|| unreadable.version.clone()), ..Page::default() }
            }
        };
        for (key, stored) in rows {
            match stored {
                Some(stored) => page.rows.insert(key.clone(), stored.clone()),
                None => page.rows.remove(key),
            };
        }
        page
    }
}

impl Page {
    /// The page as it is stored: one row a line. `write` is fresh for every write, so that no two have the same bytes.
    pub(crate) fn encode(&self, write: &str) -> Vec<u8> {
        let mut out = format!("{{\"format\":{FORMAT},\"write\":\"{write}\",");
        if let Some(damage) = &self.damage {
            let _ = write!(out, "\"damage\":{},", quoted(damage.as_str()));
        }
        out.push_str("\"rows\":{");
        let rows = self.rows.iter().map(|(key, stored)| (key.to_string(), row(stored)));
        let strange = self.strange.iter().map(|(name, raw)| (name.clone(), raw.clone()));
        for (at, (name, row)) in rows.chain(strange).enumerate() {
            out.push_str(if at == 0 { "\n" } else { ",\n" });
            let _ = write!(out, "{}:{row}", quoted(&name));
        }
        out.push_str("\n}}\n");
        out.into_bytes()
    }
}

fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("text is always JSON")
}

fn row(stored: &Stored) -> String {
    let version = quoted(stored.version.as_str());
    let Ok(text) = std::str::from_utf8(&stored.value) else {
        let hex: String = stored.value.iter().map(|byte| format!("{byte:02x}")).collect();
        return format!("{{\"version\":{version},\"bytes\":\"{hex}\"}}");
    };
    match serde_json::from_str::<&RawValue>(text) {
        // Only what comes back byte for byte: blanks around a value would be lost.
        Ok(raw) if raw.get() == text && text.starts_with('{') => {
            format!("{{\"version\":{version},\"record\":{text}}}")
        }
        _ => format!("{{\"version\":{version},\"text\":{}}}", quoted(text)),
    }
}

/// A row that has lost its shape is shown as it is, under a version that changes when it does.
fn stored(raw: &RawValue) -> Stored {
    let text = raw.get();
    let value = serde_json::from_str::<Row<'_>>(text).ok().and_then(|row| {
        let value: Vec<u8> = match (row.record, row.text, row.bytes) {
            (Some(record), None, None) => record.get().into(),
            (None, Some(text), None) => text.into(),
            (None, None, Some(hex)) => unhex(&hex)?,
            _ => return None,
        };
        Some(Stored { version: Version::new(row.version), value: value.into() })
    });
    value.unwrap_or_else(|| Stored {
        version: Version::new(format!("damaged:{:032x}", xxh3_128(text.as_bytes()))),
        value: text.as_bytes().into(),
    })
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8);
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| Some(digit(pair[0])? << 4 | digit(*pair.get(1)?)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_core::record::Record as _;

    use crate::layout::PAGES;

    fn key(name: &str) -> Key {
        format!("shards/g/{name}").parse().unwrap()
    }

    fn sample(version: &str, value: &[u8]) -> Option<Stored> {
        Some(Stored { version: Version::new(version), value: value.into() })
    }

    fn page_of(name: &str) -> String {
        layout::object_of(&key(name), PAGES)
    }

    fn decode(object: &str, body: &[u8]) -> Content {
        Content::decode(object, body, "e1", PAGES)
    }

    #[test]
    fn rows_come_back_byte_for_byte() {
        let object = page_of("0");
        let values: [&[u8]; 7] =
            [b"{\"a\" : [1, 2]}", b" {} ", b"", b"\xff\x00", b"null", b"\"quoted\"", "\u{e9}\n".as_bytes()];
        for value in values {
            let page = Content::Absent.with(&object, &[(key("0"), sample("v1", value))]);
            let read = decode(&object, &page.encode("w"));
            assert_eq!(read.row(&key("0")), sample("v1", value), "{value:?}");
        }
    }

    #[test]
    fn a_damaged_page_shows_every_row_as_damaged_until_it_is_written() {
        let object = page_of("0");
        let damaged = decode(&object, b"{\"format\":1,\"rows\":{\"sha");
        assert!(damaged.hiding().is_some() && damaged.keys().next().is_none());
        let seen = damaged.row(&key("0")).unwrap();
        assert_eq!(seen.version.as_str(), "damaged:e1");
        let taken = damaged.with(&object, &[(key("0"), sample("v2", b"{}"))]);
        let taken = Content::decode(&object, &taken.encode("w"), "e2", PAGES);
        assert_eq!(taken.row(&key("0")), sample("v2", b"{}"));
        let other = taken.row(&key("another"));
        assert_eq!(other, Some(seen), "the others are not free: their holders may be alive");
        assert_eq!(taken.keys().count(), 1);
    }

    #[test]
    fn strange_rows_are_kept_and_told_of() {
        let object = page_of("0");
        let body =
            br#"{"format":1,"write":"w","rows":{"else":{"x":1},"nodes/n":{"version":"v","record":{}}}}"#;
        let read = decode(&object, body);
        assert_eq!(read.keys().count(), 0);
        assert_eq!(read.strange(&object).len(), 2);
        let next = read.with(&object, &[(key("0"), sample("v1", b"{}"))]).encode("w2");
        assert_eq!(decode(&object, &next).strange(&object).len(), 2);
    }

    #[test]
    fn a_row_without_its_shape_is_damaged_alone() {
        let object = page_of("0");
        let body = br#"{"format":1,"rows":{"shards/g/0":{"version":7}}}"#;
        let row = decode(&object, body).row(&key("0")).unwrap();
        assert!(row.version.as_str().starts_with("damaged:"), "{row:?}");
        assert_eq!(&*row.value, br#"{"version":7}"#);
    }

    #[test]
    fn a_newer_format_is_newer_for_readers_of_its_records() {
        for object in ["nodes/n.json".to_owned(), page_of("0")] {
            let newer = decode(&object, b"{\"format\":2,\"rows\":[]}");
            assert_eq!(newer.newer(), Some(2));
            let row = newer.row(&key("0")).unwrap();
            assert!(record::ShardRecord::decode(&row.value).unwrap_err().is_newer(), "{row:?}");
        }
    }
}
