//! The metrics of a client.

use std::time::Duration;

use metrics::{counter, gauge};

use super::Described;

/// The metrics of one client.
pub(crate) struct ClientMeters {
    name: String,
    described: Described,
}

impl ClientMeters {
    pub(crate) fn new(name: String) -> Self {
        ClientMeters { name, described: Described::default() }
    }

    /// Sets the gauges, and describes the metrics to a recorder that was installed meanwhile.
    pub(crate) fn set(&self, is_fresh: bool, heard_ago: Duration) {
        if self.described.to_current() {
            for result in ["ok", "failed"] {
                counter!("leasehold_client_listings_total", "client" => self.name.clone(), "result" => result)
                    .increment(0);
            }
            counter!("leasehold_client_watch_interruptions_total", "client" => self.name.clone())
                .increment(0);
        }
        let fresh = f64::from(u8::from(is_fresh));
        gauge!("leasehold_client_fresh", "client" => self.name.clone()).set(fresh);
        gauge!("leasehold_client_heard_seconds", "client" => self.name.clone()).set(heard_ago.as_secs_f64());
    }

    /// The namespace was listed, or could not be.
    pub(crate) fn listed(&self, ok: bool) {
        let result = if ok { "ok" } else { "failed" };
        counter!("leasehold_client_listings_total", "client" => self.name.clone(), "result" => result)
            .increment(1);
    }

    /// The watch broke off.
    pub(crate) fn interrupted(&self) {
        counter!("leasehold_client_watch_interruptions_total", "client" => self.name.clone()).increment(1);
    }
}
