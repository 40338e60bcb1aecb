//! The groups that this node serves, and what runs for the shards of each.

use std::ffi::OsString;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use leasehold::{Grant, Outcome};
use leasehold_cli_common::settings::{GroupOfNode, Problem, Settings};
use leasehold_cli_common::stores;
use leasehold_core::record::ShardSet;
use leasehold_core::{GroupConfig, GroupName};

use super::names::{Follower, Names};
use super::one::OneChild;
use super::shadow::Shadow;
use super::template::Template;
use super::{GroupWork, Mode, Supervisor, each, hooks, one, template};

/// The time from SIGTERM to SIGKILL for a child, if the settings say nothing.
const KILL_AFTER: Duration = Duration::from_secs(10);

/// Makes what runs for the shards of each group.
pub(super) struct Runners {
    supervisor: Arc<Supervisor>,
    mode: Mode,
    /// Of groups that have none of their own.
    command: Vec<OsString>,
    kill_after: Duration,
    /// The child of all groups that share one.
    shared: Option<OneChild>,
    /// What would have happened, if nothing is started.
    pub(super) shadow: Option<Arc<Shadow>>,
}

/// What runs for the shards of one group.
#[derive(Clone)]
pub(super) enum Runner {
    Each(Arc<GroupWork>),
    One(OneChild),
    Shadow(Arc<Shadow>, Arc<GroupWork>),
}

impl Runner {
    pub(super) async fn work(self, grant: Grant) -> Outcome {
        match self {
            Runner::Each(work) => each::work(work, grant).await,
            Runner::One(child) => one::work(child, grant).await,
            Runner::Shadow(shadow, work) => shadow.work(&work.template, grant).await,
        }
    }
}

impl Runners {
    pub(super) fn new(
        supervisor: Arc<Supervisor>,
        settings: &Settings,
        mode: Mode,
        command: Vec<OsString>,
        shadow: Option<Arc<Shadow>>,
    ) -> Self {
        let kill_after = settings.span("kill_after").unwrap_or(KILL_AFTER);
        Runners { supervisor, mode, command, kill_after, shared: None, shadow }
    }

    /// What runs for a group with these settings; `None` for groups from the store. Groups without a command of their own
    /// share one child, if they have one for all shards.
    pub(super) fn for_group(&mut self, group: Option<&GroupOfNode>) -> io::Result<Runner> {
        let own = group.and_then(|group| group.command.clone());
        let is_own = own.is_some();
        let own = own.map(|own| own.into_iter().map(OsString::from).collect());
        let kill_after = group.and_then(|group| group.settings.span("kill_after"));
        let work = Arc::new(GroupWork {
            supervisor: self.supervisor.clone(),
            template: Template::new(own.unwrap_or_else(|| self.command.clone())),
            kill_after: kill_after.unwrap_or(self.kill_after),
        });
        if let Some(shadow) = &self.shadow {
            return Ok(Runner::Shadow(shadow.clone(), work));
        }
        if self.mode == Mode::Each && !group.is_some_and(|group| group.one) {
            return Ok(Runner::Each(work));
        }
        Ok(Runner::One(match (is_own, &self.shared) {
            (true, _) => OneChild::start(work)?,
            (false, Some(shared)) => shared.clone(),
            (false, None) => self.shared.insert(OneChild::start(work)?).clone(),
        }))
    }

    /// Tells now and then what would have happened, for as long as it is polled.
    pub(super) async fn tell(&self) {
        match &self.shadow {
            Some(shadow) => shadow.tell().await,
            None => std::future::pending().await,
        }
    }
}

/// A group as the library takes it.
pub(super) fn served(group: &GroupConfig) -> leasehold::Group {
    let served = match group.shards {
        ShardSet::Numbered(slots) => leasehold::Group::numbered(group.group.as_str(), slots),
        ShardSet::Named => leasehold::Group::named(group.group.as_str()),
    };
    let served = served.policy(group.policy.clone());
    match group.capacity {
        Some(capacity) => served.capacity(capacity),
        None => served,
    }
}

/// Those who keep the names of groups engaged.
pub(super) fn followers(groups: &[GroupOfNode]) -> Vec<Follower> {
    let follower = |group: &GroupOfNode| {
        let name = GroupName::new(group.settings.text("group")?).ok()?;
        Some(Follower::new(name, Names::parse(group.settings.text("names")?).ok()?))
    };
    groups.iter().filter_map(follower).collect()
}

/// What the settings lack for `run`: a store, groups, the size of each or the names of its shards, and a command.
pub(crate) fn lacks(settings: &Settings, command: &[OsString]) -> Vec<Problem> {
    let mut problems = Vec::new();
    let (groups, stored) = (settings.groups(), !settings.serve().is_empty());
    if groups.is_empty() && !stored {
        let what = "`run` requires the setting `group`";
        problems.push(Problem::new(settings.place_of("group"), what, "set it, for example --group orders"));
        problems.extend(lacks_shards(settings));
    }
    for group in &groups {
        problems.extend(lacks_shards(&group.settings));
        if let Some(own) = &group.command {
            let own: Vec<OsString> = own.iter().map(OsString::from).collect();
            problems.extend(template::problem(&own, &group.command_place));
        }
    }
    match groups.iter().find(|group| group.command.is_none()) {
        Some(group) if settings.has_group_tables() && command.is_empty() => {
            let name = group.settings.text("group").unwrap_or_default();
            problems.push(Problem::new(
                group.settings.place_of("group"),
                format!("the group {name} has no command"),
                "add `command = [\"./worker\", \"{shard}\"]` to its table, or a command for all groups after --",
            ));
        }
        None if !groups.is_empty() && !stored => {
            if !command.is_empty() {
                let what = "every group has a command of its own, so this one would never run";
                problems.push(Problem::new("--", what, "remove it"));
            }
        }
        _ => problems.extend(template::problem(command, "--")),
    }
    problems.extend(hooks::problems(settings));
    if settings.text("store").is_none() {
        problems.extend(stores::problems(settings));
    }
    problems
}

/// What a group lacks of its size or its names.
fn lacks_shards(settings: &Settings) -> Vec<Problem> {
    let mut problems = Vec::new();
    let of_table = settings.text("group").is_some() && settings.place_of("group").contains(':');
    // In a file with several groups it says which one.
    let (of, nowhere) = match settings.text("group") {
        Some(group) if of_table => (format!(" for the group {group}"), settings.place_of("group")),
        _ => (String::new(), settings.place_of("shards")),
    };
    match (settings.text("shards"), settings.text("names").map(Names::parse)) {
        (None, None) => {
            let what = format!("`run` requires the setting `shards` or `names`{of}");
            let advice = "set one of them, for example --shards 16 or --names a,b,c";
            problems.push(Problem::new(nowhere, what, advice));
        }
        (Some(_), Some(_)) => {
            let advice = "a group is either numbered or named: remove one of the two";
            let what = "`shards` and `names` are both set";
            problems.push(Problem::new(settings.place_of("names"), what, advice));
        }
        (None, Some(Err(mistakes))) => {
            for what in mistakes {
                let advice = "use a,b,c or @FILE with one name per line";
                problems.push(Problem::new(settings.place_of("names"), what, advice));
            }
        }
        (None, Some(Ok(_))) | (Some(_), None) => {}
    }
    problems
}
