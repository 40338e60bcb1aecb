//! In the place of `listen.rs` in a build without the feature `http`.

use leasehold::Node;
use leasehold_cli_common::failure::Failure;
use leasehold_cli_common::settings::{Problem, Problems, Settings};
use leasehold_core::Config;

/// Nothing is served.
pub(super) struct Serving;

impl Serving {
    /// Refuses to listen.
    pub(super) async fn start(settings: &Settings) -> Result<Serving, Failure> {
        if settings.listen().is_none() {
            return Ok(Serving);
        }
        let what = "this build of leasehold serves nothing over HTTP";
        let advice = "remove the setting, or build it with the feature http";
        Err(Problems(vec![Problem::new(settings.place_of("listen"), what, advice)]).into())
    }

    /// Does nothing.
    pub(super) fn show(&self, _: &Node, _: &Config) {}

    /// Does nothing.
    pub(super) async fn end(self) {}
}
