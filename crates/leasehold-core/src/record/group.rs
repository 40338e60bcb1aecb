use serde::{Deserialize, Serialize};

use super::{ALGORITHM, Extra, FailurePolicy, FinishPolicy, Record, RecordError, Slots, check_floor, record};
use crate::name::{Epoch, GroupName, WriteId};

/// `groups/<group>`: which shards there are, and the rules for placing and moving them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupRecord {
    /// The format of this record.
    pub format: u32,
    /// The id of the write that produced this state.
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
    /// These slots have had a record: one that is missing was lost, and the shard may be held.
    #[serde(default)]
    pub filled: Slots,
    /// When it was written, for people.
    #[serde(default)]
    pub written_unix_ms: u64,
    /// Fields of newer versions.
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

impl ShardSet {
    /// The word for its kind. Work for shards of one kind cannot run those of the other.
    pub fn kind(self) -> &'static str {
        match self {
            ShardSet::Numbered(_) => "numbered",
            ShardSet::Named => "named",
        }
    }
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
    /// The most voluntary moves that one node begins per `move_window_ms`; 0 means no limit.
    pub moves_max: u32,
    /// See `moves_max`.
    pub move_window_ms: u64,
    /// A node does not move shards of this group away voluntarily when it would keep fewer than this.
    pub kept_min: u32,
    /// How long shards stay reserved for a node that left to restart; 0 turns this off.
    pub restart_grace_ms: u64,
    /// How long a voluntary stop may take before the shard counts as stuck.
    pub stop_timeout_ms: u64,
    /// What happens to a shard whose work keeps failing.
    pub on_failure: FailurePolicy,
    /// What happens to a shard whose work finishes.
    pub on_finish: FinishPolicy,
    /// Fields of newer versions.
    #[serde(flatten)]
    pub extra: Extra,
}

/// The settings of a group that operators can change, by their names in `leasehold group set` and as they are written there.
pub fn group_settings(shards: ShardSet, policy: &Policy) -> [(&'static str, String); 12] {
    let shards = match shards {
        ShardSet::Numbered(slots) => slots.to_string(),
        ShardSet::Named => "named".to_owned(),
    };
    let (whole, thousandths) = (policy.balance_permille / 1000, policy.balance_permille % 1000);
    let balance = match thousandths % 10 {
        0 => format!("{whole}.{:02}", thousandths / 10),
        _ => format!("{whole}.{thousandths:03}"),
    };
    let zones = match &policy.zones {
        ZoneRule::Ignore => "ignore".to_owned(),
        ZoneRule::Spread => "spread".to_owned(),
        ZoneRule::Prefer(zone) => format!("prefer:{zone}"),
    };
    [
        ("shards", shards),
        ("balance", balance),
        ("zones", zones),
        ("cooldown", span(policy.cooldown_ms)),
        ("min_run", span(policy.min_run_ms)),
        ("moves_max", policy.moves_max.to_string()),
        ("move_window", span(policy.move_window_ms)),
        ("kept_min", policy.kept_min.to_string()),
        ("restart_grace", span(policy.restart_grace_ms)),
        ("stop_timeout", span(policy.stop_timeout_ms)),
        ("on_failure", policy.on_failure.to_string()),
        ("on_finish", policy.on_finish.to_string()),
    ]
}

/// Exact, in the form that the program parses: `250ms`, `1.5s`, `2m`, `1h`.
pub(super) fn span(ms: u64) -> String {
    match ms {
        0 => "0s".to_owned(),
        1..1000 => format!("{ms}ms"),
        _ if ms.is_multiple_of(3_600_000) => format!("{}h", ms / 3_600_000),
        _ if ms >= 120_000 && ms.is_multiple_of(60_000) => format!("{}m", ms / 60_000),
        _ => {
            let text = format!("{}.{:03}", ms / 1000, ms % 1000);
            format!("{}s", text.trim_end_matches('0').trim_end_matches('.'))
        }
    }
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
            on_failure: FailurePolicy::default(),
            on_finish: FinishPolicy::default(),
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
            0 => return Err(RecordError::impossible("placement algorithm 0 does not exist; the first is 1")),
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
            filled: Slots::default(),
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
