//! Assembles a node and starts its threads.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold_core::placement::Placement;
use leasehold_core::{Config, GroupName};
use leasehold_store::Store;
use tokio::runtime::Handle;
use tokio::sync::{broadcast, mpsc, watch};

use crate::clock::Clock;
use crate::deadman::{Alarm, Leash, NoAlarm};
use crate::driver::{Calls, Driver, EndReport, Executor, Finish, Grants, Input, Life, Publisher, Works};
use crate::error::Error;
use crate::events::{self, NodeEvent};
use crate::handler::AnyHandler;
use crate::hooks::Hooks;
use crate::node::Node;
use crate::observe::Meters;
use crate::registry::{Registry, RegistryOptions};
use crate::rng;
use crate::tasks::{self, RunsOn, Tasks};
use crate::vitals::Vitals;
use crate::watchdog::Watchdog;

/// The longest time by which work is cut off before the dead-man timer would kill the process.
const KILL_EARLY_MAX: Duration = Duration::from_millis(100);

/// Whether the kernel kills a process that did not renew in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeadManTimer {
    Off,
    On,
}

/// The checked parts of a node.
pub(crate) struct Setup {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) config: Config,
    pub(crate) handlers: Vec<(GroupName, AnyHandler)>,
    pub(crate) placement: Option<Arc<dyn Placement>>,
    pub(crate) hooks: Hooks,
    pub(crate) hook_every: Option<Duration>,
    pub(crate) hook_timeout: Option<Duration>,
    pub(crate) registry: RegistryOptions,
    pub(crate) dead_man: DeadManTimer,
    pub(crate) runs_on: RunsOn,
    pub(crate) clock: Clock,
    pub(crate) runtime: Handle,
}

/// The driver's ends of the channels that connect it with its node.
struct Ends {
    core: leasehold_core::Node,
    inputs: mpsc::UnboundedSender<Input>,
    inbox: mpsc::UnboundedReceiver<Input>,
    grants: Arc<Grants>,
    watchdog: Watchdog,
    publisher: Publisher,
    vitals: Vitals,
    told: broadcast::Sender<Arc<NodeEvent>>,
    finished: watch::Sender<Option<Finish>>,
}

impl Setup {
    /// Starts the driver and its watchdog.
    pub(crate) fn start(self) -> Result<Node, Error> {
        let (inputs, inbox) = mpsc::unbounded_channel();
        let (finished_tx, finished) = watch::channel(None);
        let told = broadcast::Sender::new(events::WAITING_MAX);
        let grants = Arc::new(Grants::default());
        let on_lost = {
            let inputs = inputs.clone();
            move || drop(inputs.send(Input::SessionLost))
        };
        let watchdog = Watchdog::start(self.runs_on, self.clock.clone(), on_lost).map_err(Error::machine)?;
        let (config, facts, own) = (self.config.clone(), self.store.facts(), self.placement.clone());
        let core = leasehold_core::Node::with_placement(config, facts, rng::seed(), own);
        let (publisher, views) = Publisher::new(core.view(self.clock.read()));
        let registry =
            Registry::new(self.store.clone(), self.registry.clone(), self.runs_on, self.clock.clone());
        let vitals = Vitals::new(self.clock.clone());
        let node = Node {
            name: self.config.node.clone(),
            clock: self.clock.clone(),
            margin: self.config.margin,
            inputs: inputs.clone(),
            grants: grants.clone(),
            views,
            told: told.downgrade(),
            finished,
            registry,
            vitals: vitals.clone(),
            leaving: AtomicBool::new(false),
            engaged: Mutex::default(),
            served: Mutex::new(
                self.config.groups.iter().map(|group| (group.group.clone(), group.shards)).collect(),
            ),
        };
        let finished = finished_tx;
        self.launch(Ends { core, inputs, inbox, grants, watchdog, publisher, vitals, told, finished })?;
        Ok(node)
    }

    fn launch(self, ends: Ends) -> Result<(), Error> {
        match (self.runs_on, self.dead_man) {
            #[cfg(feature = "test-util")]
            (RunsOn::CurrentRuntime, _) => {
                tasks::spawn_on(&Handle::current(), self.drive(ends, NoAlarm));
                Ok(())
            }
            (RunsOn::OwnThread, DeadManTimer::Off) => {
                tasks::on_own_thread("leasehold-driver", move || self.drive(ends, NoAlarm))
                    .map_err(Error::machine)
            }
            (RunsOn::OwnThread, DeadManTimer::On) => self.launch_with_dead_man(ends),
        }
    }

    #[cfg(target_os = "linux")]
    fn launch_with_dead_man(self, ends: Ends) -> Result<(), Error> {
        use crate::deadman::DeadMan;
        // The timer cannot be sent to another thread, so this only tests whether one can be created.
        drop(DeadMan::new().map_err(Error::machine)?);
        tasks::on_own_thread("leasehold-driver", move || async move {
            match DeadMan::new() {
                Ok(timer) => self.drive(ends, timer).await,
                Err(error) => tracing::error!(%error, "the node stopped because the dead-man timer could not be created"),
            }
        })
        .map_err(Error::machine)
    }

    #[cfg(not(target_os = "linux"))]
    fn launch_with_dead_man(self, _: Ends) -> Result<(), Error> {
        Err(Error::setting("dead_man_timer", "the dead-man timer requires Linux", "turn it off"))
    }

    fn kill_early(&self) -> Duration {
        match self.dead_man {
            DeadManTimer::Off => Duration::ZERO,
            DeadManTimer::On => {
                KILL_EARLY_MAX.min(self.config.margin.saturating_sub(self.config.kill_budget) / 4)
            }
        }
    }

    async fn drive<A: Alarm>(self, ends: Ends, alarm: A) {
        let kill_early = self.kill_early();
        let Setup { store, config, handlers, hooks, hook_every, hook_timeout, clock, runtime, .. } = self;
        let hook_every = hook_every.unwrap_or(config.renew_every);
        let follow_watch = store.facts().watch;
        let meters = Arc::new(Meters::new(&config.node, config.ttl, ends.vitals));
        let tasks = Tasks::on(Handle::current());
        let calls = Calls::new(store, clock.clone(), tasks, ends.inputs.clone(), meters.clone());
        let executor = Executor {
            clock: clock.clone(),
            runtime,
            inputs: ends.inputs,
            grants: ends.grants,
            watchdog: ends.watchdog,
            alarm: Leash::new(alarm),
            kill_early,
            handlers: Default::default(),
            sessions: Default::default(),
        };
        let mut works = Works::new(executor, config.margin);
        for (group, handler) in handlers {
            works.add_handler(group, handler);
        }
        let driver = Driver {
            core: ends.core,
            clock,
            calls,
            works,
            hooks,
            hook_every,
            hook_within: hook_timeout.unwrap_or(hook_every),
            end_report: EndReport::new(ends.publisher, meters, ends.finished),
            told: ends.told,
            inputs: ends.inbox,
            ttl: config.ttl,
            margin: config.margin,
            life: Life::default(),
        };
        driver.run(follow_watch).await;
    }
}
