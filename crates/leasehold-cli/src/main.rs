//! The program `leasehold`.

#[cfg(not(target_os = "linux"))]
compile_error!(
    "the program leasehold runs only on Linux: it needs features of the Linux kernel to supervise processes. The library leasehold \
     compiles for macOS and Windows too"
);

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};
use leasehold::registry::RegistryOptions;
use leasehold_cli_common::failure::{Code, Failure};
use leasehold_cli_common::sanitize::{sanitize, sanitize_lines};
use leasehold_cli_common::settings::{BeforeCommand, Settings};
use leasehold_cli_common::stores::Missing;
use leasehold_cli_common::{log, stores};
use leasehold_core::explain::WhatIf;
use leasehold_core::store::StoreErrorKind;
use leasehold_core::view::NodeView;
use leasehold_core::{NodeName, View};
use leasehold_store::StoreExt;
use serde_json::{Value, json};

#[macro_use]
extern crate leasehold_cli_common;

mod args;
mod build;
mod config;
mod doctor;
mod guard;
mod inspect;
mod man;
mod operate;
mod probe;
#[cfg(any(test, not(feature = "prove")))]
mod prove_feature;
mod reply;
mod run;

use args::{Arguments, Change, Command, ConfigCommand, GroupCommand, Inspect};
use inspect::Watching;
use operate::{Goal, KeysToRegister, Others};
use reply::{Reply, json_of};
use run::Mode;

fn main() -> ExitCode {
    if let Some(code) = guard::hidden_main() {
        return code;
    }
    #[cfg(feature = "prove")]
    if let Some(code) = leasehold_prove::hidden_main() {
        return code;
    }
    let result = parse().and_then(dispatch);
    stores::close();
    match result {
        Ok(()) => {
            log::flush();
            ExitCode::SUCCESS
        }
        Err(failure) => failure.report(),
    }
}

fn parse() -> Result<Command, Failure> {
    let matches = match Arguments::command().try_get_matches() {
        Ok(matches) => matches,
        #[cfg(not(feature = "prove"))]
        Err(error) if error.kind() == clap::error::ErrorKind::InvalidSubcommand => {
            return prove_feature::missing(std::env::args().skip(1)).map_or_else(|| error.exit(), Err);
        }
        Err(error) => error.exit(),
    };
    if let Some(misplaced) = BeforeCommand::misplaced(&Arguments::command(), &matches) {
        return Err(Failure::new(Code::Usage, misplaced));
    }
    Ok(Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit()).command)
}

fn dispatch(command: Command) -> Result<(), Failure> {
    match command {
        #[cfg(feature = "prove")]
        Command::Demo(options) => in_runtime(leasehold_prove::demo(options)),
        Command::Run(run) => {
            let lacks = |settings: &Settings| run::lacks(settings, &run.command);
            let settings = Settings::load_for_node(&run.everywhere, &run.node, lacks)?;
            log::start(&settings)?;
            let mode = if run.one { Mode::One } else { Mode::Each };
            in_runtime(run::run(&settings, mode, run.command))
        }
        Command::Doctor(all) => {
            let settings = Settings::load(&all.everywhere, Some(&all.node))?;
            in_runtime(doctor::doctor(&settings, all.output))
        }
        #[cfg(feature = "prove")]
        Command::Sim(what) => leasehold_prove::sim(&what),
        #[cfg(feature = "prove")]
        Command::Bench(what) => in_runtime(leasehold_prove::bench(what)),
        #[cfg(feature = "prove")]
        Command::Check(what) => in_runtime(leasehold_prove::check(what)),
        Command::Config(config) => configure(config.what),
        Command::Probe(what) => probe::probe(&Settings::load(&what.everywhere, None)?, &what),
        Command::Man { command, dir } => man::man(&command, dir.as_deref()),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Arguments::command(), "leasehold", &mut script);
            print!("{}", String::from_utf8_lossy(&script));
            Ok(())
        }
        other => in_runtime(on_cluster(other)),
    }
}

