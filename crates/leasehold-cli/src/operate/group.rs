//! Settings of groups, kept in the store for all nodes.

use std::time::Duration;

use leasehold::Client;
use leasehold::clock::Clock;
use leasehold_cli_common::failure::{Code, Failure};
use leasehold_cli_common::plural::count;
use leasehold_cli_common::sanitize::sanitize;
use leasehold_cli_common::settings::{failure_policy, nearest, span};
use leasehold_core::event::shard_of;
use leasehold_core::explain::WhatIf;
use leasehold_core::record::{FinishPolicy, Policy, ShardSet, ZoneRule, group_settings};
use leasehold_core::store::Key;
use leasehold_core::view::{GroupView, ProblemKind, SettingsSource};
use leasehold_core::{GroupConfig, GroupName, View};
use serde_json::{Value, json};

use super::wait::{Goal, wait};
use super::{dry_run, until_shown};
use crate::args::{GroupChange, GroupSet};
use crate::inspect::missing_group;
use crate::reply::{Reply, json_of};

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
pub(crate) fn show(view: &View, name: &str) -> Result<Reply, Failure> {
    let group = find(view, name)?;
    Ok(Reply::new(text(group), json_of(group)))
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

/// Creates a group, for all nodes.
pub(crate) async fn create(client: &Client, what: &GroupChange) -> Result<Reply, Failure> {
    let (group, edits) = understand(what)?;
    if client.view().groups.iter().any(|seen| seen.group == group) {
        return Err(Failure::new(
            Code::Failed,
            format!(
                "the group {group} exists already; nothing was changed\n  to change it: leasehold group set {group} …"
            ),
        ));
    }
    if !what.changes.iter().any(|change| change.starts_with("shards=")) {
        return Err(unchanged(&["shards is missing: add shards=NUMBER, or shards=named".to_owned()]));
    }
    if what.asking.dry_run {
        return try_out(client, "creating", &group, &edits);
    }
    write(client, &group, &edits).await?;
    shown(client, "group create", &group)
}

/// Changes settings of a group, for all nodes. All mistakes are told at once.
pub(crate) async fn set(client: &Client, what: &GroupSet) -> Result<Reply, Failure> {
    let (group, edits) = understand(&what.change)?;
    let view = client.view();
    let Ok(known) = find(&view, group.as_str()) else {
        // Its record may be damaged: the store's answer says so.
        if is_damaged(&view, &group) {
            write(client, &group, &edits).await?;
            return shown(client, "group set", &group);
        }
        let Failure { code, message, .. } = missing_group(&view, group.as_str());
        let message = format!("{message}\n  to create it: leasehold group create {group} …");
        return Err(Failure::new(code, message));
    };
    let (shards, _) = edited(known.shards, &known.policy, &edits);
    let moved = keys_moved(&group, known.shards, shards);
    if what.change.asking.dry_run {
        let mut reply = try_out(client, "changing", &group, &edits)?;
        if moved > 0 {
            reply.append(&format!("{moved} of {SAMPLE} sample keys would move to other shards"));
        }
        return Ok(reply);
    }
    if moved > 0 && !what.yes {
        return Err(Failure::new(
            Code::Usage,
            format!(
                "{moved} of {SAMPLE} sample keys would move to other shards; nothing was changed\n  work and callers that \
                 find their shard by a key are affected: add --yes if that is wanted"
            ),
        ));
    }
    write(client, &group, &edits).await?;
    if let Some(timeout) = what.wait.asked() {
        wait(client, &Goal::InPlace(group.clone()), timeout).await?;
    }
    shown(client, "group set", &group)
}

fn is_damaged(view: &View, group: &GroupName) -> bool {
    let key = Key::Group(group.clone()).to_string();
    view.problems.iter().any(|it| it.kind == ProblemKind::CorruptRecord && it.subject == key)
}

/// How many keys are tried.
const SAMPLE: u32 = 1000;

/// How many of the sample keys belong to another shard after a change.
fn keys_moved(group: &GroupName, before: ShardSet, after: ShardSet) -> usize {
    match (before, after) {
        (before, after) if before == after => 0,
        (ShardSet::Numbered(0), _) => 0,
        (ShardSet::Numbered(before), ShardSet::Numbered(after)) if after > 0 => (0..SAMPLE)
            .map(|number| format!("key-{number}"))
            .filter(|key| shard_of(group, before, key.as_bytes()) != shard_of(group, after, key.as_bytes()))
            .count(),
        _ => SAMPLE as usize,
    }
}

fn understand(what: &GroupChange) -> Result<(GroupName, Vec<Edit>), Failure> {
    let group = GroupName::new(&what.name).map_err(|error| Failure::new(Code::Usage, error.to_string()))?;
    let (mut edits, mut wrong) = (Vec::new(), Vec::new());
    for change in &what.changes {
        match parse(change) {
            Ok(edit) => edits.push(edit),
            Err(problem) => wrong.push(problem),
        }
    }
    if wrong.is_empty() { Ok((group, edits)) } else { Err(unchanged(&wrong)) }
}

fn edited(mut shards: ShardSet, policy: &Policy, edits: &[Edit]) -> (ShardSet, Policy) {
    let mut policy = policy.clone();
    edits.iter().for_each(|edit| edit(&mut shards, &mut policy));
    (shards, policy)
}

/// What a change would move. It is checked as a real one is.
fn try_out(client: &Client, doing: &str, group: &GroupName, edits: &[Edit]) -> Result<Reply, Failure> {
    let view = client.view();
    let known = view.groups.iter().find(|seen| seen.group == *group);
    let before = known.map_or((ShardSet::Named, Policy::default()), |it| (it.shards, it.policy.clone()));
    let (shards, policy) = edited(before.0, &before.1, edits);
    let config = GroupConfig { group: group.clone(), shards, policy: policy.clone(), capacity: None };
    config.check().map_err(|wrong| refused(wrong.into()))?;
    let was = group_settings(before.0, &before.1);
    let settings = group_settings(shards, &policy).into_iter().zip(was);
    let changes: Vec<String> = settings
        .filter(|((_, after), (_, before))| known.is_none() || after != before)
        .map(|((key, after), (_, before))| match known {
            Some(_) => format!("  {key:<14} {} (now {})", sanitize(&after), sanitize(&before)),
            None => format!("  {key:<14} {}", sanitize(&after)),
        })
        .collect();
    let told = if changes.is_empty() { "  nothing".to_owned() } else { changes.join("\n") };
    let facts = json!({ "group": group, "shards": shards, "policy": policy });
    let change = WhatIf::Group { group: group.clone(), shards, policy: Box::new(policy) };
    dry_run::of_change(client, &format!("{doing} the group {group}\n{told}"), facts, &change)
}

async fn write(client: &Client, group: &GroupName, edits: &[Edit]) -> Result<(), Failure> {
    client
        .edit_group(group, |record| {
            edits.iter().for_each(|edit| edit(&mut record.shards, &mut record.policy))
        })
        .await
        .map_err(refused)?;
    until_shown(client, |view| {
        view.groups.iter().any(|seen| {
            let after = edited(seen.shards, &seen.policy, edits);
            seen.group == *group && after == (seen.shards, seen.policy.clone())
        })
    })
    .await;
    Ok(())
}

fn refused(error: leasehold::Error) -> Failure {
    match error {
        leasehold::Error::Config(wrong) => {
            unchanged(&wrong.iter().map(ToString::to_string).collect::<Vec<_>>())
        }
        other => other.into(),
    }
}

/// The group as it is now.
fn shown(client: &Client, command: &str, group: &GroupName) -> Result<Reply, Failure> {
    let view = client.view();
    let Ok(seen) = find(&view, group.as_str()) else {
        return Ok(Reply::done(command, json!({ "group": group }), format!("changed the group {group}")));
    };
    Ok(Reply::new(text(seen), json_of(seen)))
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
pub(crate) async fn delete(client: &Client, name: &str, stop: bool, dry: bool) -> Result<Reply, Failure> {
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
    let text = format!("deleted the group {name}; if it is created again, its epochs continue to rise");
    let facts = json!({ "group": name });
    if dry {
        let shown = match before {
            0 => "no node holds any of its shards".to_owned(),
            held => format!("nodes stop {} of it", count(held, "shard")),
        };
        return Ok(dry_run::reply(&text, facts, &shown, Value::Null));
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
    Ok(Reply::done("group delete", facts, text))
}
