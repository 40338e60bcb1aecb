use std::time::Duration;

use http::Request;
use leasehold_store::StoreError;
use serde::Deserialize;

use crate::api_types::Metadata;
use crate::client::ApiClient;
use crate::error::{ApiCall, refused};

/// The labels that name the zone of a machine, the current one first.
const LABELS: [&str; 2] = ["topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"];

#[derive(Deserialize)]
struct Machine {
    metadata: Metadata,
}

/// The zone of a Kubernetes node.
pub(crate) async fn zone_of(link: &ApiClient, name: &str) -> Result<Option<String>, StoreError> {
    let wrong = || {
        refused(format!("{name:?} is not a valid name of a Kubernetes node: use spec.nodeName of the pod"))
    };
    let letters = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-' || c == b'.';
    if name.is_empty() || name.starts_with('.') || !name.bytes().all(letters) {
        return Err(wrong());
    }
    let request = Request::get(format!("/api/v1/nodes/{name}")).body(Vec::new()).map_err(|_| wrong())?;
    match link.ask::<Machine>(Duration::from_secs(10), request).await {
        Ok(machine) => Ok(LABELS.iter().find_map(|label| machine.metadata.labels.get(*label).cloned())),
        Err(error) if error.code() == Some(404) => {
            Err(refused(format!("there is no Kubernetes node {name}: use spec.nodeName of the pod")))
        }
        Err(error) if error.code() == Some(403) => Err(refused(format!(
            "RBAC does not allow this: verb `get`, resource `nodes`, of the cluster ({name}). Apply \
             deploy/zone, or give the zone yourself."
        ))),
        Err(error) => Err(error.into_store_error(&ApiCall::of_leases("get", ""))),
    }
}
