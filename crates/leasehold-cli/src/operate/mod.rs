//! Operators' commands. They are written into the store; running nodes see them there and act on them.

mod ask;
mod dry_run;
mod group;
mod keys;
mod register;
mod repair;
mod wait;

use std::time::Duration;

use leasehold::Client;
use leasehold::clock::Clock;
use leasehold_core::View;

pub(crate) use ask::ask;
pub(crate) use group::{
    create as create_group, delete as delete_group, set as set_group, show as show_group,
};
pub(crate) use keys::{keys, watch_keys};
pub(crate) use register::{Keys as KeysToRegister, Others, pauses, register};
pub(crate) use repair::{repair, repair_control};
pub(crate) use wait::{Goal, wait_from_start};

/// How long to wait until the request shows in the view.
const SHOWN_WITHIN: Duration = Duration::from_secs(2);

/// Waits until the view is as wanted, though not for long: the request is in the store either way.
pub(super) async fn until_shown(client: &Client, wanted: impl FnMut(&View) -> bool) {
    let clock = Clock::boot();
    let _ = clock.timeout_at(clock.now() + SHOWN_WITHIN, client.until(wanted)).await;
}
