//! One child for one shard.

use std::sync::Arc;

use leasehold::{BoxError, Grant, Outcome, clock};

use super::{GroupWork, Haste, Supervisor};
use crate::guard::wire::{Exit, Report};
use crate::guard::{Guarded, Launch, Stdin};

/// Runs the command for one grant, until it ends or must. When this returns, or is dropped, nothing of it runs.
pub(super) async fn work(work: Arc<GroupWork>, grant: Grant) -> Outcome {
    let supervisor = &*work.supervisor;
    let Some(mut leash) = supervisor.rule.leash(&grant) else { return Ok(()) };
    let mut child = Guarded::start(Launch {
        command: work.template.fill(grant.shard(), grant.epoch()),
        env: environment(supervisor, &grant),
        leash,
        isolation: supervisor.isolation,
        stdin: Stdin::Null,
        stdout: supervisor.printer.stdio(),
        stderr: supervisor.printer.stdio(),
    })
    .map_err(|error| format!("cannot start the guard process: {error}"))?;
    supervisor.printer.follow(child.take_output(), &format!("{} | ", grant.shard()));

    let mut haste = supervisor.haste.clone();
    let mut end = End::default();
    loop {
        tokio::select! {
            report = child.next() => match report {
                Some(Report::Gone) => break,
                Some(report) => end.hear(&grant, report),
                None => {
                    end.failed = Some("the guard process was killed, and the child with it".to_owned());
                    break;
                }
            },
            () = grant.stopping().cancelled(), if !end.stopping => {
                end.stopping = true;
                child.terminate(clock::now() + work.kill_after);
            }
            _ = grant.lost(), if !end.lost => {
                end.lost = true;
                child.kill_at(supervisor.rule.last_call(leash));
            }
            Ok(_) = haste.wait_for(|haste| *haste == Haste::Hurry), if !end.hurried => {
                end.hurried = true;
                child.kill();
            }
            () = tokio::time::sleep(supervisor.rule.look_every) => {
                if let Some(later) = supervisor.rule.leash(&grant).filter(|later| later.kill_at > leash.kill_at) {
                    leash = later;
                    child.extend(leash);
                }
            }
        }
    }
    // This waits for the guard's own end, an instant away, and kills what a killed guard could not.
    drop(child);
    end.outcome()
}

/// What is known of the end of a child.
#[derive(Default)]
struct End {
    stopping: bool,
    lost: bool,
    hurried: bool,
    exit: Option<Exit>,
    failed: Option<String>,
}

impl End {
    fn hear(&mut self, grant: &Grant, report: Report) {
        let (shard, epoch) = (grant.shard(), grant.epoch());
        match report {
            Report::Started(pid) => tracing::debug!(%shard, %epoch, pid, "child started"),
            Report::Exited(exit) => {
                tracing::debug!(%shard, %epoch, %exit, "child exited");
                self.exit = Some(exit);
            }
            Report::Killing(why) => tracing::warn!(%shard, %epoch, why, "killing child"),
            Report::Failed(why) => self.failed = Some(why),
            Report::Gone => {}
        }
    }

    fn outcome(self) -> Outcome {
        match (self.failed, self.exit) {
            _ if self.stopping => Ok(()),
            (Some(why), _) => Err(BoxError::from(why)),
            (None, Some(Exit::Code(0))) => Ok(()),
            (None, Some(exit)) => Err(format!("the command {exit}").into()),
            (None, None) => Err("the guard process exited unexpectedly".into()),
        }
    }
}

fn environment(supervisor: &Supervisor, grant: &Grant) -> Vec<(&'static str, String)> {
    vec![
        ("LEASEHOLD_NAMESPACE", supervisor.namespace.clone()),
        ("LEASEHOLD_GROUP", grant.group().to_string()),
        ("LEASEHOLD_SHARD", grant.shard().name.to_string()),
        ("LEASEHOLD_EPOCH", grant.epoch().to_string()),
        ("LEASEHOLD_NODE", supervisor.node.clone()),
    ]
}
