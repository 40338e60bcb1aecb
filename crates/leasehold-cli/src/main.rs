//! The program `leasehold`.

#[cfg(not(target_os = "linux"))]
compile_error!(
    "the program leasehold runs only on Linux: it needs features of the Linux kernel to supervise processes. The library leasehold \
     compiles for macOS and Windows too"
);

use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use leasehold::registry::RegistryOptions;
use leasehold_cli_common::failure::{Code, Failure};
use leasehold_cli_common::sanitize::sanitize;
use leasehold_cli_common::settings::{Everywhere, Settings};
use leasehold_cli_common::stores::Missing;
use leasehold_cli_common::{log, stores};
use leasehold_core::explain::WhatIf;
use leasehold_core::store::StoreErrorKind;

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
mod run;

use args::{Arguments, Change, Command, ConfigCommand, GroupCommand, Inspect};
use inspect::{Format, Watching};
use operate::{KeysToRegister, Others};
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
    match Arguments::try_parse() {
        Ok(arguments) => Ok(arguments.command),
        #[cfg(not(feature = "prove"))]
        Err(error) if error.kind() == clap::error::ErrorKind::InvalidSubcommand => {
            prove_feature::missing(std::env::args().skip(1)).map_or_else(|| error.exit(), Err)
        }
        Err(error) => error.exit(),
    }
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
            in_runtime(doctor::doctor(&settings))
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
        ConfigCommand::Show { json, all } => config::show(&load(&all)?, json),
        ConfigCommand::Check(all) => config::check(&load_for_node(&all)?)?,
        ConfigCommand::Explain { nodes, all } => config::explain(&load_for_node(&all)?, nodes)?,
        ConfigCommand::Paths(all) => config::paths(&load(&all)?),
        ConfigCommand::Reference => config::print_reference(),
        ConfigCommand::Sample => config::print_sample(),
    }
    Ok(())
}

