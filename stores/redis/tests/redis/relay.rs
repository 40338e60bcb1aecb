use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A way to a server that can be stalled: connections stand and are accepted, but nothing comes through.
#[derive(Clone, Debug)]
pub(crate) struct Relay {
    pub(crate) port: u16,
    stalled: Arc<AtomicBool>,
}

impl Relay {
    /// Passes everything on to a port of this machine, for as long as the runtime lives.
    pub(crate) async fn to(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let relay =
            Relay { port: listener.local_addr().unwrap().port(), stalled: Arc::new(AtomicBool::new(false)) };
        let stalled = relay.stalled.clone();
        spawn(async move {
            loop {
                let Ok((client, _)) = listener.accept().await else { return };
                let stalled = stalled.clone();
                spawn(async move {
                    passes(&stalled).await;
                    let Ok(server) = TcpStream::connect(("127.0.0.1", server)).await else { return };
                    let (from_client, to_client) = client.into_split();
                    let (from_server, to_server) = server.into_split();
                    tokio::join!(
                        pass(from_client, to_server, &stalled),
                        pass(from_server, to_client, &stalled)
                    );
                });
            }
        });
        relay
    }

    pub(crate) fn stall(&self) {
        self.stalled.store(true, Ordering::Relaxed);
    }

    pub(crate) fn heal(&self) {
        self.stalled.store(false, Ordering::Relaxed);
    }
}

async fn pass(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    stalled: &AtomicBool,
) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        passes(stalled).await;
        if to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}

async fn passes(stalled: &AtomicBool) {
    while stalled.load(Ordering::Relaxed) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[allow(clippy::disallowed_methods, reason = "the relay ends with the test's runtime")]
fn spawn(task: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(task);
}
