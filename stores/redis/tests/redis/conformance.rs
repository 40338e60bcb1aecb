//! The public conformance suite, with every lever that a server has.

use std::sync::Arc;

use async_trait::async_trait;
use leasehold_redis::Redis;
use leasehold_servers::{Program, RedisCluster, RedisReply, RedisSentinel, RedisServer};
use leasehold_store::conformance::{self, Fixture, Saved, Scale};
use leasehold_store::{Store, StoreError};
use tokio::sync::Mutex;

/// One server with the namespaces under test on it.
struct OneServer {
    server: Mutex<RedisServer>,
    address: String,
}

impl OneServer {
    fn new(server: RedisServer) -> Self {
        OneServer { address: server.address(), server: Mutex::new(server) }
    }

    async fn ask<P: AsRef<[u8]>>(&self, parts: &[P]) -> RedisReply {
        self.server.lock().await.ask(parts)
    }

    async fn keys(&self, namespace: &str) -> Vec<Vec<u8>> {
        let reply = self.ask(&["KEYS", &format!("{{{namespace}}}:*")]).await;
        reply.list().iter().map(bytes).collect()
    }
}

fn bytes(reply: &RedisReply) -> Vec<u8> {
    match reply {
        RedisReply::Text(bytes) => bytes.clone(),
        other => panic!("no text: {other:?}"),
    }
}

#[async_trait]
impl Fixture for OneServer {
    async fn open(&self, namespace: &str) -> Result<Arc<dyn Store>, StoreError> {
        Ok(Arc::new(Redis::open(&self.address, namespace)?))
    }

    async fn wipe(&self, namespace: &str) -> Option<()> {
        for key in self.keys(namespace).await {
            self.ask(&[b"DEL".to_vec(), key]).await;
        }
        Some(())
    }

    async fn save(&self, namespace: &str) -> Option<Saved> {
        let mut saved = Vec::new();
        for key in self.keys(namespace).await {
            let dump = self.ask(&[b"DUMP".to_vec(), key.clone()]).await;
            saved.push((key, bytes(&dump)));
        }
        Some(Box::new(saved))
    }

    async fn roll_back(&self, namespace: &str, saved: Saved) -> Option<()> {
        self.wipe(namespace).await?;
        for (key, dump) in saved.downcast_ref::<Vec<(Vec<u8>, Vec<u8>)>>()? {
            self.ask(&[b"RESTORE".to_vec(), key.clone(), b"0".to_vec(), dump.clone()]).await;
        }
        Some(())
    }

    async fn put_raw(&self, namespace: &str, key: &str, bytes: &[u8]) -> Option<()> {
        let kinds = [("groups/", "group:"), ("nodes/", "node:"), ("shards/", "shard:")];
        let named = kinds.iter().find_map(|(core, ours)| Some(format!("{ours}{}", key.strip_prefix(core)?)));
        let name = named.unwrap_or_else(|| key.to_owned());
        self.ask(&[b"SET", format!("{{{namespace}}}:{name}").as_bytes(), bytes]).await;
        self.ask(&["ZADD", &format!("{{{namespace}}}:index"), "1", &name]).await;
        Some(())
    }

    async fn break_watches(&self, _namespace: &str) -> Option<()> {
        self.ask(&["CLIENT", "KILL", "TYPE", "pubsub"]).await;
        Some(())
    }

    async fn restart(&self) -> Option<()> {
        self.server.lock().await.start_again();
        Some(())
    }
}

async fn contract_holds_on(program: Program) {
    let Some(server) = RedisServer::start(program) else { return };
    conformance::assert_all(&OneServer::new(server)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_contract_holds_on_redis() {
    contract_holds_on(Program::Redis).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_contract_holds_on_valkey() {
    contract_holds_on(Program::Valkey).await;
}

/// Servers without levers.
struct Servers {
    address: String,
}

#[async_trait]
impl Fixture for Servers {
    async fn open(&self, namespace: &str) -> Result<Arc<dyn Store>, StoreError> {
        Ok(Arc::new(Redis::open(&self.address, namespace)?))
    }

    fn scale(&self) -> Scale {
        Scale { racers: 4, wins: 6, shards: 1500, ..Scale::default() }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_contract_holds_on_a_cluster() {
    let Some(cluster) = RedisCluster::start(Program::Redis) else { return };
    conformance::assert_all(&Servers { address: cluster.address() }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_contract_holds_with_sentinels_and_replicas() {
    let Some(sentinel) = RedisSentinel::start(Program::Valkey, 2) else { return };
    conformance::assert_all(&Servers { address: sentinel.address() }).await;
}
