//! Settings of groups, kept in the store for all nodes.

use std::time::Duration;

use leasehold::Client;
use leasehold::clock::Clock;
use leasehold_cli_common::failure::{Code, Failure};
use leasehold_cli_common::plural::count;
use leasehold_cli_common::sanitize::sanitize;
use leasehold_cli_common::settings::{failure_policy, nearest, span};
use leasehold_core::record::{FinishPolicy, Policy, ShardSet, ZoneRule, group_settings};
use leasehold_core::view::{GroupView, SettingsSource};
use leasehold_core::{GroupName, View};

use super::until_shown;
use crate::inspect::missing_group;

/// What `group set` can change.
const KEYS: &[&str] = &[
    "shards",
    "balance",
    "zones",
    "cooldown",
    "min_run",
    "moves_max",
    "move_window",
    "kept_min",
    "restart_grace",
    "stop_timeout",
    "on_failure",
    "on_finish",
];

/// One group in full.
pub(crate) fn show(view: &View, name: &str) -> Result<String, Failure> {
    Ok(text(find(view, name)?))
}

fn find<'a>(view: &'a View, name: &str) -> Result<&'a GroupView, Failure> {
    let found = view.groups.iter().find(|group| group.group.as_str() == name);
    found.ok_or_else(|| missing_group(view, name))
}

fn text(group: &GroupView) -> String {
    let mut text = format!("group {} (settings from the {})\n", group.group, group.source);
    for (key, value) in group_settings(group.shards, &group.policy) {
        text.push_str(&format!("  {key:<14} {}\n", sanitize(&value)));
    }
    text
}

/// Creates a group. Nodes that serve groups from the store run it from now on.
pub(crate) async fn create(client: &Client, name: &str, settings: &[String]) -> Result<String, Failure> {
    if find(&client.view(), name).is_ok() {
        let what = format!("the group {name} exists; nothing was changed");
        let advice = format!("change it with: leasehold group set {name} SETTING=VALUE");
        return Err(Failure::new(Code::Usage, format!("{what}\n  {advice}")));
    }
    if !settings.iter().any(|setting| setting.starts_with("shards=")) {
        return Err(unchanged(&["shards is missing: use shards=NUMBER or shards=named".to_owned()]));
    }
    Ok(format!("created the group {name}\n{}", set(client, name, settings).await?))
}

/// Changes settings of a group, for all nodes. All mistakes are told at once.
pub(crate) async fn set(client: &Client, name: &str, changes: &[String]) -> Result<String, Failure> {
    let group = GroupName::new(name).map_err(|error| Failure::new(Code::Usage, error.to_string()))?;
    let mut edits: Vec<Edit> = Vec::new();
    let mut wrong = Vec::new();
    for change in changes {
        match parse(change) {
            Ok(edit) => edits.push(edit),
            Err(problem) => wrong.push(problem),
        }
    }
    if !wrong.is_empty() {
        return Err(unchanged(&wrong));
    }
    client
        .edit_group(&group, |record| {
            edits.iter().for_each(|edit| edit(&mut record.shards, &mut record.policy))
        })
        .await
        .map_err(|error| match error {
            leasehold::Error::Config(wrong) => {
                unchanged(&wrong.iter().map(ToString::to_string).collect::<Vec<_>>())
            }
            other => other.into(),
        })?;
    until_shown(client, |view| {
        view.groups.iter().any(|seen| {
            let (mut shards, mut policy) = (seen.shards, seen.policy.clone());
            edits.iter().for_each(|edit| edit(&mut shards, &mut policy));
            seen.group == group && shards == seen.shards && policy == seen.policy
        })
    })
    .await;
    Ok(find(&client.view(), name).map_or_else(|_| format!("changed group {name}\n"), text))
}

/// Says what is wrong with the changes.
fn unchanged(wrong: &[String]) -> Failure {
    Failure::new(
        Code::Usage,
        format!("invalid group settings; nothing was changed:\n  {}", wrong.join("\n  ")),
    )
}

type Edit = Box<dyn Fn(&mut ShardSet, &mut Policy)>;

