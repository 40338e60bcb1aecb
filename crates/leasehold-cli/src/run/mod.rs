//! `leasehold run`: supervises a child for every shard that this node holds, or one child for all of them.

mod each;
mod leash;
pub(crate) mod one;
mod output;
mod template;

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use leasehold::{Finish, Node};
use leasehold_core::event::Returning;
use leasehold_core::{Config, Notice};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::failure::{Code, Failure};
use crate::guard;
use crate::settings::{Problem, Problems, Settings};
use crate::stores;

use leash::LeashRule;
use output::Printer;
use template::Template;

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
    template: Template,
    rule: LeashRule,
    kill_after: Duration,
    printer: Printer,
    haste: watch::Receiver<Haste>,
}

/// Runs a node until it is told to leave.
pub(crate) async fn run(settings: &Settings, mode: Mode, command: Vec<OsString>) -> Result<(), Failure> {
    require(settings)?;
    let template = Template::new(command)?;
    guard::adopt_orphans()?;
    raise_descriptor_limit();
    let signals = Signals::listen()?;
    let mut signals = signals;
    let store = tokio::select! {
        store = stores::open_patiently(settings) => store?,
        () = signals.next() => return Ok(()),
    };
    let config = settings.node_config(&store.facts())?;
    let (hurry, haste) = watch::channel(Haste::None);
    let supervisor = Arc::new(Supervisor {
        namespace: settings.namespace().to_owned(),
        node: config.node.to_string(),
        template,
        rule: LeashRule::of(&config),
        kill_after: settings.span("kill_after").unwrap_or(Duration::from_secs(10)),
        printer: Printer::start(settings.text("output") == Some("raw"))?,
        haste,
    });
    let node = start(store, config, mode, supervisor.clone()).await?;
    let ending = supervise(&node, &mut signals).await;
    let drain_within = settings.span("drain_within").unwrap_or(Duration::from_secs(30));
    let returning = if settings.span("restart_grace").is_some_and(|grace| !grace.is_zero()) {
        Returning::Soon
    } else {
        Returning::No
    };
    match ending {
        Ending::NameTaken(message) => Err(Failure::new(Code::NameTaken, message)),
        Ending::Asked => {
            tracing::info!("draining: children stop and shards are handed over; a second signal hurries");
            let leaving = node.leave_within(drain_within, returning);
            let finish = hurried(leaving, &mut signals, &hurry).await;
            supervisor.printer.flush().await;
            match finish {
                Finish::Clean => Ok(()),
                Finish::Unconfirmed => Err(Failure::new(
                    Code::Unconfirmed,
                    "the node left, but the store could not be told: others take over when its session has run out",
                )),
            }
        }
    }
}

async fn start(
    store: Arc<dyn leasehold_store::Store>,
    config: Config,
    mode: Mode,
    supervisor: Arc<Supervisor>,
) -> Result<Node, Failure> {
    let group = config.groups.first().expect("it was required").clone();
    let leasehold_core::record::ShardSet::Numbered(slots) = group.shards else {
        unreachable!("run has slots only")
    };
    let mut served = leasehold::Group::numbered(group.group.as_str(), slots).policy(group.policy.clone());
    if let Some(capacity) = group.capacity {
        served = served.capacity(capacity);
    }
    let builder = Node::builder(store).name(config.node.as_str());
    let builder = builder.configure(move |inner| *inner = config);
    let builder = match mode {
        Mode::Each => builder.group(served, move |grant| each::work(supervisor.clone(), grant)),
        Mode::One => {
            let child = one::OneChild::start(supervisor)?;
            builder.group(served, move |grant| one::work(child.clone(), grant))
        }
    };
    Ok(builder.start().await?)
}

/// `run` needs a group and its size.
fn require(settings: &Settings) -> Result<(), Failure> {
    let mut problems = Vec::new();
    for (key, advice) in
        [("group", "name the group, such as --group orders"), ("shards", "say how many, such as --shards 16")]
    {
        if settings.raw(key).is_none() {
            problems.push(Problem::new(
                settings.place_of(key),
                format!("`run` needs the setting `{key}`"),
                advice,
            ));
        }
    }
    if settings.text("store") == Some("memory:") {
        tracing::warn!(
            "a memory: store is seen by this process alone: fine for a try, and no other node can join"
        );
    }
    if problems.is_empty() { Ok(()) } else { Err(Problems(problems).into()) }
}

enum Ending {
    Asked,
    NameTaken(String),
}

/// Waits for a signal, or for word that this node cannot take part.
async fn supervise(node: &Node, signals: &mut Signals) -> Ending {
    let mut events = node.events();
    loop {
        tokio::select! {
            () = signals.next() => return Ending::Asked,
            told = events.next() => match told.as_deref().map(|told| &told.notice) {
                Some(Notice::NameTaken { node, session }) => return Ending::NameTaken(format!(
                    "another live process is the node {node} (session {session}); this one owns nothing and ends\n  \
                     give each process a name of its own with --node, or stop the other one"
                )),
                Some(_) => {}
                None => return Ending::Asked,
            },
        }
    }
}

/// Waits for the end; a further signal kills the children at once.
async fn hurried(
    leaving: impl Future<Output = Finish>,
    signals: &mut Signals,
    hurry: &watch::Sender<Haste>,
) -> Finish {
    let mut leaving = std::pin::pin!(leaving);
    loop {
        tokio::select! {
            finish = &mut leaving => return finish,
            () = signals.next() => {
                tracing::warn!("hurrying: children are killed now");
                hurry.send_replace(Haste::Hurry);
            }
        }
    }
}

/// SIGTERM and Ctrl-C.
struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    fn listen() -> std::io::Result<Self> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Every child needs a few descriptors; the usual limit of 1,024 would end at some hundred shards.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}
