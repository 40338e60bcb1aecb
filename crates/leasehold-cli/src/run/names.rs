//! The named shards that this node can run: a list in the settings, or a file that is read again when it changes.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use leasehold::Node;
use leasehold_core::name::ShardName;
use leasehold_core::{GroupName, ShardId};

/// How often a file of names is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Where the names come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Names {
    /// These, for good.
    Listed(BTreeSet<ShardName>),
    /// Those in a file, one a line; empty lines and lines that begin with `#` are skipped.
    File(PathBuf),
}

impl Names {
    /// Reads `a,b,c` or `@FILE`. All mistakes are told at once; those in a file too, if it is there.
    pub(super) fn parse(text: &str) -> Result<Self, Vec<String>> {
        match text.strip_prefix('@') {
            Some("") => Err(vec!["the file name after `@` is missing".to_owned()]),
            Some(path) => {
                let names = Names::File(path.into());
                names.read()?;
                Ok(names)
            }
            None => Ok(Names::Listed(names(text.split(','))?)),
        }
    }

    fn read(&self) -> Result<BTreeSet<ShardName>, Vec<String>> {
        match self {
            Names::Listed(names) => Ok(names.clone()),
            Names::File(path) => match std::fs::read_to_string(path) {
                Ok(text) => names(text.lines().filter(|line| !line.trim_start().starts_with('#'))),
                Err(error) => Err(vec![format!("cannot read {}: {error}", path.display())]),
            },
        }
    }
}

/// The names of one group, kept engaged.
#[derive(Debug)]
pub(super) struct Follower {
    group: GroupName,
    names: Names,
    engaged: BTreeSet<ShardName>,
    complaint: Vec<String>,
}

impl Follower {
    pub(super) fn new(group: GroupName, names: Names) -> Self {
        Follower { group, names, engaged: BTreeSet::new(), complaint: Vec::new() }
    }

    /// Engages what is named and was not before. A file that cannot be read, or that holds an invalid name, changes nothing.
    fn look(&mut self, node: &Node) {
        match self.names.read() {
            Ok(names) => {
                self.complaint.clear();
                change(node, &self.group, &self.engaged, &names);
                self.engaged = names;
            }
            Err(problems) if problems != self.complaint => {
                let (group, text) = (&self.group, problems.join("; "));
                tracing::warn!(%group, problems = text, "cannot reload the names; keeping the previous ones");
                self.complaint = problems;
            }
            Err(_) => {}
        }
    }
}

/// Keeps the names of all groups engaged, and follows changes of their files, for as long as it is polled.
pub(super) async fn follow(mut followers: Vec<Follower>, node: &Node) {
    followers.iter_mut().for_each(|follower| follower.look(node));
    followers.retain(|follower| matches!(follower.names, Names::File(_)));
    if followers.is_empty() {
        return std::future::pending().await;
    }
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        followers.iter_mut().for_each(|follower| follower.look(node));
    }
}

fn change(node: &Node, group: &GroupName, before: &BTreeSet<ShardName>, after: &BTreeSet<ShardName>) {
    let id = |name: &ShardName| ShardId::new(group.clone(), name.clone());
    let tell = |shard: ShardId, done: &str, result: Result<(), leasehold::Error>| match result {
        Ok(()) => tracing::info!(%shard, "{done}"),
        Err(error) => tracing::warn!(%shard, %error, "not {done}"),
    };
    for shard in after.difference(before).map(id) {
        let result = node.engage(&shard);
        tell(shard, "engaged", result);
    }
    for shard in before.difference(after).map(id) {
        let result = node.disengage(&shard);
        tell(shard, "disengaged", result);
    }
}

fn names<'a>(parts: impl Iterator<Item = &'a str>) -> Result<BTreeSet<ShardName>, Vec<String>> {
    let mut found = BTreeSet::new();
    let mut problems = Vec::new();
    for part in parts.map(str::trim).filter(|part| !part.is_empty()) {
        match ShardName::new(part) {
            Ok(name) => drop(found.insert(name)),
            Err(error) => problems.push(error.to_string()),
        }
    }
    if problems.is_empty() { Ok(found) } else { Err(problems) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_files_are_read_and_all_mistakes_told() {
        let Names::Listed(listed) = Names::parse("b, a,,b").unwrap() else { panic!("it is a list") };
        assert_eq!(listed.iter().map(ShardName::as_str).collect::<Vec<_>>(), ["a", "b"]);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "# tenants\nx\n\n y \n").unwrap();
        let read = Names::parse(&format!("@{}", file.path().display())).unwrap().read().unwrap();
        assert_eq!(read.iter().map(ShardName::as_str).collect::<Vec<_>>(), ["x", "y"]);
        assert_eq!(Names::parse("a\u{7},ok,b\u{7}").unwrap_err().len(), 2);
        assert!(Names::parse("@/nowhere/at/all").is_err());
        assert!(Names::parse("@").is_err());
    }
}
