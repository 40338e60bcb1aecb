//! The bytes that are hashed, and how.

use xxhash_rust::xxh3::{Xxh3Default, xxh3_64};

use crate::name::{NodeName, ShardId};

/// The slot of a numbered group that a key belongs to: the 64 bits of its hash, scaled down to `0..slots`.
///
/// A group without slots has no place for a key; the answer is then 0, although the group has no such shard.
pub fn slot_of_key(key: &[u8], slots: u32) -> u32 {
    ((u128::from(xxh3_64(key)) * u128::from(slots)) >> 64) as u32
}

/// The hash of a node: of the bytes of its name.
pub fn node_hash(node: &NodeName) -> u64 {
    xxh3_64(node.as_str().as_bytes())
}

/// The hash of a shard: of the bytes of `group/name`.
pub fn shard_hash(shard: &ShardId) -> u64 {
    let (group, name) = (shard.group.as_str().as_bytes(), shard.name.as_str().as_bytes());
    let length = group.len() + 1 + name.len();
    let mut short = [0u8; 64];
    let Some(bytes) = short.get_mut(..length) else {
        let mut long = Xxh3Default::new();
        long.update(group);
        long.update(b"/");
        long.update(name);
        return long.digest();
    };
    bytes[..group.len()].copy_from_slice(group);
    bytes[group.len()] = b'/';
    bytes[group.len() + 1..].copy_from_slice(name);
    xxh3_64(bytes)
}

/// The hash of a pair of shard and node, from the hashes of both: the finaliser of MurmurHash3 over their exclusive
/// or. Both inputs are well mixed already; the finaliser makes the pairs independent of each other.
#[inline(always)]
pub const fn pair_hash(shard: u64, node: u64) -> u64 {
    let mut x = shard ^ node;
    x ^= x >> 33;
    x = x.wrapping_mul(0xff51_afd7_ed55_8ccd);
    x ^= x >> 33;
    x = x.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    x ^= x >> 33;
    x
}