fn parse(change: &str) -> Result<Edit, String> {
    let Some((key, value)) = change.split_once('=') else {
        return Err(format!("invalid change {change:?}: use the form setting=value"));
    };
    let number = || value.parse::<u32>().map_err(|_| format!("{key}: invalid whole number {value:?}"));
    let ms = || {
        let span = span::parse(value)
            .map_err(|what| format!("{key}: {what}; valid durations: 250ms, 10s, 2m, 1h"))?;
        Ok::<u64, String>(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
    };
    Ok(match key {
        "shards" if value == "named" => Box::new(|shards, _| *shards = ShardSet::Named),
        "shards" => {
            let slots = number()?;
            Box::new(move |shards, _| *shards = ShardSet::Numbered(slots))
        }
        "balance" => {
            let permille = span::scaled(value, 1000).and_then(|permille| u32::try_from(permille).ok());
            let permille = permille.filter(|permille| *permille >= 1000);
            let permille = permille.ok_or_else(|| {
                format!("balance: invalid factor {value:?}; use a number of at least 1, for example 1.10")
            })?;
            Box::new(move |_, policy| policy.balance_permille = permille)
        }
        "zones" => {
            let rule = match value {
                "ignore" => ZoneRule::Ignore,
                "spread" => ZoneRule::Spread,
                _ => match value.strip_prefix("prefer:").filter(|zone| !zone.is_empty()) {
                    Some(zone) => ZoneRule::Prefer(zone.to_owned()),
                    None => {
                        return Err(format!(
                            "zones: invalid rule {value:?}; use ignore, spread or prefer:ZONE"
                        ));
                    }
                },
            };
            Box::new(move |_, policy| policy.zones = rule.clone())
        }
        "moves_max" => number().map(|n| -> Edit { Box::new(move |_, policy| policy.moves_max = n) })?,
        "kept_min" => number().map(|n| -> Edit { Box::new(move |_, policy| policy.kept_min = n) })?,
        "cooldown" => ms().map(|n| -> Edit { Box::new(move |_, policy| policy.cooldown_ms = n) })?,
        "min_run" => ms().map(|n| -> Edit { Box::new(move |_, policy| policy.min_run_ms = n) })?,
        "move_window" => ms().map(|n| -> Edit { Box::new(move |_, policy| policy.move_window_ms = n) })?,
        "restart_grace" => {
            ms().map(|n| -> Edit { Box::new(move |_, policy| policy.restart_grace_ms = n) })?
        }
        "stop_timeout" => ms().map(|n| -> Edit { Box::new(move |_, policy| policy.stop_timeout_ms = n) })?,
        "on_failure" => {
            let rule = failure_policy(value).map_err(|what| format!("on_failure: {what}"))?;
            Box::new(move |_, policy| policy.on_failure = rule)
        }
        "on_finish" => {
            let rule: FinishPolicy = value.parse().map_err(|what| format!("on_finish: {what}"))?;
            Box::new(move |_, policy| policy.on_finish = rule)
        }
        _ => {
            let advice = match nearest(key, KEYS.iter().copied()) {
                Some(known) => format!("did you mean {known}?"),
                None => format!("use one of: {}", KEYS.join(", ")),
            };
            return Err(format!("unknown group setting {key:?}; {advice}"));
        }
    })
}

/// How long nodes may take to stop the shards of a group that was deleted, before that is told.
const STOPPED_WITHIN: Duration = Duration::from_secs(30);

/// Removes the settings of a group from the store. With `stop` also if nodes run it.
pub(crate) async fn delete(client: &Client, name: &str, stop: bool) -> Result<String, Failure> {
    let group = find(&client.view(), name)?.group.clone();
    let failed = |what: String| Err(Failure::new(Code::Failed, what));
    let held = |view: &View| {
        view.shards.iter().filter(|shard| shard.id.0.group == group && shard.holder.is_some()).count()
    };
    let before = held(&client.view());
    if before > 0 && !stop {
        return failed(format!(
            "the group {name} was not deleted: nodes still hold {} of it\n  stop the nodes that serve the group first; if \
             they serve it from the store (run --serve), use --stop",
            count(before, "shard")
        ));
    }
    client.delete_group(name).await?;
    if before > 0 {
        let clock = Clock::boot();
        let stopped = client.until(|view| held(view) == 0);
        let _ = clock.timeout_at(clock.now() + STOPPED_WITHIN, stopped).await;
        let view = client.view();
        if view.groups.iter().any(|seen| seen.group == group && seen.source == SettingsSource::Store) {
            return failed(format!(
                "the group {name} was deleted, but a node that serves it by its own settings wrote it again\n  stop that node \
                 first"
            ));
        }
        let left = held(&view);
        if left > 0 {
            return failed(format!(
                "the group {name} was deleted, but nodes still hold {} of it",
                count(left, "shard")
            ));
        }
    }
    Ok(format!("deleted the group {name}; if it is created again, its epochs continue to rise"))
}
