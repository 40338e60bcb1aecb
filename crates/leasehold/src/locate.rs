//! Finds the owner of a key in a view.

use leasehold_core::event::{Located, shard_of};
use leasehold_core::name::natural_cmp;
use leasehold_core::record::ShardSet;
use leasehold_core::{ShardId, ShardName, View};

use crate::error::Error;

/// Which shard of a group a key belongs to, and which node holds it. In a named group the key is the shard's name.
pub(crate) fn in_view(view: &View, group: &str, key: &[u8]) -> Result<Located, Error> {
    let known = view.groups.iter().find(|known| known.group.as_str() == group);
    let known = match known {
        Some(known) => known,
        None if !view.ready => return Err(Error::NotReady),
        None => return Err(Error::UnknownGroup(group.to_owned())),
    };
    let shard = match known.shards {
        ShardSet::Numbered(0) => {
            return Err(Error::Invalid(format!("the group {group:?} has no shards: give it some")));
        }
        ShardSet::Numbered(slots) => shard_of(&known.group, slots, key),
        ShardSet::Named => {
            let name = std::str::from_utf8(key).ok().and_then(|key| ShardName::new(key).ok());
            let name =
                name.ok_or_else(|| Error::UnknownShard(format!("{group}/{}", String::from_utf8_lossy(key))))?;
            ShardId::new(known.group.clone(), name)
        }
    };
    Ok(shard_in_view(view, shard))
}

/// Which node holds a shard.
pub(crate) fn shard_in_view(view: &View, shard: ShardId) -> Located {
    let at = view.shards.binary_search_by(|seen| seen.id.0.natural_cmp(&shard));
    let Ok(at) = at else {
        return Located::nowhere(shard);
    };
    let seen = &view.shards[at];
    let holder = seen.holder.as_ref().and_then(|name| {
        let at = view.nodes.binary_search_by(|node| natural_cmp(node.name.as_str(), name.as_str())).ok()?;
        Some(&view.nodes[at])
    });
    let mut located = Located::nowhere(shard);
    located.node = seen.holder.clone();
    located.address = holder.and_then(|node| node.address.clone());
    located.epoch = seen.epoch;
    located
}
