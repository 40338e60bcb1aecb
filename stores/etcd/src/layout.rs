//! The keys in etcd.
//!
//! ```text
//! /<prefix>/<namespace>/meta
//! /<prefix>/<namespace>/control
//! /<prefix>/<namespace>/groups/<group>
//! /<prefix>/<namespace>/nodes/<node>
//! /<prefix>/<namespace>/shards/<group>/<shard>
//! /<prefix>/<namespace>/keys/<key>                  registered keys, under a lease
//! ```

use leasehold_store::{Key, StoreError, check_namespace};

const KEYS: &str = "keys/";

/// The keys of one namespace.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    root: String,
}

/// A part of etcd's key space: from `start`, and below `end`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: Vec<u8>,
    pub(crate) end: Vec<u8>,
}

/// What a key of etcd is to us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeyKind {
    /// A record.
    Record(Key),
    /// A registered key.
    Registered(String),
    /// A key that Leasehold did not write.
    Foreign(String),
}

impl Layout {
    /// The namespace, as it is written in the keys.
    pub(crate) fn namespace(&self) -> &str {
        self.root.trim_end_matches('/').rsplit('/').next().unwrap_or_default()
    }

    pub(crate) fn new(prefix: &str, namespace: &str) -> Result<Self, StoreError> {
        check_namespace(namespace)?;
        // A slash would put one namespace inside another.
        let namespace = namespace.replace('%', "%25").replace('/', "%2F");
        let prefix = prefix.trim_matches('/');
        Ok(Layout { root: format!("/{prefix}/{namespace}/") })
    }

    /// All namespaces below the same prefix.
    pub(crate) fn siblings(&self) -> Span {
        let start = self.parent().into_bytes();
        Span { end: past(start.clone()), start }
    }

    /// The namespace that a key below the same prefix belongs to, and where the next one begins.
    pub(crate) fn sibling(&self, key: &[u8]) -> Option<(String, Vec<u8>)> {
        let text = String::from_utf8_lossy(key);
        let parent = self.parent();
        let (written, _) = text.strip_prefix(&parent)?.split_once('/')?;
        let next = past(format!("{parent}{written}/").into_bytes());
        Some((written.replace("%2F", "/").replace("%25", "%"), next))
    }

    fn parent(&self) -> String {
        let root = self.root.trim_end_matches('/');
        root[..root.len() - self.namespace().len()].to_owned()
    }

    /// The key of a record.
    pub(crate) fn record(&self, key: &Key) -> Vec<u8> {
        format!("{}{key}", self.root).into_bytes()
    }

    /// The key of a registered key.
    pub(crate) fn registered(&self, key: &str) -> Vec<u8> {
        format!("{}{KEYS}{key}", self.root).into_bytes()
    }

    /// Everything.
    pub(crate) fn all(&self) -> Span {
        Span { start: self.at(""), end: past(self.at("")) }
    }

    /// The registered keys.
    pub(crate) fn registered_keys(&self) -> Span {
        Span { start: self.at(KEYS), end: past(self.at(KEYS)) }
    }

    /// Everything but the registered keys: what is before them and what is after them.
    pub(crate) fn records(&self) -> [Span; 2] {
        let (all, keys) = (self.all(), self.registered_keys());
        [Span { start: all.start, end: keys.start }, Span { start: keys.end, end: all.end }]
    }

    /// The records of nodes, and `meta`.
    pub(crate) fn nodes_and_meta(&self) -> [Span; 2] {
        let meta = self.record(&Key::Meta);
        // The first key after one is the same with a zero byte.
        let after = [meta.as_slice(), &[0]].concat();
        let nodes = self.at("nodes/");
        [Span { start: nodes.clone(), end: past(nodes) }, Span { start: meta, end: after }]
    }

