//! Registered keys: one object each, under leases whose age is measured with the server's clock.
//!
//! A bucket expires nothing by itself. A lease is an object that is rewritten at every renewal; it is over when its
//! `Last-Modified` is more than its ttl before the `Date` of the same server's answer. Both come in whole seconds. That
//! is good enough to find things, and never used for ownership. Keys that are gone leave an object without a value.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use async_trait::async_trait;
use futures::{StreamExt, TryStreamExt, stream};
use leasehold_store::{LeaseId, LeaseState, Registry, StoreError, StoreErrorKind, rng};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::bucket::Bucket;
use crate::client::{Condition, Got, Listed, Mark, Refusal};
use crate::error::{failed, refused};
use crate::layout::{LEASES, REGISTERED, escaped};
use crate::namespace::AT_ONCE;

/// How often a key is read again because another process wrote it.
const TRIES: u32 = 10;

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Lease {
    format: u32,
    write: String,
    ttl_ms: u64,
    over: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Registered {
    format: u32,
    write: String,
    key: String,
    /// The lease that keeps it; none if it was removed.
    lease: Option<String>,
    /// The value: text as it is, other bytes as numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bytes: Option<Vec<u8>>,
}

/// An object as it was read.
struct Found<T> {
    value: T,
    mark: Mark,
    age_s: i64,
}

impl Bucket {
    async fn lease(&self, lease: &LeaseId) -> Result<Option<Found<Lease>>, StoreError> {
        let found = self.object::<Lease>(&lease_object(lease)).await?;
        Ok(found.filter(|found| is_alive(&found.value, found.age_s)))
    }

    async fn object<T: DeserializeOwned>(&self, object: &str) -> Result<Option<Found<T>>, StoreError> {
        self.check_verdict()?;
        let Got::Found { body, mark, age_s } = self.namespace().work.get(object, None).await? else {
            return Ok(None);
        };
        let age_s =
            age_s.ok_or_else(|| refused("this server sends no `Date`, so nothing can expire on it: use another store for registered keys"))?;
        // A damaged object counts as gone.
        Ok(serde_json::from_slice(&body).ok().map(|value| Found { value, mark, age_s }))
    }

    async fn write(&self, object: &str, value: &impl Serialize, condition: Condition) -> Result<(), Refusal> {
        let mut body = serde_json::to_vec(value).expect("plain data is always JSON");
        body.push(b'\n');
        self.namespace().work.put(object, body, condition).await.map(drop)
    }

    async fn fetch_all<T: DeserializeOwned>(
        &self,
        objects: Vec<String>,
    ) -> Result<Vec<Found<T>>, StoreError> {
        let fetch = |object: String| async move { self.object::<T>(&object).await };
        let found: Vec<_> = stream::iter(objects).map(fetch).buffer_unordered(AT_ONCE).try_collect().await?;
        Ok(found.into_iter().flatten().collect())
    }
}

#[async_trait]
impl Registry for Bucket {
    async fn grant(&self, ttl: Duration) -> Result<LeaseId, StoreError> {
        self.pass_probe().await?;
        let lease = LeaseId(rng::fresh_id()?);
        let value = Lease { format: 1, write: rng::fresh_id()?, ttl_ms: ttl.as_millis() as u64, over: false };
        self.write(&lease_object(&lease), &value, Condition::Absent).await.map_err(reason)?;
        Ok(lease)
    }

    async fn keep_alive(&self, lease: &LeaseId) -> Result<LeaseState, StoreError> {
        let Some(Found { value, mark, .. }) = self.lease(lease).await? else { return Ok(LeaseState::Gone) };
        let value = Lease { write: rng::fresh_id()?, ..value };
        match self.write(&lease_object(lease), &value, Condition::Is(mark)).await {
            Ok(()) => Ok(LeaseState::Alive),
            Err(Refusal::Lost) => {
                Ok(self.lease(lease).await?.map_or(LeaseState::Gone, |_| LeaseState::Alive))
            }
            Err(other) => Err(reason(other)),
        }
    }

    async fn put(&self, lease: &LeaseId, key: &str, value: &[u8]) -> Result<LeaseState, StoreError> {
        if self.lease(lease).await?.is_none() {
            return Ok(LeaseState::Gone);
        }
        let text = std::str::from_utf8(value).ok().map(str::to_owned);
        let bytes = text.is_none().then(|| value.to_vec());
        let (key, write) = (key.to_owned(), rng::fresh_id()?);
        let object = key_object(&key);
        // Over what is there now, and nothing else: of two that register a key at once, one is told.
        let condition = match self.namespace().work.get(&object, None).await? {
            Got::Found { mark, .. } => Condition::Is(mark),
            Got::Same | Got::Nothing => Condition::Absent,
        };
        let row = Registered { format: 1, write, key, lease: Some(lease.0.clone()), text, bytes };
        self.write(&object, &row, condition).await.map_err(reason)?;
        Ok(LeaseState::Alive)
    }

    async fn remove(&self, lease: &LeaseId, key: &str) -> Result<(), StoreError> {
        let object = key_object(key);
        for _ in 0..TRIES {
            let Some(Found { value, mark, .. }) = self.object::<Registered>(&object).await? else {
                return Ok(());
            };
            if value.lease.as_ref() != Some(&lease.0) {
                return Ok(());
            }
            let gone = Registered { write: rng::fresh_id()?, lease: None, text: None, bytes: None, ..value };
            match self.write(&object, &gone, Condition::Is(mark)).await {
                Ok(()) => return Ok(()),
                Err(Refusal::Lost) => {}
                Err(other) => return Err(reason(other)),
            }
        }
        Err(failed(StoreErrorKind::Busy, format!("other processes keep writing the key {key:?}")))
    }

    async fn revoke(&self, lease: &LeaseId) -> Result<(), StoreError> {
        let object = lease_object(lease);
        for _ in 0..TRIES {
            let Some(Found { value, mark, .. }) = self.object::<Lease>(&object).await? else { return Ok(()) };
            if value.over {
                return Ok(());
            }
            let over = Lease { write: rng::fresh_id()?, over: true, ..value };
            match self.write(&object, &over, Condition::Is(mark)).await {
                Ok(()) => return Ok(()),
                Err(Refusal::Lost) => {}
                Err(other) => return Err(reason(other)),
            }
        }
        Err(failed(StoreErrorKind::Busy, "other processes keep writing the lease"))
    }

    async fn keys(&self) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        self.check_verdict()?;
        let listed: Vec<Listed> = self.namespace().work.list(REGISTERED).await?;
        let objects = listed.into_iter().map(|listed| listed.object).collect();
        Ok(self.registered(objects).await?.into_iter().collect())
    }

    async fn values(&self, keys: &[String]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        let mut found = self.registered(keys.iter().map(|key| key_object(key)).collect()).await?;
        Ok(keys.iter().map(|key| found.remove(key)).collect())
    }
}

