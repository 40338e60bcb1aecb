//! The suite that every store must pass.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_servers::{Program, S3Server};
use leasehold_store::conformance::{self, Fixture, Saved, Scale, Step};
use leasehold_store::{Key, Store, StoreError};

use crate::common::{BUCKET, open, open_at, server};
use crate::proxy::{Fault, Proxy};

struct OnS3 {
    server: &'static S3Server,
    scale: Scale,
}

type Backup = Vec<(String, Vec<u8>)>;

#[async_trait]
impl Fixture for OnS3 {
    async fn open(&self, namespace: &str) -> Result<Arc<dyn Store>, StoreError> {
        Ok(open(self.server, namespace))
    }

    async fn open_stepped(&self, namespace: &str, step: Step) -> Option<Result<Arc<dyn Store>, StoreError>> {
        let proxy = Proxy::stepping(self.server.port(), Some(step));
        let address = self.server.address_at(&proxy.endpoint(), BUCKET, "&poll=300ms&timeout=30s");
        Some(Ok(open_at(&address, namespace)))
    }

    async fn wipe(&self, namespace: &str) -> Option<()> {
        for object in self.objects(namespace) {
            self.server.delete_object(BUCKET, &object);
        }
        Some(())
    }

    async fn save(&self, namespace: &str) -> Option<Saved> {
        let read = |object: String| Some((object.clone(), self.server.get_object(BUCKET, &object)?));
        let saved: Backup = self.objects(namespace).into_iter().filter_map(read).collect();
        Some(Box::new(saved))
    }

    async fn roll_back(&self, namespace: &str, saved: Saved) -> Option<()> {
        self.wipe(namespace).await?;
        for (object, body) in saved.downcast_ref::<Backup>()? {
            self.server.put_object(BUCKET, object, body);
        }
        Some(())
    }

    async fn put_raw(&self, namespace: &str, key: &str, bytes: &[u8]) -> Option<()> {
        match key.parse::<Key>() {
            Ok(Key::Shard(_)) => self.damage_row(namespace, key, bytes),
            _ => self.server.put_object(BUCKET, &format!("leasehold/{namespace}/{key}"), bytes),
        }
        Some(())
    }

    fn scale(&self) -> Scale {
        self.scale.clone()
    }
}

impl OnS3 {
    fn objects(&self, namespace: &str) -> Vec<String> {
        self.server.objects(BUCKET, &format!("leasehold/{namespace}"))
    }

    /// Edits a page by hand.
    fn damage_row(&self, namespace: &str, key: &str, bytes: &[u8]) {
        for object in self.objects(namespace) {
            let body = self.server.get_object(BUCKET, &object).unwrap_or_default();
            let Ok(mut page) = serde_json::from_slice::<serde_json::Value>(&body) else { continue };
            let Some(row) = page.get_mut("rows").and_then(|rows| rows.get_mut(key)) else { continue };
            *row = serde_json::json!({"version": "edited", "text": String::from_utf8_lossy(bytes)});
            self.server.put_object(BUCKET, &object, page.to_string().as_bytes());
        }
    }
}

/// The same with a server of its own, which can be restarted, behind a proxy that can break looks.
struct Restarted {
    server: Mutex<S3Server>,
    proxy: Proxy,
}

#[async_trait]
impl Fixture for Restarted {
    async fn open(&self, namespace: &str) -> Result<Arc<dyn Store>, StoreError> {
        let more = "&poll=300ms&timeout=3s";
        let address = self.server.lock().unwrap().address_at(&self.proxy.endpoint(), BUCKET, more);
        Ok(open_at(&address, namespace))
    }

    async fn break_watches(&self, _namespace: &str) -> Option<()> {
        self.proxy.inject("GET", "changed.json", Fault::Answered(500, "InternalError"));
        Some(())
    }

    async fn restart(&self) -> Option<()> {
        self.server.lock().unwrap().restart();
        Some(())
    }

    fn scale(&self) -> Scale {
        Scale { patience: Duration::from_secs(20), ..scale() }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_fails_or_is_restarted_loses_nothing() {
    let Some(server) = S3Server::start(Program::SeaweedFs) else { return };
    server.make_bucket(BUCKET);
    let proxy = Proxy::before(server.port());
    let fixture = Restarted { server: Mutex::new(server), proxy };
    for property in conformance::PROPERTIES {
        if ["a_broken_watch_resumes_with_a_snapshot", "acknowledged_writes_survive_a_restart"]
            .contains(&property.name)
        {
            property.check(&fixture).await.unwrap_or_else(|unmet| panic!("{}: {unmet:?}", property.name));
        }
    }
}

fn run(program: Program, scale: Scale) {
    let Some(server) = server(program) else { return };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(conformance::assert_all(&OnS3 { server, scale }));
}

/// A writer writes between any two requests of the reader: see `open_stepped`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_vouches_for_the_rest_is_read_last() {
    let Some(server) = server(Program::SeaweedFs) else { return };
    let fixture = OnS3 { server, scale: scale() };
    for name in ["lists_read_meta_last", "node_lists_read_meta_last", "reads_end_with_the_last_key"] {
        let property = conformance::PROPERTIES.iter().find(|property| property.name == name).expect(name);
        match property.check(&fixture).await {
            Ok(conformance::Note(note)) => println!("{name}: {note}"),
            Err(unmet) => panic!("{name}: {unmet:?}"),
        }
    }
}

#[test]
fn seaweedfs_keeps_the_contract() {
    // Racing conditional writes of one object take it about a second each.
    run(Program::SeaweedFs, Scale { racers: 4, wins: 3, shards: 3_000, ..scale() });
}

#[test]
fn moto_keeps_the_contract() {
    run(Program::Moto, Scale { racers: 6, wins: 5, shards: 3_000, ..scale() });
}

fn scale() -> Scale {
    Scale {
        patience: Duration::from_secs(20),
        property_timeout: Duration::from_secs(180),
        ..Scale::default()
    }
}