fn configure(what: ConfigCommand) -> Result<(), Failure> {
    let load = |all: &args::ForAll| Settings::load(&all.everywhere, Some(&all.node));
    let load_for_node =
        |all: &args::ForAll| Settings::load_for_node(&all.everywhere, &all.node, |_| Vec::new());
    match what {
        ConfigCommand::Show(all) => config::show(&load(&all)?, all.output),
        ConfigCommand::Check(all) => config::check(&load_for_node(&all)?, all.output)?,
        ConfigCommand::Explain { nodes, all } => config::explain(&load_for_node(&all)?, nodes, all.output)?,
        ConfigCommand::Paths(all) => config::paths(&load(&all)?, all.output),
        ConfigCommand::Reference => config::print_reference(),
        ConfigCommand::Sample => config::print_sample(),
    }
    Ok(())
}

async fn on_cluster(command: Command) -> Result<(), Failure> {
    match command {
        Command::Status(what) => status(&what).await,
        Command::Nodes(what) => {
            let wanted = |node: &&NodeView| what.state.is_none_or(|state| node.state == state);
            let json = |view: &View| json_of(&view.nodes.iter().filter(wanted).collect::<Vec<_>>());
            show(&what.inspect, |view| inspect::nodes(view.nodes.iter().filter(wanted)), json).await
        }
        Command::Shards(what) => {
            let everywhere = &what.inspect.shared.everywhere;
            let client = inspect::lasting_client(&Settings::load(everywhere, None)?).await?;
            if let Some(group) = what.group.as_ref().or(what.group_flag.as_ref()) {
                inspect::check_group(&client.view(), group)?;
            }
            if let Some(node) = &what.node {
                inspect::known_node(&client.view(), node)?;
            }
            let json = |view: &View| json_of(&inspect::shard_rows(view, &what).collect::<Vec<_>>());
            let people = |view: &View| inspect::shards(inspect::shard_rows(view, &what));
            show_from(&client, &what.inspect, people, json).await
        }
        Command::Explain(what) => what.shared.output.reply(explain(&what).await),
        Command::Wait(what) => wait(&what).await,
        Command::Namespaces(what) => what.shared.output.reply(namespaces(&what.shared).await),
        Command::WhatIf(what) => what_if(what.change).await,
        Command::Locate(what) => what.shared.output.reply(locate(&what).await),
        Command::Operate(command) => {
            let (request, timeout, args::Asking { dry_run, shared }) = command.into_request();
            let settings = Settings::load(&shared.everywhere, None)?;
            let client = match timeout {
                Some(_) => inspect::lasting_client(&settings).await?,
                None => inspect::client(&settings).await?,
            };
            shared.output.reply(operate::ask(&settings, &client, &request, dry_run, timeout).await)
        }
        Command::Group(group) => on_group(group.what).await,
        Command::Repair(what) => {
            let (settings, output) = (Settings::load(&what.shared.everywhere, None)?, what.shared.output);
            let store = stores::open(&settings, Missing::Refuse)?;
            let told = match &what.shard {
                Some(shard) => {
                    let shard = inspect::shard_of(&settings, shard).await?;
                    operate::repair(&store, &shard, output).await
                }
                None => operate::repair_control(&store, output).await,
            };
            output.reply(told.map(|told| Reply::done("repair", json!({ "shard": what.shard }), told)))
        }
        Command::Keys(what) => {
            let store = stores::open(&Settings::load(&what.shared.everywhere, None)?, Missing::Refuse)?;
            if what.watch {
                return operate::watch_keys(&store, what.shared.output).await;
            }
            let (text, json) = operate::keys(&store).await?;
            Reply::new(text, json).print(what.shared.output);
            Ok(())
        }
        Command::Register(what) => {
            let settings = Settings::load(&what.everywhere, Some(what.log.as_node()))?;
            log::start(&settings)?;
            let others = if what.overwrite { Others::Overwrite } else { Others::Respect };
            let (ttl, retry, call_timeout) = (what.ttl, what.retry, what.call_timeout);
            let options = RegistryOptions { ttl, retry, call_timeout, ..RegistryOptions::default() };
            let keys = KeysToRegister::new(&what.keys, what.file, options, others)?;
            let store = stores::open(&settings, Missing::Create)?;
            // Before the registration, because it can take longer, and another process could register the key meanwhile.
            // Temporary errors are retried below.
            if let Err(error) = stores::vet(&*store, |what| tracing::info!("{what}")).await
                && error.kind == StoreErrorKind::Refused
            {
                return Err(error.into());
            }
            operate::register(&store, &keys).await
        }
        Command::Run(_)
        | Command::Doctor(_)
        | Command::Config(_)
        | Command::Man { .. }
        | Command::Probe(_)
        | Command::Completions { .. } => {
            unreachable!("these have no cluster to look at")
        }
        #[cfg(feature = "prove")]
        Command::Demo(_) | Command::Sim(_) | Command::Bench(_) | Command::Check(_) => {
            unreachable!("these make clusters of their own")
        }
    }
}

