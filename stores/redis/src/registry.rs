//! Registered keys, which use Redis' own expiry. Other programs read them; ownership never depends on them.

use std::time::Duration;

use async_trait::async_trait;
use leasehold_store::{LeaseId, LeaseState, Registry, StoreError, rng};

use crate::engine::Wait;
use crate::records::strange;
use crate::redis::Redis;
use crate::resp::Value;
use crate::script::{Call, Script};

/// The longest lease: Redis counts milliseconds in 63 bits, from 1970.
const TTL_MS_MAX: u128 = 1 << 52;

#[async_trait]
impl Registry for Redis {
    async fn grant(&self, ttl: Duration) -> Result<LeaseId, StoreError> {
        let id = rng::fresh_id()?;
        let millis = ttl.as_millis().clamp(1, TTL_MS_MAX).to_string();
        self.lease(Script::Grant, vec![self.key("lease:", &id)], vec![millis.into_bytes()]).await?;
        Ok(LeaseId(id))
    }

    async fn keep_alive(&self, lease: &LeaseId) -> Result<LeaseState, StoreError> {
        self.lease(Script::Keep, self.lease_keys(lease), vec![lease.0.clone().into_bytes()]).await
    }

    async fn put(&self, lease: &LeaseId, key: &str, value: &[u8]) -> Result<LeaseState, StoreError> {
        let args = vec![lease.0.clone().into_bytes(), key.as_bytes().to_vec(), value.to_vec()];
        self.lease(Script::Put, self.all_keys(lease, key), args).await
    }

    async fn remove(&self, lease: &LeaseId, key: &str) -> Result<(), StoreError> {
        let args = vec![lease.0.clone().into_bytes(), key.as_bytes().to_vec()];
        self.lease(Script::Remove, self.all_keys(lease, key), args).await.map(drop)
    }

    async fn revoke(&self, lease: &LeaseId) -> Result<(), StoreError> {
        let args = vec![lease.0.clone().into_bytes()];
        self.lease(Script::Revoke, self.lease_keys(lease), args).await.map(drop)
    }

    async fn keys(&self) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        let answer = self.script(Script::Keys, vec![self.key("keys", "")], Vec::new()).await?;
        let mut parts = answer.list().ok_or_else(|| strange("no list"))?.into_iter();
        let mut keys = Vec::with_capacity(parts.len() / 2);
        while let (Some(key), Some(value)) = (parts.next(), parts.next()) {
            let key = key.text().ok_or_else(|| strange("a key that is not text"))?.to_owned();
            keys.push((key, value.bytes().ok_or_else(|| strange("no value"))?));
        }
        keys.sort();
        Ok(keys)
    }

    async fn values(&self, keys: &[String]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        let names = keys.iter().map(|key| self.key("key:", key)).collect();
        let values = self.script(Script::Values, names, Vec::new()).await?;
        let values = values.list().filter(|values| values.len() == keys.len());
        Ok(values.ok_or_else(|| strange("too few values"))?.into_iter().map(Value::bytes).collect())
    }
}

impl Redis {
    fn key(&self, kind: &str, name: &str) -> String {
        self.work.connection().options.key(format_args!("{kind}{name}"))
    }

    fn lease_keys(&self, LeaseId(id): &LeaseId) -> Vec<String> {
        vec![self.key("lease:", id), self.key("leased:", id), self.key("keys", "")]
    }

    fn all_keys(&self, lease: &LeaseId, key: &str) -> Vec<String> {
        let mut keys = self.lease_keys(lease);
        keys.extend([self.key("key:", key), self.key("holder:", key)]);
        keys
    }

    async fn lease(
        &self,
        script: Script,
        keys: Vec<String>,
        args: Vec<Vec<u8>>,
    ) -> Result<LeaseState, StoreError> {
        let answer = self.script(script, keys, args).await?.list().unwrap_or_default();
        match answer.first().and_then(Value::text) {
            Some("alive") => Ok(LeaseState::Alive),
            Some("gone") => Ok(LeaseState::Gone),
            _ => Err(strange("no state of a lease")),
        }
    }

    async fn script(
        &self,
        script: Script,
        keys: Vec<String>,
        args: Vec<Vec<u8>>,
    ) -> Result<Value, StoreError> {
        let mut call = Call::new(script, keys);
        args.iter().for_each(|arg| call.push(arg));
        let asked = self.work.run(|connection| async move {
            connection.call(&call, Wait::No).await.map_err(|(error, written)| error.into_store_error(written))
        });
        asked.await
    }
}
