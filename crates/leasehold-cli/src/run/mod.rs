//! `leasehold run`: supervises a child for every shard that this node holds, or one child for all of them.

mod each;
mod groups;
mod hooks;
mod leash;
#[cfg_attr(not(feature = "http"), path = "no_listen.rs")]
mod listen;
mod names;
pub(crate) mod one;
mod output;
mod refusals;
mod reports;
mod shadow;
mod stored;
mod template;

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use leasehold::clock::Clock;
use leasehold::{Finish, Node};
use leasehold_cli_common::failure::{Code, Failure};
use leasehold_cli_common::settings::{GroupOfNode, Problem, Problems, Settings};
use leasehold_cli_common::signals::Signals;
use leasehold_cli_common::stores;
use leasehold_core::event::Returning;
use leasehold_core::view::Me;
use leasehold_core::{Config, Notice};
use tokio::sync::{mpsc, watch};

use crate::guard::{self, Isolation};

pub(crate) use groups::lacks;

use groups::Runners;
use hooks::Hooks;
use leash::LeashRule;
use listen::Serving;
use output::Printer;
use reports::Reports;
use shadow::Shadow;
use stored::Stored;
use template::Template;

/// How long the store is told that a hurried node leaves.
const HURRY_WITHIN: Duration = Duration::from_secs(5);

/// One child a shard, or one for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// A child for every shard.
    Each,
    /// One child, told what it owns.
    One,
}

/// How hurried we are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Haste {
    /// Children may take their time to end.
    None,
    /// Children are killed at once.
    Hurry,
}

/// What all children of this supervisor share.
struct Supervisor {
    namespace: String,
    node: String,
    rule: LeashRule,
    isolation: Isolation,
    printer: Printer,
    haste: watch::Receiver<Haste>,
    /// What children say of themselves.
    reports: Reports,
}

/// What runs for the shards of one group.
struct GroupWork {
    supervisor: Arc<Supervisor>,
    template: Template,
    kill_after: Duration,
}

/// Runs a node until it is told to leave.
pub(crate) async fn run(settings: &Settings, mode: Mode, command: Vec<OsString>) -> Result<(), Failure> {
    let shadow = (settings.text("shadow") == Some("true")).then(|| Arc::new(Shadow::default()));
    let settings = &match shadow {
        Some(_) => settings.in_namespace(&format!("{}{}", settings.namespace(), shadow::SUFFIX)),
        None => settings.clone(),
    };
    if settings.text("store").is_some_and(|url| url.starts_with("memory:")) {
        tracing::warn!("a memory: store exists only in this process: no other node can join");
    }
    guard::adopt_orphans()?;
    let isolation = isolation(settings).await?;
    raise_descriptor_limit();
    let serving = Serving::start(settings).await?;
    let mut signals = Signals::listen()?;
    let store = tokio::select! {
        store = stores::open_patiently(settings) => store?,
        () = signals.next() => return Ok(()),
    };
    let mut config = settings.node_config(&store.facts())?;
    config.zone = tokio::select! {
        zone = stores::zone(settings) => zone?,
        () = signals.next() => return Ok(()),
    };
    let (hurry, haste) = watch::channel(Haste::None);
    let (reports, heard) = mpsc::unbounded_channel();
    let supervisor = Arc::new(Supervisor {
        namespace: settings.namespace().to_owned(),
        node: config.node.to_string(),
        rule: LeashRule::of(&config),
        isolation,
        printer: Printer::start(settings.text("output") == Some("raw"))?,
        haste,
        reports,
    });
    let groups = settings.groups();
    let followers = groups::followers(&groups);
    let hooks = Hooks::of(settings, &groups, config.node.as_str());
    let own = config.groups.iter().map(|group| group.group.clone()).collect();
    let (labels, every, rest) = (config.labels.clone(), hooks.every, config.restart.longest());
    let mut runners = Runners::new(supervisor.clone(), settings, mode, command, shadow);
    let shown = config.clone();
    let node = start(store.clone(), config, &groups, &mut runners, hooks).await?;
    serving.show(&node, &shown);
    let runner = if settings.serve().is_empty() { None } else { Some(runners.for_group(None)?) };
    let stored = Stored::new(settings, own, runner);
    if runners.shadow.is_some() {
        let namespace = settings.namespace();
        tracing::info!(namespace, "shadow mode: this node starts no command and uses a namespace of its own");
    }
    let ending = tokio::select! {
        ending = supervise(&node, &mut signals) => ending,
        () = names::follow(followers, &node) => unreachable!("it never ends"),
        () = reports::pass_on(&node, heard, labels, every, rest) => unreachable!("it never ends"),
        () = stored.follow(&node) => unreachable!("it never ends"),
        () = refusals::explain(&node, &store) => unreachable!("it never ends"),
        () = runners.tell() => unreachable!("it never ends"),
    };
    let drain_within = settings.span("drain_within").unwrap_or(Duration::from_secs(30));
    match ending {
        Ending::NameTaken(message) => Err(Failure::new(Code::NameTaken, message)),
        Ending::Requested => {
            tracing::info!(
                "draining: stopping children and handing over shards; a second signal kills the children"
            );
            let returning = returning(node.view().me.as_ref());
            let leaving = node.leave_within(drain_within, returning);
            let finish = hurried(leaving, &mut signals, &hurry).await;
            flush(&supervisor.printer, &mut signals).await;
            if let Some(shadow) = &runners.shadow {
                shadow.tell_now();
            }
            serving.end().await;
            match finish {
                Finish::Clean => Ok(()),
                Finish::Unconfirmed => Err(Failure::new(
                    Code::Unconfirmed,
                    "the node left, but the store did not confirm it: other nodes take over when the session expires",
                )),
            }
        }
    }
}