async fn on_cluster(command: Command) -> Result<(), Failure> {
    match command {
        Command::Status(what) => show(&what, inspect::status, json_of).await,
        Command::Nodes(what) => show(&what, inspect::nodes, |view| json_of(&view.nodes)).await,
        Command::Shards(what) => {
            let group = what.group.as_deref();
            let kept = |view: &leasehold_core::View| {
                let shards = view.shards.iter();
                json_of(
                    &shards
                        .filter(|shard| group.is_none_or(|group| shard.id.0.group.as_str() == group))
                        .collect::<Vec<_>>(),
                )
            };
            let client = inspect::client(&Settings::load(&what.inspect.everywhere, None)?).await?;
            if let Some(group) = group {
                inspect::check_group(&client.view(), group)?;
            }
            show_from(&client, &what.inspect, |view| inspect::shards(view, group), kept).await
        }
        Command::Explain(what) => explain(&what).await,
        Command::WhatIf(what) => what_if(what.change).await,
        Command::Locate(what) => locate(&what).await,
        Command::Operate(command) => {
            let (everywhere, request) = command.into_request();
            let settings = Settings::load(&everywhere, None)?;
            let client = inspect::client(&settings).await?;
            println!("{}", operate::ask(&settings, &client, &request).await?);
            Ok(())
        }
        Command::Group(group) => on_group(group.what).await,
        Command::Repair(what) => {
            let settings = Settings::load(&what.everywhere, None)?;
            let store = stores::open(&settings, Missing::Refuse)?;
            let told = match &what.shard {
                Some(shard) => operate::repair(&store, &inspect::shard_of(&settings, shard)?).await?,
                None => operate::repair_control(&store).await?,
            };
            println!("{told}");
            Ok(())
        }
        Command::Keys(what) => {
            let store = stores::open(&Settings::load(&what.everywhere, None)?, Missing::Refuse)?;
            if what.output.watch {
                let format = if what.output.json { Format::Json } else { Format::People };
                return operate::watch_keys(&store, format).await;
            }
            let (text, json) = operate::keys(&store).await?;
            if what.output.json {
                println!("{json:#}")
            } else {
                print!("{text}")
            }
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
    people: impl Fn(&leasehold_core::View) -> String,
    json: impl Fn(&leasehold_core::View) -> serde_json::Value,
) -> Result<(), Failure> {
    let client = inspect::client(&Settings::load(&what.everywhere, None)?).await?;
    show_from(&client, what, people, json).await
}

async fn show_from(
    client: &leasehold::Client,
    what: &Inspect,
    people: impl Fn(&leasehold_core::View) -> String,
    json: impl Fn(&leasehold_core::View) -> serde_json::Value,
) -> Result<(), Failure> {
    let format = if what.output.json { Format::Json } else { Format::People };
    let watching = if what.output.watch { Watching::Always } else { Watching::Once };
    inspect::present(client, format, watching, people, json).await
}

fn json_of(value: &impl serde::Serialize) -> serde_json::Value {
    serde_json::to_value(value).unwrap_or_default()
}

async fn explain(what: &args::Explain) -> Result<(), Failure> {
    let settings = Settings::load(&what.everywhere, None)?;
    let client = inspect::client(&settings).await?;
    let shard = inspect::known_shard_of(&settings, &client.view(), &what.shard)?;
    let explanation =
        client.explain(&shard).ok_or_else(|| stores::not_found(format!("unknown shard {shard}")))?;
    if what.json {
        println!("{:#}", json_of(&explanation))
    } else {
        print!("{}", inspect::explain(&explanation))
    }
    Ok(())
}

async fn what_if(change: Change) -> Result<(), Failure> {
    let node = |text: &str| {
        leasehold_core::NodeName::new(text).map_err(|error| Failure::new(Code::Usage, error.to_string()))
    };
    let (everywhere, json, change): (Everywhere, bool, WhatIf) = match change {
        Change::Down(what) => (what.everywhere, what.json, WhatIf::Down(node(&what.node)?)),
        Change::Drain(what) => (what.everywhere, what.json, WhatIf::Drained(node(&what.node)?)),
        Change::Weight(what) => (what.everywhere, what.json, WhatIf::Weight(node(&what.node)?, what.weight)),
        Change::Add(args::WhatIfAdd { node: what, weight, capacity, zone }) => {
            let node = node(&what.node)?;
            (what.everywhere, what.json, WhatIf::Added { node, weight, capacity, zone })
        }
    };
    let client = inspect::client(&Settings::load(&everywhere, None)?).await?;
    let difference = client.what_if(&change)?;
    if json {
        println!("{:#}", json_of(&difference))
    } else {
        print!("{}", inspect::what_if(&difference))
    }
    Ok(())
}

async fn locate(what: &args::Locate) -> Result<(), Failure> {
    let settings = Settings::load(&what.everywhere, None)?;
    let client = inspect::client(&settings).await?;
    let view = client.view();
    let group = match (what.group.as_deref().or(settings.text("group")), view.groups.as_slice()) {
        (Some(group), _) => group.to_owned(),
        (None, [only]) => only.group.to_string(),
        (None, []) => return Err(inspect::no_group()),
        (None, groups) => {
            let names: Vec<&str> = groups.iter().map(|group| group.group.as_str()).collect();
            return Err(Failure::new(
                Code::Usage,
                format!("choose a group with --group: {}", names.join(", ")),
            ));
        }
    };
    if !view.groups.iter().any(|known| known.group.as_str() == group) {
        return Err(inspect::missing_group(&view, &group));
    }
    let located = client.locate(&group, &what.key)?;
    // In a named group the key is a name, which may be mistyped.
    if client.explain(&located.shard).is_none() {
        return Err(stores::not_found(format!("unknown shard {}", located.shard)));
    }
    if what.json {
        let json = serde_json::json!({
            "shard": located.shard, "node": located.node, "address": located.address, "epoch": located.epoch,
        });
        println!("{json:#}");
        return Ok(());
    }
    match (&located.node, &located.address) {
        (Some(node), Some(address)) => {
            println!("{} on {node} at {}, epoch {}", located.shard, sanitize(address), located.epoch)
        }
        (Some(node), None) => println!("{} on {node}, epoch {}", located.shard, located.epoch),
        (None, _) => println!("{}, not held by any node", located.shard),
    }
    Ok(())
}

async fn on_group(what: GroupCommand) -> Result<(), Failure> {
    let open = async |everywhere: &Everywhere| inspect::client(&Settings::load(everywhere, None)?).await;
    match what {
        GroupCommand::List(what) => return show(&what, inspect::groups, |view| json_of(&view.groups)).await,
        GroupCommand::Show(what) => {
            print!("{}", operate::show_group(&open(&what.everywhere).await?.view(), &what.name)?);
        }
        GroupCommand::Create(what) => {
            let settings = Settings::load(&what.everywhere, None)?;
            let client = leasehold::Client::open(stores::open(&settings, Missing::Create)?).await?;
            print!("{}", operate::create_group(&client, &what.name, &what.changes).await?);
        }
        GroupCommand::Set(what) => {
            let settings = Settings::load(&what.everywhere, None)?;
            let client = leasehold::Client::open(stores::open(&settings, Missing::Create)?).await?;
            print!("{}", operate::set_group(&client, &what.name, &what.changes).await?);
        }
        GroupCommand::Delete(what) => {
            let client = open(&what.everywhere).await?;
            println!("{}", operate::delete_group(&client, &what.name, what.stop).await?);
        }
    }
    Ok(())
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
