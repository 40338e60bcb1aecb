//! The recorder behind `/metrics`.

use std::time::Duration;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

/// How often samples that nobody has read yet are put into their buckets. Without that, memory grows as long as nobody
/// reads the page.
const UPKEEP_EVERY: Duration = Duration::from_secs(5);

/// Calls to the store, renewals and plans: from 100 microseconds to 10 seconds.
const SHORT: &[f64] =
    &[0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// How long a shard was without an owner: milliseconds in a planned move, some ttls after a failure.
const GAPS: &[f64] =
    &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0];

/// The recorder of this process.
#[derive(Clone)]
pub struct Metrics(PrometheusHandle);

/// The process has a recorder already.
#[derive(Debug, thiserror::Error)]
#[error("metrics cannot be recorded: {0}")]
pub struct AlreadyInstalled(String);

impl Metrics {
    /// Makes it the recorder of this process. Install it before the node starts: what happened earlier is missing.
    pub fn install() -> Result<Metrics, AlreadyInstalled> {
        let told = |error: metrics_exporter_prometheus::BuildError| AlreadyInstalled(error.to_string());
        let builder = PrometheusBuilder::new();
        // Without buckets they would be summaries, which cannot be added up over nodes.
        let builder = builder.set_buckets(SHORT).map_err(told)?;
        let gaps = Matcher::Full("leasehold_handoff_gap_seconds".into());
        let builder = builder.set_buckets_for_metric(gaps, GAPS).map_err(told)?;
        builder.install_recorder().map(Metrics).map_err(told)
    }

    pub(super) fn handle(&self) -> PrometheusHandle {
        self.0.clone()
    }

    /// Keeps the recorder small, for as long as this is polled.
    pub async fn upkeep(&self) {
        loop {
            tokio::time::sleep(UPKEEP_EVERY).await;
            self.0.run_upkeep();
        }
    }
}
