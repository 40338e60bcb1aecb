//! Registered keys, the only use of etcd's own leases.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_store::{LeaseId, LeaseState, Registry, StoreError};
use tonic::{Code, Status};

use crate::connection::{Connection, Method};
use crate::error::refused;
use crate::etcd::{Etcd, Shared, range, txn};
use crate::lane::{CallError, Switch};
use crate::layout::KeyKind;
use crate::proto::{
    Compare, DeleteRangeRequest, LeaseGrantRequest, LeaseGrantResponse, LeaseKeepAliveRequest,
    LeaseKeepAliveResponse, LeaseRevokeRequest, LeaseRevokeResponse, OpRequest, PutRequest, PutResponse,
    Target, TxnRequest, Wanted,
};
use crate::records::{OPS_MAX, found, header, op, page, page_after, reading_of};

#[async_trait]
impl Registry for Etcd {
    async fn grant(&self, ttl: Duration) -> Result<LeaseId, StoreError> {
        // etcd counts whole seconds.
        let ttl = i64::try_from(ttl.as_millis().div_ceil(1000)).unwrap_or(i64::MAX).max(1);
        self.registered(move |_, switch| async move {
            let ask = |connection: Connection| async move {
                connection.ask::<_, LeaseGrantResponse>(Method::LEASE_GRANT, LeaseGrantRequest { ttl }).await
            };
            let granted = switch.ask(ask).await?;
            match granted.error.is_empty() {
                true => Ok(LeaseId(format!("{:x}", granted.id))),
                false => Err(refused(format!("etcd granted no lease: {}", granted.error))),
            }
        })
        .await
    }

    async fn keep_alive(&self, lease: &LeaseId) -> Result<LeaseState, StoreError> {
        let id = number(lease)?;
        self.registered(move |_, switch| async move {
            match switch.ask(|connection: Connection| keep_alive(connection, id)).await {
                // A lease that is gone is answered with a ttl of zero, not with an error.
                Ok(LeaseKeepAliveResponse { ttl: ..=0, .. }) => Ok(LeaseState::Gone),
                Ok(_) => Ok(LeaseState::Alive),
                Err(failed) => gone(failed),
            }
        })
        .await
    }

    async fn put(&self, lease: &LeaseId, key: &str, value: &[u8]) -> Result<LeaseState, StoreError> {
        let (id, key, value) = (number(lease)?, self.shared.layout.registered(key), value.to_vec());
        self.registered(move |_, switch| async move {
            let ask = |connection: Connection| {
                let question = PutRequest { key: key.clone(), value: value.clone(), lease: id };
                async move { connection.ask::<_, PutResponse>(Method::PUT, question).await }
            };
            match switch.ask(ask).await {
                Ok(_) => Ok(LeaseState::Alive),
                Err(failed) => gone(failed),
            }
        })
        .await
    }

    async fn remove(&self, lease: &LeaseId, key: &str) -> Result<(), StoreError> {
        let (id, key) = (number(lease)?, self.shared.layout.registered(key));
        let question = TxnRequest {
            compare: vec![Compare {
                result: 0,
                target: Target::Lease.into(),
                key: key.clone(),
                wanted: Some(Wanted::Lease(id)),
            }],
            success: vec![op(OpRequest::DeleteRange(DeleteRangeRequest { key }))],
            failure: Vec::new(),
        };
        self.registered(move |_, switch| async move {
            txn(&switch, question).await?;
            Ok(())
        })
        .await
    }

    async fn revoke(&self, lease: &LeaseId) -> Result<(), StoreError> {
        let id = number(lease)?;
        self.registered(move |_, switch| async move {
            let ask = |connection: Connection| async move {
                connection
                    .ask::<_, LeaseRevokeResponse>(Method::LEASE_REVOKE, LeaseRevokeRequest { id })
                    .await
            };
            match switch.ask(ask).await {
                Ok(_) => Ok(()),
                Err(failed) => gone(failed).map(|_| ()),
            }
        })
        .await
    }

    async fn keys(&self) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        self.registered(|shared, switch| async move { keys(&shared, &switch).await }).await
    }

    async fn values(&self, keys: &[String]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        let names: Vec<Vec<u8>> = keys.iter().map(|key| self.shared.layout.registered(key)).collect();
        self.registered(|_, switch| async move {
            let mut values = Vec::with_capacity(names.len());
            for some in names.chunks(OPS_MAX) {
                let answer = txn(&switch, reading_of(some.iter().cloned())).await?;
                let found = found(answer, some.len())?.into_iter();
                values.extend(found.map(|stored| stored.map(|stored| stored.value.to_vec())));
            }
            Ok(values)
        })
        .await
    }
}

impl Etcd {
    async fn registered<T, F>(
        &self,
        work: impl FnOnce(Arc<Shared>, Arc<Switch>) -> F,
    ) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let shared = Arc::clone(&self.shared);
        self.work.run(move |switch| work(shared, switch)).await
    }
}

/// One request and its response on a stream of its own: a response does not say which request it belongs to.
async fn keep_alive(connection: Connection, id: i64) -> Result<LeaseKeepAliveResponse, Status> {
    let question = futures::stream::iter([LeaseKeepAliveRequest { id }]);
    let mut answers = connection.stream(Method::LEASE_KEEP_ALIVE, question).await?;
    answers.message().await?.ok_or_else(|| Status::unavailable("the keep-alive was not answered"))
}

async fn keys(shared: &Shared, switch: &Arc<Switch>) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
    let mut keys = Vec::new();
    let mut next = Some(page(shared.layout.registered_keys(), 0));
    while let Some(question) = next {
        let mut found = range(switch, question.clone()).await?;
        let revision = header(found.header.as_ref())?.revision;
        next = page_after(&question, &found);
        // The pages after the first are of its revision.
        if let Some(page) = next.as_mut().filter(|page| page.revision == 0) {
            page.revision = revision;
        }
        keys.extend(std::mem::take(&mut found.kvs).into_iter().filter_map(|kv| {
            match shared.layout.classify(&kv.key) {
                KeyKind::Registered(key) => Some((key, kv.value)),
                _ => None,
            }
        }));
    }
    Ok(keys)
}

fn gone(failed: CallError) -> Result<LeaseState, StoreError> {
    match &failed.status {
        Some(status) if status.code() == Code::NotFound => Ok(LeaseState::Gone),
        _ => Err(failed.error),
    }
}

fn number(lease: &LeaseId) -> Result<i64, StoreError> {
    // As etcdctl prints it.
    i64::from_str_radix(&lease.0, 16).map_err(|_| refused(format!("invalid etcd lease {:?}", lease.0)))
}