async fn start(
    store: Arc<dyn leasehold_store::Store>,
    config: Config,
    groups: &[GroupOfNode],
    runners: &mut Runners,
    hooks: Hooks,
) -> Result<Node, Failure> {
    let (served, weight) = (config.groups.clone(), config.weight);
    let builder = Node::builder(store).name(config.node.as_str());
    let mut builder = builder.configure(move |inner| *inner = config);
    for group in served {
        let of = groups.iter().find(|of| of.settings.text("group") == Some(group.group.as_str()));
        let runner = runners.for_group(of)?;
        builder = builder.group(groups::served(&group), move |grant| runner.clone().work(grant));
    }
    Ok(hooks.set(builder, weight).start().await?)
}

/// Whether this name comes back soon. Nobody says so with a signal, so it may: what that means is for the group to say,
/// whose restart grace is in the store and off by default. A node that was asked to hand everything over keeps nothing for
/// itself.
fn returning(me: Option<&Me>) -> Returning {
    match me.is_some_and(|me| me.draining) {
        true => Returning::No,
        false => Returning::Soon,
    }
}

/// Whether children get a namespace of their own, as far as this machine lets us.
async fn isolation(settings: &Settings) -> Result<Isolation, Failure> {
    let wanted = settings.text("isolate").unwrap_or("off");
    if wanted == "off" {
        return Ok(Isolation::Off);
    }
    match (Isolation::Pid.try_out().await, wanted) {
        (Ok(()), _) => Ok(Isolation::Pid),
        (Err(why), "auto") => {
            tracing::warn!(
                why,
                "children run without a PID namespace: processes that they start in a new session can outlive the lease if \
                 this process and its guards are killed at the same time"
            );
            Ok(Isolation::Off)
        }
        (Err(why), _) => Err(Problems(vec![Problem::new(
            settings.place_of("isolate"),
            format!("cannot create PID namespaces for children: {why}"),
            "run as root, allow user namespaces, or use --isolate auto or off (docs/run.md)",
        )])
        .into()),
    }
}

enum Ending {
    Requested,
    NameTaken(String),
}

/// Waits for a signal, or for word that this node cannot take part.
async fn supervise(node: &Node, signals: &mut Signals) -> Ending {
    let mut events = node.events();
    loop {
        tokio::select! {
            () = signals.next() => return Ending::Requested,
            told = events.next() => match told.as_deref().map(|told| &told.notice) {
                Some(Notice::NameTaken { node, session }) => return Ending::NameTaken(format!(
                    "another live process uses the node name {node} (session {session}); this process owned nothing and exits\n  \
                     give each process its own name with --node, or stop the other process"
                )),
                Some(_) => {}
                None => return Ending::Requested,
            },
        }
    }
}

/// Waits until what children printed is written, though not for long; a signal ends it.
async fn flush(printer: &Printer, signals: &mut Signals) {
    tokio::select! {
        () = printer.flush() => {}
        () = signals.next() => tracing::warn!("second signal: discarding the last output of the children"),
    }
}

/// Waits for the end. A further signal kills the children at once, and from then on the store gets little time to be
/// told; one more ends it.
async fn hurried(
    leaving: impl Future<Output = Finish>,
    signals: &mut Signals,
    hurry: &watch::Sender<Haste>,
) -> Finish {
    let mut leaving = std::pin::pin!(leaving);
    tokio::select! {
        finish = &mut leaving => return finish,
        () = signals.next() => {}
    }
    tracing::warn!("second signal: killing the children");
    hurry.send_replace(Haste::Hurry);
    let clock = Clock::boot();
    tokio::select! {
        finish = &mut leaving => finish,
        () = clock.sleep(HURRY_WITHIN) => Finish::Unconfirmed,
        () = signals.next() => Finish::Unconfirmed,
    }
}

/// Every child needs a few descriptors; the usual limit of 1,024 would end at some hundred shards.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_node_that_was_asked_to_hand_over_is_not_expected_back() {
        let me = |draining| {
            let mut me = Me::new(leasehold_core::NodeName::new("a").unwrap());
            me.draining = draining;
            me
        };
        assert_eq!(returning(Some(&me(false))), Returning::Soon);
        assert_eq!(returning(Some(&me(true))), Returning::No);
    }
}
