//! What a request would change, without making it.

use leasehold::Client;
use leasehold_cli_common::failure::Failure;
use leasehold_cli_common::plural::count;
use leasehold_core::View;
use leasehold_core::explain::WhatIf;
use leasehold_core::record::Control;
use leasehold_core::view::ShardView;
use serde_json::{Value, json};

use crate::inspect;
use crate::reply::{Reply, json_of};

/// What would move by the plan.
pub(super) fn of_change(
    client: &Client,
    text: &str,
    facts: Value,
    change: &WhatIf,
) -> Result<Reply, Failure> {
    let difference = client.what_if(change)?;
    let told = match difference.moves.is_empty() {
        true => "no shard would move by the plan\n".to_owned(),
        false => inspect::what_if(&difference),
    };
    Ok(reply(text, facts, &told, json_of(&difference)))
}

/// The same of what operators ask for.
pub(super) fn of_control(
    client: &Client,
    text: &str,
    facts: Value,
    change: impl FnOnce(&mut Control),
) -> Result<Reply, Failure> {
    let (mut asked, view) = (client.asked(), client.view());
    let was_frozen = frozen(&view, &asked);
    change(&mut asked);
    let frozen = frozen(&view, &asked);
    let mut reply = of_change(client, text, facts, &WhatIf::Control(Box::new(asked)))?;
    if frozen != was_frozen {
        let many = count(frozen.abs_diff(was_frozen), "shard");
        let then = if frozen > was_frozen { "stay there" } else { "move" };
        reply.append(&format!("{many} held elsewhere than planned would {then}"));
    }
    Ok(reply)
}

/// How many shards are held elsewhere than planned and frozen there.
fn frozen(view: &View, control: &Control) -> usize {
    let waits = |shard: &&ShardView| {
        shard.holder.is_some()
            && shard.wanted.is_some()
            && shard.holder != shard.wanted
            && control.frozen(&shard.id.0.group).is_some()
    };
    view.shards.iter().filter(waits).count()
}

/// What would happen.
pub(super) fn reply(text: &str, facts: Value, told: &str, difference: Value) -> Reply {
    // How to undo it is said once there is something to undo.
    let text: Vec<&str> = text.lines().filter(|line| !line.starts_with("to undo: ")).collect();
    let text = text.join("\n");
    let mut json = json!({ "dry_run": true, "message": text, "plan": difference });
    if let (Value::Object(all), Value::Object(facts)) = (&mut json, facts) {
        all.extend(facts);
    }
    Reply::new(format!("dry run, nothing was changed; this would be done:\n{text}\n\n{told}"), json)
}
