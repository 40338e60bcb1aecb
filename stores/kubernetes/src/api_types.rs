//! The parts of the API's objects that matter here. What else a server sends is skipped, which keeps large listings
//! cheap.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// The API group of Leases.
pub(crate) const GROUP: &str = "coordination.k8s.io";

/// A Lease.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Lease {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) metadata: Metadata,
    pub(crate) spec: Spec,
}

/// What all objects have.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Metadata {
    pub(crate) name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) uid: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) resource_version: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) annotations: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) finalizers: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) owner_references: Vec<serde_json::Value>,
}

/// What a Lease says to people and other tools.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Spec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) holder_identity: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lease_duration_seconds: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) acquire_time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) renew_time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lease_transitions: Option<i32>,
}

/// A Lease with what the server notes about its writers.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct TimedLease {
    pub(crate) metadata: TimedMetadata,
    pub(crate) spec: Spec,
}

/// See [`TimedLease`].
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct TimedMetadata {
    #[serde(flatten)]
    pub(crate) plain: Metadata,
    pub(crate) managed_fields: Vec<Managed>,
}

/// The writer, and the time by the server's clock.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Managed {
    pub(crate) manager: String,
    pub(crate) time: String,
}

/// One page of a listing.
#[derive(Debug, Deserialize)]
#[serde(bound = "T: DeserializeOwned")]
pub(crate) struct LeaseList<T> {
    pub(crate) metadata: ListMetadata,
    #[serde(default)]
    pub(crate) items: Vec<T>,
}

/// Where a listing stands.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ListMetadata {
    pub(crate) resource_version: String,
    #[serde(default, rename = "continue")]
    pub(crate) next: String,
}
