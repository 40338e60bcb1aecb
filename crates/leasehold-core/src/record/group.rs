use serde::{Deserialize, Serialize};

use super::{ALGORITHM, Extra, Record, RecordError, check_floor, record};
use crate::name::{Epoch, GroupName, WriteId};

/// `groups/<group>`: which shards there are, and the rules for placing and moving them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupRecord {
    /// The format of this record.
    pub format: u32,
    /// The write that made it so.
    pub write: WriteId,
    /// The group.
    pub group: GroupName,
    /// Which shards there are.
    pub shards: ShardSet,
    /// How they are placed and moved.
    pub policy: Policy,
    /// Every new epoch in this group is above this.
    #[serde(default)]
    pub epoch_floor: Epoch,
    /// Slots below this have had a record: one that is missing was lost, and may be held by somebody.
    #[serde(default)]
    pub filled: u32,
    /// When it was written, for people.
    #[serde(default)]
    pub written_unix_ms: u64,
    /// What newer versions wrote.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Which shards a group has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ShardSet {
    /// The slots `0..n`.
    Numbered(u32),
    /// Shards with names, which come and go by being engaged and disengaged.
    Named,
}

/// How the shards of a group are placed and moved. Durations in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Policy {
    /// The placement algorithm's version.
    pub algorithm: u32,
    /// No node gets more than this many thousandths of its fair share (1100 = 1.10 ×), except that the fair share may
    /// always be rounded up to a whole shard.
    pub balance_permille: u32,
    /// How zones count.
    pub zones: ZoneRule,
    /// A shard that moved is not moved voluntarily again for this long.
    pub cooldown_ms: u64,
    /// A shard that started is not moved voluntarily for this long.
    pub min_run_ms: u64,
    /// The most voluntary moves that one node begins per `move_window_ms`; 0 is no limit.
    pub moves_max: u32,
    /// See `moves_max`.
    pub move_window_ms: u64,
    /// A node does not move shards of this group away voluntarily when it would keep fewer than this.
    pub kept_min: u32,
    /// For how long a node that leaves to restart keeps its shards reserved for itself; 0 switches it off.
    pub restart_grace_ms: u64,
    /// How long a voluntary stop may take before the shard counts as stuck.
    pub stop_timeout_ms: u64,
    /// What newer versions wrote.
    #[serde(flatten)]
    pub extra: Extra,
}

/// How zones count in placement.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ZoneRule {
    /// Not at all.
    #[default]
    Ignore,
    /// Each zone gets its share by the weight of its nodes, as far as capacity allows.
    Spread,
    /// Nodes of this zone first; the others only take what does not fit.
    Prefer(String),
}

/// The default of [`Policy::balance_permille`], chosen from the measured curve in `docs/balance.svg`.
pub const BALANCE_PERMILLE: u32 = 1100;

impl Default for Policy {
    fn default() -> Self {
        Policy {
            algorithm: super::ALGORITHM,
            balance_permille: BALANCE_PERMILLE,
            zones: ZoneRule::Ignore,
            cooldown_ms: 5_000,
            min_run_ms: 2_000,
            moves_max: 0,
            move_window_ms: 1_000,
            kept_min: 0,
            restart_grace_ms: 0,
            stop_timeout_ms: 30_000,
            extra: Extra::new(),
        }
    }
}

/// The most slots that a numbered group may have.
pub const SLOTS_MAX: u32 = 10_000_000;

impl Record for GroupRecord {
    record!();
    fn validate(&self) -> Result<(), RecordError> {
        match self.policy.algorithm {
            0 => return Err(RecordError::impossible("placement algorithms are numbered from 1, not 0")),
            1..=ALGORITHM => {}
            found => return Err(RecordError::UnknownAlgorithm { found }),
        }
        check_floor(self.epoch_floor)?;
        if let ShardSet::Numbered(slots) = self.shards
            && slots > SLOTS_MAX
        {
            return Err(RecordError::impossible(format!("{slots} slots are above {SLOTS_MAX}")));
        }
        let balance = self.policy.balance_permille;
        if balance < 1000 {
            return Err(RecordError::impossible(format!("balance_permille {balance} is below 1000")));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::FORMAT;

    fn group(algorithm: u32) -> GroupRecord {
        GroupRecord {
            format: FORMAT,
            write: WriteId::from_bits(1),
            group: GroupName::new("g").unwrap(),
            shards: ShardSet::Numbered(4),
            policy: Policy { algorithm, ..Policy::default() },
            epoch_floor: Epoch(0),
            filled: 0,
            written_unix_ms: 0,
            extra: Extra::new(),
        }
    }

    #[test]
    fn an_algorithm_of_a_newer_version_is_refused_and_not_written_over() {
        assert_eq!(GroupRecord::decode(&group(1).encode()), Ok(group(1)));
        let error = GroupRecord::decode(&group(2).encode()).unwrap_err();
        assert_eq!(error, RecordError::UnknownAlgorithm { found: 2 });
        assert!(error.is_too_new());
        let error = GroupRecord::decode(&group(0).encode()).unwrap_err();
        assert!(matches!(error, RecordError::Impossible(_)), "{error}");
    }
}
