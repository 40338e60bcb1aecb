use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::connection::{self, Fate};
use super::{Existing, Mode};

/// The waiting room of the kernel for connections that are not yet accepted.
const BACKLOG: u32 = 1024;

/// A new mode, and where to say that it is in force.
#[derive(Debug)]
pub(super) struct ModeChange {
    pub(super) mode: Mode,
    pub(super) done: SyncSender<io::Result<()>>,
}

/// One listening port in front of one upstream.
#[derive(Debug)]
pub(super) struct Gate {
    upstream: String,
    address: SocketAddr,
    changes: mpsc::UnboundedReceiver<ModeChange>,
    /// Keeps the port ours while nothing listens on it.
    _placeholder: TcpSocket,
    listener: Option<TcpListener>,
    mode: Mode,
    /// Told to all connections of this generation; a cut or a reset begins a new one.
    fate: watch::Sender<Fate>,
    connections: JoinSet<()>,
    /// Ends the connections that were forgotten, too.
    here: watch::Sender<()>,
}

impl Gate {
    /// Takes a free port and listens on it.
    pub(super) fn open(upstream: String, changes: mpsc::UnboundedReceiver<ModeChange>) -> io::Result<Self> {
        let placeholder = bound(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let address = placeholder.local_addr()?;
        let listener = Some(bound(address)?.listen(BACKLOG)?);
        let mode = Mode::Pass;
        let fate = watch::Sender::new(Fate::Live(mode));
        Ok(Gate {
            upstream,
            address,
            changes,
            _placeholder: placeholder,
            listener,
            mode,
            fate,
            connections: JoinSet::new(),
            here: watch::Sender::new(()),
        })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts connections and takes changes until their sender is gone.
    pub(super) async fn keep(mut self) {
        loop {
            tokio::select! {
                biased;
                change = self.changes.recv() => {
                    let Some(ModeChange { mode, done }) = change else { break };
                    let result = self.change_to(mode);
                    let _ = done.send(result);
                }
                _ = self.connections.join_next(), if !self.connections.is_empty() => {}
                client = accept(self.listener.as_ref()) => self.admit(client),
            }
        }
        self.fate.send_replace(Fate::Reset);
        self.here.send_replace(());
        while self.connections.join_next().await.is_some() {}
    }

    fn change_to(&mut self, mode: Mode) -> io::Result<()> {
        self.mode = mode;
        match mode {
            Mode::Cut(existing) => {
                self.listener = None;
                self.end_generation(match existing {
                    Existing::Silent => Fate::Forgotten,
                    Existing::Reset => Fate::Reset,
                });
                return Ok(());
            }
            Mode::Reset => self.end_generation(Fate::Reset),
            Mode::Pass | Mode::Delay { .. } | Mode::Stall | Mode::OneWay { .. } => {
                self.fate.send_replace(Fate::Live(mode));
            }
        }
        if self.listener.is_none() {
            self.listener = Some(bound(self.address)?.listen(BACKLOG)?);
        }
        Ok(())
    }

    fn end_generation(&mut self, fate: Fate) {
        self.fate.send_replace(fate);
        self.fate = watch::Sender::new(Fate::Live(self.mode));
    }

    fn admit(&mut self, client: TcpStream) {
        if self.mode == Mode::Reset {
            let _ = client.set_zero_linger();
            return;
        }
        let (fate, here) = (self.fate.subscribe(), self.here.subscribe());
        self.connections.spawn(connection::carry(client, self.upstream.clone(), fate, here));
    }
}

/// Never ends while nothing listens. An error of accepting (too many files, say) is waited out.
async fn accept(listener: Option<&TcpListener>) -> TcpStream {
    let Some(listener) = listener else { return std::future::pending().await };
    loop {
        match listener.accept().await {
            Ok((client, _)) => return client,
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

/// Two sockets may be bound to one port as long as both say so and at most one of them listens.
fn bound(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}