async fn show(
    what: &Inspect,
    people: impl Fn(&View) -> String,
    json: impl Fn(&View) -> Value,
) -> Result<(), Failure> {
    let client = inspect::lasting_client(&Settings::load(&what.shared.everywhere, None)?).await?;
    show_from(&client, what, people, json).await
}

async fn show_from(
    client: &leasehold::Client,
    what: &Inspect,
    people: impl Fn(&View) -> String,
    json: impl Fn(&View) -> Value,
) -> Result<(), Failure> {
    let watching = if what.watch { Watching::Always } else { Watching::Once };
    inspect::present(client, what.shared.output, watching, people, json).await
}

async fn status(what: &args::Status) -> Result<(), Failure> {
    if !what.check {
        return show(&what.inspect, inspect::status, json_of).await;
    }
    let client = inspect::client(&Settings::load(&what.inspect.shared.everywhere, None)?).await?;
    let (view, wrong) = inspect::check(&client, what).await;
    let mut json = json_of(&view);
    json["check"] = json!({ "ok": wrong.is_empty(), "wrong": wrong });
    Reply::new(inspect::status(&view), json).print(what.inspect.shared.output);
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(Failure::new(Code::Unhealthy, format!("an operator is needed: {}", wrong.join("; ")))),
    }
}

async fn wait(what: &args::Wait) -> Result<(), Failure> {
    let settings = Settings::load(&what.shared.everywhere, None)?;
    // Waiting does not mend a mistake in the URL.
    stores::understood(&settings)?;
    let goal = match what.node.as_slice() {
        [name, state] => {
            let wrong = |what: String| Failure::new(Code::Usage, what);
            let name = NodeName::new(name).map_err(|error| wrong(error.to_string()))?;
            let state = <args::NodeGoal as clap::ValueEnum>::from_str(state, false).map_err(|_| {
                wrong(format!("invalid state {state:?} of a node: use attached, drained or gone"))
            })?;
            Goal::Node(name, state)
        }
        _ => Goal::Owned(what.group.clone()),
    };
    let (told, facts) = match &goal {
        Goal::Node(name, state) => {
            (format!("node {name} is {state}"), json!({ "node": name, "state": state.to_string() }))
        }
        _ => ("all shards are owned".to_owned(), json!({ "group": what.group })),
    };
    operate::wait_from_start(&settings, &goal, args::Timeout(what.timeout)).await?;
    Reply::done("wait", facts, told).print(what.shared.output);
    Ok(())
}

async fn namespaces(shared: &args::Shared) -> Result<Reply, Failure> {
    let store = stores::open(&Settings::load(&shared.everywhere, None)?, Missing::Refuse)?;
    let names = store.namespaces().await?.ok_or_else(|| {
        let kind = store.facts().kind;
        Failure::new(Code::Store, format!("the namespaces of this store ({kind}) cannot be listed"))
    })?;
    let text = if names.is_empty() { "no namespaces".to_owned() } else { names.join("\n") };
    Ok(Reply::new(sanitize_lines(&text), json!(names)))
}

async fn explain(what: &args::Explain) -> Result<Reply, Failure> {
    let settings = Settings::load(&what.shared.everywhere, None)?;
    let client = inspect::client(&settings).await?;
    let shard = inspect::known_shard_of(&settings, &client.view(), &what.shard)?;
    let explanation =
        client.explain(&shard).ok_or_else(|| stores::not_found(format!("unknown shard {shard}")))?;
    Ok(Reply::new(inspect::explain(&explanation), json_of(&explanation)))
}