    /// What a key of this namespace is.
    pub(crate) fn classify(&self, key: &[u8]) -> KeyKind {
        let text = String::from_utf8_lossy(key);
        let Some(rest) = text.strip_prefix(&self.root) else { return KeyKind::Foreign(text.into_owned()) };
        if let Some(registered) = rest.strip_prefix(KEYS) {
            return KeyKind::Registered(registered.to_owned());
        }
        match rest.parse::<Key>() {
            // What is not UTF-8 would otherwise look like a name with replacement characters.
            Ok(record) if self.record(&record) == key => KeyKind::Record(record),
            _ => KeyKind::Foreign(rest.to_owned()),
        }
    }

    /// The beginning of all keys, for people.
    pub(crate) fn root(&self) -> &str {
        &self.root
    }

    fn at(&self, rest: &str) -> Vec<u8> {
        format!("{}{rest}", self.root).into_bytes()
    }
}

/// The first key that does not begin with this one, which ends with a slash.
fn past(mut start: Vec<u8>) -> Vec<u8> {
    if let Some(last) = start.last_mut() {
        *last += 1;
    }
    start
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_namespaces_below_a_prefix_are_told_apart() {
        let layout = Layout::new("some/prefix", "team/app 100%").unwrap();
        let (name, next) = layout.sibling(&layout.record(&Key::Meta)).unwrap();
        assert_eq!(
            (name.as_str(), next.as_slice()),
            ("team/app 100%", &b"/some/prefix/team%2Fapp 100%250"[..])
        );
        assert_eq!(layout.siblings().start, b"/some/prefix/");
        assert_eq!(layout.siblings().end, b"/some/prefix0");
        assert_eq!(layout.sibling(b"/some/prefix/loose"), None);
    }

    #[test]
    fn every_key_is_classified_and_mapped_back() {
        let layout = Layout::new("some/prefix", "team/app 100%").unwrap();
        assert_eq!(layout.root(), "/some/prefix/team%2Fapp 100%25/");
        for text in ["meta", "control", "groups/g", "nodes/a b", "shards/g/x/y é%"] {
            let key: Key = text.parse().unwrap();
            assert_eq!(layout.classify(&layout.record(&key)), KeyKind::Record(key));
        }
        assert_eq!(layout.classify(&layout.registered("a/b")), KeyKind::Registered("a/b".into()));
        assert_eq!(layout.classify(&layout.at("nodes/a/b")), KeyKind::Foreign("nodes/a/b".into()));
        let mut broken = layout.at("nodes/a");
        broken.push(0xff);
        assert!(matches!(layout.classify(&broken), KeyKind::Foreign(_)));
    }

    #[test]
    fn spans_hold_what_they_should() {
        let layout = Layout::new("p", "n").unwrap();
        let holds = |span: &Span, key: &[u8]| span.start.as_slice() <= key && key < span.end.as_slice();
        let [before, after] = layout.records();
        let neighbour = Layout::new("p", "n-more").unwrap();
        for (key, spans) in [("meta", 1), ("control", 1), ("shards/g/0", 1), ("zzz", 1), ("keysmith", 1)] {
            let key = layout.at(key);
            let count = [&before, &after].iter().filter(|span| holds(span, &key)).count();
            assert_eq!(count, spans, "{}", String::from_utf8_lossy(&key));
        }
        let registered = layout.registered("x");
        assert!(!holds(&before, &registered) && !holds(&after, &registered));
        assert!(holds(&layout.all(), &registered) && holds(&layout.registered_keys(), &registered));
        assert!(!holds(&layout.all(), &neighbour.at("meta")));
        let [nodes, meta] = layout.nodes_and_meta();
        assert!(holds(&nodes, &layout.at("nodes/n")) && holds(&meta, &layout.at("meta")));
        for other in ["shards/g/0", "groups/g", "control", "metadata", "meta/x", "nodes", "nodesx"] {
            assert!(!holds(&nodes, &layout.at(other)) && !holds(&meta, &layout.at(other)), "{other}");
        }
    }

    #[test]
    fn a_namespace_must_be_a_name() {
        for bad in ["", "a\nb", &"x".repeat(201)] {
            assert!(Layout::new("p", bad).is_err(), "{bad:?}");
        }
    }
}