impl Bucket {
    /// The keys in these objects that are alive.
    async fn registered(&self, objects: Vec<String>) -> Result<BTreeMap<String, Vec<u8>>, StoreError> {
        let rows = self.fetch_all::<Registered>(objects).await?;
        let leases: BTreeSet<String> = rows.iter().filter_map(|row| row.value.lease.clone()).collect();
        let mut alive = BTreeSet::new();
        for lease in leases {
            if self.lease(&LeaseId(lease.clone())).await?.is_some() {
                alive.insert(lease);
            }
        }
        let kept = rows.into_iter().filter_map(|Found { value, .. }| {
            let lease = value.lease.filter(|lease| alive.contains(lease));
            let bytes = value.text.map(String::into_bytes).or(value.bytes).unwrap_or_default();
            lease.map(|_| (value.key, bytes))
        });
        Ok(kept.collect())
    }
}

fn is_alive(lease: &Lease, age_s: i64) -> bool {
    // A second of grace, because both times are cut to whole seconds.
    !lease.over && age_s.saturating_mul(1000) <= lease.ttl_ms as i64 + 1000
}

fn lease_object(lease: &LeaseId) -> String {
    format!("{LEASES}{}.json", escaped(&lease.0))
}

fn key_object(key: &str) -> String {
    format!("{REGISTERED}{}.json", escaped(key))
}

fn reason(refusal: Refusal) -> StoreError {
    match refusal {
        Refusal::Failed(error) | Refusal::Unknown(error) => error,
        Refusal::Lost => {
            failed(StoreErrorKind::Busy, "another process wrote it; the call will be tried again")
        }
    }
}