async fn what_if(change: Change) -> Result<(), Failure> {
    let node = |text: &str| NodeName::new(text).map_err(|error| Failure::new(Code::Usage, error.to_string()));
    let (shared, change): (args::Shared, WhatIf) = match change {
        Change::Down(what) => (what.shared, WhatIf::Down(node(&what.node)?)),
        Change::Drain(what) => (what.shared, WhatIf::Drained(node(&what.node)?)),
        Change::Weight(what) => (what.shared, WhatIf::Weight(node(&what.node)?, what.weight)),
        Change::Add(args::WhatIfAdd { node: what, weight, capacity, zone }) => {
            let node = node(&what.node)?;
            (what.shared, WhatIf::Added { node, weight, capacity, zone })
        }
    };
    let client = inspect::client(&Settings::load(&shared.everywhere, None)?).await?;
    let difference = client.what_if(&change)?;
    Reply::new(inspect::what_if(&difference), json_of(&difference)).print(shared.output);
    Ok(())
}

async fn locate(what: &args::Locate) -> Result<Reply, Failure> {
    let settings = Settings::load(&what.shared.everywhere, None)?;
    let client = inspect::client(&settings).await?;
    let view = client.view();
    let is_group = |name: &str| view.groups.iter().any(|known| known.group.as_str() == name);
    let named = what.key.split_once('/').filter(|(group, _)| what.group.is_none() && is_group(group));
    let (group, key) = match (named, what.group.as_deref().or(settings.text("group")), &view.groups[..]) {
        (Some((group, key)), ..) => (group, key),
        (None, Some(group), _) => (group, what.key.as_str()),
        (None, None, [only]) => (only.group.as_str(), what.key.as_str()),
        (None, None, []) => return Err(inspect::no_group()),
        (None, None, groups) => {
            let names: Vec<&str> = groups.iter().map(|group| group.group.as_str()).collect();
            return Err(Failure::new(
                Code::Usage,
                format!("choose a group with --group: {}", names.join(", ")),
            ));
        }
    };
    if !is_group(group) {
        return Err(inspect::missing_group(&view, group));
    }
    let located = client.locate(group, key)?;
    // In a named group the key is a name, which may be mistyped.
    if client.explain(&located.shard).is_none() {
        return Err(stores::not_found(format!("unknown shard {}", located.shard)));
    }
    let json = json!({
        "shard": located.shard, "node": located.node, "address": located.address, "epoch": located.epoch,
    });
    let text = match (&located.node, &located.address) {
        (Some(node), Some(address)) => {
            format!("{} on {node} at {}, epoch {}", located.shard, sanitize(address), located.epoch)
        }
        (Some(node), None) => format!("{} on {node}, epoch {}", located.shard, located.epoch),
        (None, _) => format!("{}, not held by any node", located.shard),
    };
    Ok(Reply::new(text, json))
}

async fn on_group(what: GroupCommand) -> Result<(), Failure> {
    let open =
        async |shared: &args::Shared| inspect::client(&Settings::load(&shared.everywhere, None)?).await;
    match what {
        GroupCommand::List(what) => show(&what, inspect::groups, |view| json_of(&view.groups)).await,
        GroupCommand::Show(what) => {
            what.shared.output.reply(operate::show_group(&open(&what.shared).await?.view(), &what.name))
        }
        GroupCommand::Create(what) => {
            let settings = Settings::load(&what.asking.shared.everywhere, None)?;
            let missing = if what.asking.dry_run { Missing::Refuse } else { Missing::Create };
            let client = leasehold::Client::open(stores::open(&settings, missing)?).await?;
            what.asking.shared.output.reply(operate::create_group(&client, &what).await)
        }
        GroupCommand::Set(what) => {
            let shared = &what.change.asking.shared;
            let client = inspect::lasting_client(&Settings::load(&shared.everywhere, None)?).await?;
            shared.output.reply(operate::set_group(&client, &what).await)
        }
        GroupCommand::Delete(what) => {
            let client = open(&what.asking.shared).await?;
            let reply = operate::delete_group(&client, &what.name, what.stop, what.asking.dry_run).await;
            what.asking.shared.output.reply(reply)
        }
    }
}

fn in_runtime(work: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().map_err(
            |error| Failure::new(Code::Failed, format!("cannot start the async runtime: {error}")),
        )?;
    let result = runtime.block_on(work);
    // A call that blocks a thread must not hold up the end.
    runtime.shutdown_background();
    result
}
