//! Setting up a node.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::config::{Gate, Namespace};
use leasehold_core::event::Verdict;
use leasehold_core::placement::Placement;
use leasehold_core::{Config, GroupName, NodeName, ShardId};
use leasehold_store::Store;
use tokio::runtime::Handle;

use crate::clock::Clock;
use crate::error::Error;
use crate::grant::Grant;
use crate::group::{Group, Handler, Outcome};
use crate::hooks::{Health, Hooks};
use crate::launch::{DeadManTimer, Setup};
use crate::node::Node;
use crate::pulse::Pulse;
use crate::registry::RegistryOptions;
use crate::tasks::Place;

/// A change of the settings.
type Edit = Box<dyn FnOnce(&mut Config) + Send>;

/// How long a node without a store would live without renewing.
const SOLO_TTL: Duration = Duration::from_secs(3600);

/// Hooks that are asked more often than this would keep the driver from renewing.
const HOOK_EVERY_MIN: Duration = Duration::from_millis(10);

/// Sets up a [`Node`]. Whatever is wrong is reported by [`start`](Builder::start), all at once.
pub struct Builder {
    store: Arc<dyn Store>,
    name: Option<String>,
    ttl: Option<Duration>,
    edits: Vec<Edit>,
    groups: Vec<(Group, Option<Handler>)>,
    placement: Option<Arc<dyn Placement>>,
    hooks: Hooks,
    hook_every: Option<Duration>,
    registry: RegistryOptions,
    dead_man: DeadManTimer,
    place: Place,
    clock: Clock,
    runtime: Option<Handle>,
}

