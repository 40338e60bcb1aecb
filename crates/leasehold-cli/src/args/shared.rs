//! What all commands share.

use clap::Args;
use leasehold_cli_common::settings::Everywhere;

/// How a command prints what it has to say.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct Output {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Print nothing but errors
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

/// Which cluster a command is about, and how it prints.
#[derive(Clone, Debug, Args)]
pub(crate) struct Shared {
    #[command(flatten)]
    pub(crate) output: Output,
    #[command(flatten)]
    pub(crate) everywhere: Everywhere,
}
