//! Configures and starts a node.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::config::{ConfigError, ConfigErrors, Gate, Namespace};
use leasehold_core::event::Verdict;
use leasehold_core::placement::Placement;
use leasehold_core::{Config, GroupName, NodeName, ShardId};
use leasehold_store::Store;
use tokio::runtime::Handle;

use crate::clock::Clock;
use crate::error::Error;
use crate::grant::Grant;
use crate::group::Group;
use crate::handler::{AnyHandler, IntoOutcome};
use crate::hooks::{Health, Hooks};
use crate::launch::{DeadManTimer, Setup};
use crate::node::Node;
use crate::pulse::Pulse;
use crate::registry::RegistryOptions;
use crate::tasks::RunsOn;

/// A change of the settings.
type Edit = Box<dyn FnOnce(&mut Config) + Send>;

/// The ttl of a node without a store.
#[cfg(feature = "memory")]
const SOLO_TTL: Duration = Duration::from_secs(3600);

/// The shortest interval between hook calls. More frequent calls would keep the driver from renewing.
const HOOK_EVERY_MIN: Duration = Duration::from_millis(10);

/// Configures a [`Node`]. [`start`](Builder::start) reports all problems at once.
#[must_use = "nothing runs before start"]
pub struct Builder {
    store: Arc<dyn Store>,
    name: Option<String>,
    ttl: Option<Duration>,
    edits: Vec<Edit>,
    groups: Vec<(Group, Option<AnyHandler>)>,
    placement: Option<Arc<dyn Placement>>,
    hooks: Hooks,
    hook_every: Option<Duration>,
    hook_timeout: Option<Duration>,
    registry: RegistryOptions,
    dead_man: DeadManTimer,
    runs_on: RunsOn,
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
            hook_timeout: None,
            registry: RegistryOptions::default(),
            dead_man: DeadManTimer::Off,
            runs_on: RunsOn::OwnThread,
            clock: Clock::boot(),
            runtime: None,
        }
    }

    /// A node on a private store: it holds all shards at once, and no deadline passes while a debugger is attached.
    #[cfg(feature = "memory")]
    pub(crate) fn solo() -> Self {
        let server = leasehold_store::MemoryServer::with_clock(crate::clock::now);
        let mut builder = Builder::new(Arc::new(server.open("solo"))).name("solo").new_namespace();
        builder.ttl = Some(SOLO_TTL);
        builder
    }

    /// The node's stable name. No two live processes of a namespace may share one. The default is made of the host's
    /// name and the process id, so a restarted process gets other shards.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// How long the session lives after a renewal. Failover after a crash takes this long plus a little more. All
    /// other times follow from it, unless they are set by [`configure`](Builder::configure).
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// How much of the work the node takes, relative to the other nodes. The default is 100.
    pub fn weight(self, weight: u32) -> Self {
        self.configure(move |config| config.weight = weight)
    }

    /// The most shards that the node holds in total.
    pub fn capacity(self, shards_max: u32) -> Self {
        self.configure(move |config| config.capacity = Some(shards_max))
    }

    /// The node's zone, for groups whose placement uses zones.
    pub fn zone(self, zone: impl Into<String>) -> Self {
        let zone = zone.into();
        self.configure(move |config| config.zone = Some(zone))
    }

    /// The address at which callers reach the node, for `locate`.
    pub fn address(self, address: impl Into<String>) -> Self {
        let address = address.into();
        self.configure(move |config| config.address = Some(address))
    }

    /// A label for your own use.
    pub fn label(self, key: impl Into<String>, value: impl Into<String>) -> Self {
        let (key, value) = (key.into(), value.into());
        self.configure(move |config| {
            config.labels.insert(key, value);
        })
    }

    /// Declares that the namespace is new, so that no earlier holder can be running: the node that creates it need not
    /// wait. Never use this with a store that held shards before.
    pub fn new_namespace(self) -> Self {
        self.configure(|config| config.namespace = Namespace::New)
    }

    /// Changes any setting. It is checked with all the others at the start.
    pub fn configure(mut self, edit: impl FnOnce(&mut Config) + Send + 'static) -> Self {
        self.edits.push(Box::new(edit));
        self
    }

    /// Serves a group: `work` is called with a grant at every start of one of its shards.
    ///
    /// When a handler returns, the shard's work ends for now. It is started again, with a growing pause if it failed.
    /// When the grant is [`stopping`](Grant::stopping), the handler should return soon: work that still runs when time
    /// is up is cut off at its next `await`.
    ///
    /// Other work that a handler starts belongs to the shard only if it is started by [`Grant::spawn`] or
    /// [`Grant::spawn_blocking`], or holds a [`Grant::guard`]. Anything else is invisible to Leasehold and keeps
    /// running beside the next holder.
    ///
    /// `work` returns nothing, or a `Result<(), E>` with any error that can be boxed: a `std` error, `anyhow::Error`, a
    /// string. Errors are logged with all their causes. A closure that ends in `Ok(())` must name its error type,
    /// because nothing else does: `Ok::<_, BoxError>(())`. For work with state of its own, implement
    /// [`Handler`](crate::Handler) and pass [`into_fn`](crate::Handler::into_fn).
    ///
    /// ```
    /// use leasehold::{Grant, Group, Node, Outcome};
    ///
    /// async fn orders(grant: Grant) -> Outcome {
    ///     while !grant.stopping().is_cancelled() {
    ///         grant.check()?; // before each side effect
    ///         // … process one order
    ///         # break;
    ///     }
    ///     Ok(())
    /// }
    ///
    /// let builder = Node::solo()
    ///     .group(Group::numbered("orders", 64), orders)
    ///     .group(Group::leader("cron"), |grant| async move { grant.stopped().await });
    /// ```
    ///
    /// A group may be given several times with the same settings, each time with another handler. A shard's work has
    /// ended when all of them have returned.
    pub fn group<F, Fut>(mut self, group: Group, work: F) -> Self
    where
        F: Fn(Grant) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoOutcome> + Send + 'static,
    {
        self.groups.push((group, Some(AnyHandler::new(work))));
        self
    }

    /// Holds shards of a group without running anything for them: use [`Node::owns`] and [`Node::grant`].
    pub fn hold(mut self, group: Group) -> Self {
        self.groups.push((group, None));
        self
    }

    /// Replaces the rules that decide which node should hold which shard. All nodes of a namespace must use the same
    /// rules; [`Placement`] has the contract.
    ///
    /// ```
    /// use leasehold::placement::Rendezvous;
    ///
    /// let builder = leasehold::Node::solo().placement(Rendezvous); // the default, or a rule of your own
    /// ```
    pub fn placement(mut self, placement: impl Placement + 'static) -> Self {
        self.placement = Some(Arc::new(placement));
        self
    }

    /// A hook that returns the node's weight ([`weight`](Builder::weight)). It is asked every
    /// [`hook_every`](Builder::hook_every). If it panics or does not answer in time, the weight stays as it is.
    ///
    /// ```
    /// # async fn free_memory_mib() -> u32 { 4096 }
    /// let builder = leasehold::Node::solo().weigh(free_memory_mib);
    /// ```
    pub fn weigh<F, Fut>(mut self, weight: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = u32> + Send + 'static,
    {
        self.hooks.weight = Some(Arc::new(move || Box::pin(weight())));
        self
    }

    /// A hook that returns the program's health. It is asked every [`hook_every`](Builder::hook_every). While the program
    /// is unhealthy, the node takes no new shards and hands over those that others can take. No answer in time counts as
    /// unhealthy, and so does a panic.
    ///
    /// ```
    /// # async fn database_answers() -> bool { true }
    /// use leasehold::{Health, Node};
    ///
    /// let builder = Node::solo().health(|| async {
    ///     if database_answers().await { Health::Healthy } else { Health::Unhealthy }
    /// });
    /// ```
    pub fn health<F, Fut>(mut self, health: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Health> + Send + 'static,
    {
        self.hooks.health = Some(Arc::new(move || Box::pin(health())));
        self
    }

    /// The node is healthy as long as this pulse beats. Use it instead of your own [`health`](Builder::health) hook.
    ///
    /// ```
    /// use std::time::Duration;
    /// use leasehold::{Group, Node, Pulse};
    ///
    /// let pulse = Pulse::within(Duration::from_secs(30));
    /// let beating = pulse.clone();
    /// let builder = Node::solo().pulse(&pulse).group(Group::numbered("orders", 8), move |grant| {
    ///     let pulse = beating.clone();
    ///     async move {
    ///         while !grant.stopping().is_cancelled() {
    ///             // … process one order …
    ///             pulse.beat();
    ///             # break;
    ///         }
    ///     }
    /// });
    /// ```
    pub fn pulse(self, pulse: &Pulse) -> Self {
        let pulse = pulse.clone();
        self.health(move || std::future::ready(pulse.health()))
    }

    /// The acquire gate, which is asked before the node takes a shard. A refused shard goes to the next node in rank, and
    /// the gate is asked again later. No answer in time counts as a refusal, and so does a panic.
    ///
    /// A gate that says yes is no promise that the shard comes: the claim may fail. So if the gate reserves something, let
    /// what is not used in time go, as `examples/gate.rs` does.
    ///
    /// ```
    /// # async fn has_memory_for(_: &leasehold::ShardId) -> bool { true }
    /// use leasehold::{Node, Verdict};
    ///
    /// let builder = Node::solo().gate(|shard| async move {
    ///     if has_memory_for(&shard).await { Verdict::Take } else { Verdict::Refuse }
    /// });
    /// ```
    pub fn gate<F, Fut>(mut self, gate: F) -> Self
    where
        F: Fn(ShardId) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Verdict> + Send + 'static,
    {
        self.hooks.gate = Some(Arc::new(move |shard| Box::pin(gate(shard))));
        self.configure(|config| config.gate = Gate::Ask)
    }

    /// How often weight and health are asked. The default is the renewal interval.
    pub fn hook_every(mut self, every: Duration) -> Self {
        self.hook_every = Some(every);
        self
    }

    /// How long each hook may take, the acquire gate too. The default is [`hook_every`](Builder::hook_every). A gate that
    /// has not answered within a ttl has refused, whatever this says.
    pub fn hook_timeout(mut self, within: Duration) -> Self {
        self.hook_timeout = Some(within);
        self
    }

    /// How the keys that this node registers are kept. The first registry of a process, store and ttl sets the
    /// options.
    pub fn registry(mut self, options: RegistryOptions) -> Self {
        self.registry = options;
        self
    }

    /// Lets the kernel kill this process if its session was not renewed in time while shards run here, even if every
    /// thread is stuck or the process is stopped. It covers handlers and what grants own (including
    /// [`Grant::spawn_blocking`]), also of a session that is over. If another node ended the session, `kill_budget` is
    /// left. Linux only.
    pub fn dead_man_timer(mut self) -> Self {
        self.dead_man = DeadManTimer::On;
        self
    }

    /// The runtime for handlers and hooks. The default is the current one. When the runtime is shut down, the node
    /// leaves, because it cannot run anything any more.
    pub fn runtime(mut self, runtime: Handle) -> Self {
        self.runtime = Some(runtime);
        self
    }

    /// Runs everything on the current runtime and its clock, for tests (feature `test-util`) under
    /// `tokio::time::pause`. User code that blocks would then delay renewals.
    #[cfg(feature = "test-util")]
    pub fn virtual_time(mut self) -> Self {
        self.runs_on = RunsOn::CurrentRuntime;
        self.clock = Clock::virtual_time();
        self
    }

    /// Checks the settings and starts the node. It does not wait for the store: a node that starts before its store
    /// joins when the store is there. [`Node::attached`] waits for that.
    pub async fn start(mut self) -> Result<Node, Error> {
        let runtime = match self.runtime.take() {
            Some(runtime) => runtime,
            None => Handle::try_current().map_err(|_| Error::NoRuntime)?,
        };
        let (config, handlers) = self.settings()?;
        let Builder {
            store,
            placement,
            hooks,
            hook_every,
            hook_timeout,
            registry,
            dead_man,
            runs_on,
            clock,
            ..
        } = self;
        Setup {
            store,
            config,
            handlers,
            placement,
            hooks,
            hook_every,
            hook_timeout,
            registry,
            dead_man,
            runs_on,
            clock,
            runtime,
        }
        .start()
    }

    /// The settings and handlers, or all problems with them.
    fn settings(&mut self) -> Result<(Config, Vec<(GroupName, AnyHandler)>), Error> {
        let mut problems = Vec::new();
        let facts = self.store.facts();
        let name = self.name.take().unwrap_or_else(default_name);
        let name = NodeName::new(&name).unwrap_or_else(|e| {
            problems.push(ConfigError::new("library", "name", e.to_string(), "choose another name"));
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
                        Some(_) => problems.push(ConfigError::new(
                            "library",
                            format!("groups[{}]", group.group),
                            "the group was added twice with different settings",
                            "use the same settings or another name",
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
            problems.extend(errors.iter().cloned());
        }
        for (name, span) in [("hook_every", self.hook_every), ("hook_timeout", self.hook_timeout)] {
            if let Some(span) = span.filter(|span| *span < HOOK_EVERY_MIN) {
                let what = format!("{span:?} is below {HOOK_EVERY_MIN:?}");
                problems.push(ConfigError::new("library", name, what, "raise it"));
            }
        }
        problems.extend(self.registry.problems());
        #[cfg(feature = "test-util")]
        if self.dead_man == DeadManTimer::On && self.runs_on == RunsOn::CurrentRuntime {
            problems.push(ConfigError::new(
                "library",
                "dead_man_timer",
                "the dead-man timer does not work with virtual time",
                "turn one of them off",
            ));
        }
        ConfigErrors::none_in(problems)?;
        Ok((config, handlers))
    }
}

/// The host's name and the process id.
fn default_name() -> String {
    let host: String =
        host_name().chars().filter(|c| c.is_ascii_alphanumeric() || "-._".contains(*c)).take(100).collect();
    format!("{}-{}", if host.is_empty() { "node" } else { &host }, std::process::id())
}

#[cfg(unix)]
fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(not(unix))]
fn host_name() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_default()
}