impl Builder {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Builder {
            store,
            name: None,
            ttl: None,
            edits: Vec::new(),
            groups: Vec::new(),
            placement: None,
            hooks: Hooks::default(),
            hook_every: None,
            registry: RegistryOptions::default(),
            dead_man: DeadManTimer::Off,
            place: Place::OwnThread,
            clock: Clock::boot(),
            runtime: None,
        }
    }

    /// A node on a store of its own that nobody else sees: it holds everything at once, and no deadline bites while a
    /// debugger is attached.
    pub(crate) fn solo() -> Self {
        let server = leasehold_store::MemoryServer::with_clock(crate::clock::now);
        let mut builder = Builder::new(Arc::new(server.open("solo"))).name("solo").new_namespace();
        builder.ttl = Some(SOLO_TTL);
        builder
    }

    /// The node's stable name: no two live processes of a namespace may share one. Without it, it is made of the
    /// host's name and the process id, so that a restarted process gets other shards.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// How long the session lives after a renewal. Failover after a crash takes this and a little more; all other
    /// times follow from it unless they are set by [`configure`](Builder::configure).
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// How much of the work the node takes, relative to the others (100 if not said).
    pub fn weight(self, weight: u32) -> Self {
        self.configure(move |config| config.weight = weight)
    }

    /// The most shards that the node holds in all.
    pub fn capacity(self, shards_max: u32) -> Self {
        self.configure(move |config| config.capacity = Some(shards_max))
    }

    /// Where the node stands, for groups that look at zones.
    pub fn zone(self, zone: impl Into<String>) -> Self {
        let zone = zone.into();
        self.configure(move |config| config.zone = Some(zone))
    }

    /// Where callers reach the node, for `locate`.
    pub fn address(self, address: impl Into<String>) -> Self {
        let address = address.into();
        self.configure(move |config| config.address = Some(address))
    }

    /// A label, free for the user.
    pub fn label(self, key: impl Into<String>, value: impl Into<String>) -> Self {
        let (key, value) = (key.into(), value.into());
        self.configure(move |config| {
            config.labels.insert(key, value);
        })
    }

    /// The namespace is known to be new, so that nobody of an earlier life can be running: whoever creates it need not
    /// wait. Never say this of a store that held shards before.
    pub fn new_namespace(self) -> Self {
        self.configure(|config| config.namespace = Namespace::New)
    }

    /// Changes any setting. It is checked with all the others at start.
    pub fn configure(mut self, edit: impl FnOnce(&mut Config) + Send + 'static) -> Self {
        self.edits.push(Box::new(edit));
        self
    }

    /// Serves a group: `work` is called with a grant at every start of one of its shards.
    ///
    /// Returning ends the shard's work for now; it is started again, with a growing pause if it failed. When the
    /// grant is [`stopping`](Grant::stopping) the handler should return soon: what still runs when time is up is cut
    /// off at its next `await`. Work that a handler starts besides itself belongs to the shard only if it is started
    /// by [`Grant::spawn`] or [`Grant::spawn_blocking`], or holds a [`Grant::guard`]; anything else is invisible to
    /// Leasehold and runs on beside the next holder.
    /// A group may be given several times with the same settings, and one more handler each: a shard's work has ended
    /// when all returned.
    pub fn group<F, Fut>(mut self, group: Group, work: F) -> Self
    where
        F: Fn(Grant) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Outcome> + Send + 'static,
    {
        self.groups.push((group, Some(Handler::new(work))));
        self
    }

    /// Holds shards of a group without running anything for them: ask [`Node::owns`] and [`Node::grant`].
    pub fn hold(mut self, group: Group) -> Self {
        self.groups.push((group, None));
        self
    }

    /// Decides by other rules which node should hold which shard. All nodes of a namespace must use the same ones.
    pub fn placement(mut self, placement: Arc<dyn Placement>) -> Self {
        self.placement = Some(placement);
        self
    }

    /// Asked again and again how much of the work the node takes.
    pub fn weigh<F, Fut>(mut self, weight: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = u32> + Send + 'static,
    {
        self.hooks.weight = Some(Arc::new(move || Box::pin(weight())));
        self
    }

    /// Asked again and again whether the program is fit. While it is not, the node takes nothing new and hands over
    /// what others can take. No answer in time means that it is not.
    pub fn health<F, Fut>(mut self, health: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Health> + Send + 'static,
    {
        self.hooks.health = Some(Arc::new(move || Box::pin(health())));
        self
    }

    /// The node is fit as long as this pulse beats: instead of a hook of one's own for [`health`](Builder::health).
    pub fn pulse(self, pulse: &Pulse) -> Self {
        let pulse = pulse.clone();
        self.health(move || std::future::ready(pulse.health()))
    }

    /// The acquire gate: asked before each shard is taken. A refused shard goes to the next in rank. No answer in
    /// time means no.
    pub fn gate<F, Fut>(mut self, gate: F) -> Self
    where
        F: Fn(ShardId) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Verdict> + Send + 'static,
    {
        self.hooks.gate = Some(Arc::new(move |shard| Box::pin(gate(shard))));
        self.configure(|config| config.gate = Gate::Ask)
    }

    /// How often weight and health are asked, and how long each hook may take (as often as the session is renewed,
    /// if not said).
    pub fn hook_every(mut self, every: Duration) -> Self {
        self.hook_every = Some(every);
        self
    }

    /// How the keys that this node registers are kept. The options of the first registry of a process, store and ttl
    /// count.
    pub fn registry(mut self, options: RegistryOptions) -> Self {
        self.registry = options;
        self
    }

    /// Lets the kernel kill this process when its session was not renewed in time while shards run here: even when
    /// every thread is stuck, or the process is stopped. It covers handlers and what grants own
    /// ([`Grant::spawn_blocking`] among them), also of a session that is over; a session that another node has ended
    /// leaves `kill_budget`. Linux only.
    pub fn dead_man_timer(mut self) -> Self {
        self.dead_man = DeadManTimer::On;
        self
    }

    /// The runtime that handlers and hooks run on; the current one if not said. When it is shut down the node leaves,
    /// since it can run nothing any more.
    pub fn runtime(mut self, runtime: Handle) -> Self {
        self.runtime = Some(runtime);
        self
    }

    /// Runs everything on the current runtime and its clock, for tests under `tokio::time::pause`. Never in
    /// production: user code that blocks would then hold up renewals.
    pub fn virtual_time(mut self) -> Self {
        self.place = Place::CurrentRuntime;
        self.clock = Clock::virtual_time();
        self
    }

    /// Checks the settings and starts the node. It does not wait for the store: a node that starts before its store
    /// joins when the store is there. [`Node::attached`] waits for that.
    pub async fn start(mut self) -> Result<Node, Error> {
        let runtime = match self.runtime.take() {
            Some(runtime) => runtime,
            None => Handle::try_current().map_err(|e| Error::Machine(e.to_string()))?,
        };
        let (config, handlers) = self.settings()?;
        let Builder { store, placement, hooks, hook_every, registry, dead_man, place, clock, .. } = self;
        Setup {
            store,
            config,
            handlers,
            placement,
            hooks,
            hook_every,
            registry,
            dead_man,
            place,
            clock,
            runtime,
        }
        .start()
    }

    /// The settings and handlers, or all that is wrong with them.
    fn settings(&mut self) -> Result<(Config, Vec<(GroupName, Handler)>), Error> {
        let mut problems = Vec::new();
        let facts = self.store.facts();
        let name = self.name.take().unwrap_or_else(default_name);
        let name = NodeName::new(&name).unwrap_or_else(|e| {
            problems.push(e.to_string());
            NodeName::new("unnamed").expect("a plain word is a name")
        });
        let mut config = match self.ttl {
            Some(ttl) => Config::with_ttl(name, ttl),
            None => Config::new(name, &facts),
        };
        let mut handlers = Vec::new();
        for (group, handler) in self.groups.drain(..) {
            match group.into_config() {
                Ok(group) => {
                    handlers.extend(handler.map(|handler| (group.group.clone(), handler)));
                    match config.groups.iter().find(|known| known.group == group.group) {
                        None => config.groups.push(group),
                        Some(known) if *known == group => {}
                        Some(_) => problems.push(format!(
                            "the group {} was given twice, with different settings: give it the same ones, or another name",
                            group.group
                        )),
                    }
                }
                Err(problem) => problems.push(problem),
            }
        }
        for edit in self.edits.drain(..) {
            edit(&mut config);
        }
        if let Err(errors) = config.check_on(&facts) {
            problems.extend(errors.iter().map(ToString::to_string));
        }
        if let Some(every) = self.hook_every.filter(|every| *every < HOOK_EVERY_MIN) {
            problems.push(format!(
                "hook_every ({every:?}) must be at least {HOOK_EVERY_MIN:?}: it is also how long a hook may take; raise it"
            ));
        }
        problems.extend(self.registry.problems());
        if self.dead_man == DeadManTimer::On && self.place == Place::CurrentRuntime {
            problems
                .push("the kernel's dead-man timer knows no virtual time: use one or the other".to_owned());
        }
        if problems.is_empty() { Ok((config, handlers)) } else { Err(Error::Config(problems)) }
    }
}

/// The host's name and the process id.
fn default_name() -> String {
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy();
    let host: String =
        host.chars().filter(|c| c.is_ascii_alphanumeric() || "-._".contains(*c)).take(100).collect();
    format!("{}-{}", if host.is_empty() { "node" } else { &host }, std::process::id())
}
