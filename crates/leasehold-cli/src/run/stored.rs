//! Groups from the store: those that match a pattern are served while they are there.

use std::collections::BTreeMap;

use leasehold::Node;
use leasehold_cli_common::settings::Settings;
use leasehold_core::record::ShardSet;
use leasehold_core::view::{GroupView, SettingsSource};
use leasehold_core::{GroupName, View};

use super::groups::Runner;

/// What to serve, and how.
pub(super) struct Stored {
    patterns: Vec<String>,
    /// Groups that are served whatever the store says.
    own: Vec<GroupName>,
    capacity: Option<u32>,
    runner: Option<Runner>,
    /// What is served now, with its kind of shards.
    served: BTreeMap<GroupName, ShardSet>,
    /// Named groups, which cannot be served, and were told of.
    told: Vec<GroupName>,
}

impl Stored {
    pub(super) fn new(settings: &Settings, own: Vec<GroupName>, runner: Option<Runner>) -> Self {
        let (patterns, capacity) = (settings.serve(), settings.count("group_capacity"));
        Stored { patterns, own, capacity, runner, served: BTreeMap::new(), told: Vec::new() }
    }

    /// Serves what appears and drops what is deleted, for as long as it is polled.
    pub(super) async fn follow(mut self, node: &Node) {
        if self.patterns.is_empty() {
            return std::future::pending().await;
        }
        let mut views = node.watch_view();
        loop {
            let view = views.borrow_and_update().clone();
            if view.ready {
                self.look(node, &view);
            }
            if views.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    fn look(&mut self, node: &Node, view: &View) {
        let there: BTreeMap<&GroupName, &GroupView> = view
            .groups
            .iter()
            .filter(|seen| seen.source == SettingsSource::Store && self.wants(&seen.group))
            .map(|seen| (&seen.group, seen))
            .collect();
        let gone = |group: &GroupName, kind: ShardSet| {
            there.get(group).is_none_or(|seen| seen.shards.kind() != kind.kind())
        };
        let served = self.served.iter();
        let dropped: Vec<GroupName> =
            served.filter(|(group, kind)| gone(group, **kind)).map(|(group, _)| group.clone()).collect();
        for group in dropped {
            self.served.remove(&group);
            match node.unserve(group.as_str()) {
                Ok(()) => tracing::info!(%group, "the group was deleted: this node no longer serves it"),
                Err(error) => tracing::warn!(%group, %error, "cannot drop the group"),
            }
        }
        for seen in there.into_values() {
            if !self.served.contains_key(&seen.group) {
                self.serve(node, seen);
            }
        }
    }

    fn wants(&self, group: &GroupName) -> bool {
        !self.own.contains(group) && self.patterns.iter().any(|pattern| matches(pattern, group.as_str()))
    }

    fn serve(&mut self, node: &Node, seen: &GroupView) {
        let group = &seen.group;
        let (ShardSet::Numbered(slots), Some(runner)) = (seen.shards, &self.runner) else {
            if !self.told.contains(group) {
                self.told.push(group.clone());
                tracing::warn!(%group, "the group has named shards: serve it by a [[group]] table with `names`");
            }
            return;
        };
        let served = leasehold::Group::numbered(group.as_str(), slots).policy(seen.policy.clone());
        let served = match self.capacity {
            Some(capacity) => served.capacity(capacity),
            None => served,
        };
        let runner = runner.clone();
        match node.serve_stored(served, move |grant| runner.clone().work(grant)) {
            Ok(()) => {
                tracing::info!(%group, shards = slots, "serving a group from the store");
                self.served.insert(group.clone(), seen.shards);
            }
            Err(error) => tracing::warn!(%group, %error, "cannot serve the group"),
        }
    }
}

/// Whether a name matches a pattern, in which `*` stands for anything.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((before, after)) = pattern.split_once('*') else { return pattern == name };
    let Some(rest) = name.strip_prefix(before) else { return false };
    let mut ends = rest.char_indices().map(|(at, _)| at).chain([rest.len()]);
    ends.any(|at| matches(after, &rest[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_anything() {
        for (pattern, name, expected) in [
            ("orders", "orders", true),
            ("orders", "orders-eu", false),
            ("*", "x", true),
            ("*", "", true),
            ("orders-*", "orders-eu", true),
            ("orders-*", "orders-", true),
            ("orders-*", "orders", false),
            ("*-eu", "orders-eu", true),
            ("*-eu", "orders-eu-1", false),
            ("a*b*c", "aXbXbc", true),
            ("a*b*c", "aXc", false),
            ("*ü*", "grün", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }
}
