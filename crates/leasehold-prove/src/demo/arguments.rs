use std::time::Duration;

use clap::Args;
use leasehold_cli_common::settings::span;

/// `leasehold demo`
#[derive(Debug, Args)]
pub struct Demo {
    /// How long to run; a step that has begun is finished [default: 10s without a terminal, otherwise until you
    /// quit]
    #[arg(long = "for", value_name = "DURATION", value_parser = span::parse)]
    pub(super) run_for: Option<Duration>,
    /// Number of shards
    #[arg(long, default_value_t = 48, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) shards: u32,
    /// Number of nodes at the start
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=12))]
    pub(super) nodes: u32,
    /// ttl of the nodes
    #[arg(long, default_value = "2s", value_parser = span::parse)]
    pub(super) ttl: Duration,
    /// Print lines instead of drawing, even on a terminal
    #[arg(long)]
    pub(super) plain: bool,
}
