//! The program `leasehold`.

use std::process::ExitCode;

use clap::Parser;

mod args;
mod build;
mod failure;
mod guard;
mod run;
mod settings;
mod stores;

use args::{Arguments, Command};
use failure::{Code, Failure};
use run::Mode;
use settings::Settings;

fn main() -> ExitCode {
    if let Some(code) = guard::hidden_main() {
        return code;
    }
    match dispatch(Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn dispatch(command: Command) -> Result<(), Failure> {
    match command {
        Command::Run(run) => {
            let settings = Settings::load(&run.everywhere, Some(&run.node))?;
            log_to_stderr(&settings);
            let mode = if run.one { Mode::One } else { Mode::Each };
            in_runtime(run::run(&settings, mode, run.command))
        }
    }
}

fn in_runtime(work: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Code::Failed, format!("no runtime could be started: {error}")))?;
    let result = runtime.block_on(work);
    // A call that blocks a thread must not hold up the end.
    runtime.shutdown_background();
    result
}

fn log_to_stderr(settings: &Settings) {
    let level = match settings.text("log") {
        Some("error") => tracing::Level::ERROR,
        Some("warn") => tracing::Level::WARN,
        Some("debug") => tracing::Level::DEBUG,
        _ => tracing::Level::INFO,
    };
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_max_level(level)
        .with_target(false)
        .with_ansi(false)
        .init();
}
