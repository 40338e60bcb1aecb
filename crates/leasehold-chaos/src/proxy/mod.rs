//! A TCP proxy on loopback that stands between a node and its store, and can be told to misbehave.
//!
//! ```no_run
//! use leasehold_chaos::proxy::{Mode, Proxy};
//!
//! let proxy = Proxy::start(["127.0.0.1:2379"])?;
//! let endpoint = proxy.address(0); // give this to the node in place of the store's own address
//! proxy.set(Mode::Stall)?;
//! # let _ = endpoint;
//! # std::io::Result::Ok(())
//! ```
//!
//! It works on a thread of its own, so that neither a busy nor a paused runtime of its user changes what it does, and
//! it may be used from code that is not async.

mod connection;
mod gate;
mod mode;

use std::io;
use std::net::SocketAddr;
use std::sync::mpsc as acknowledgement;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::mpsc;

use gate::{Gate, ModeChange};
pub use mode::{Direction, Existing, Mode};

/// How long a change may take until it is in force. It needs no I/O beyond this machine, so this is never reached.
const PATIENCE: Duration = Duration::from_secs(10);

/// A proxy with one gate for each upstream. It ends, with all its connections reset, when it is dropped.
#[derive(Debug)]
pub struct Proxy {
    gates: Vec<Door>,
    thread: Option<JoinHandle<()>>,
}

/// Where a gate listens, and how it is told what to do.
#[derive(Debug)]
struct Door {
    address: SocketAddr,
    changes: Option<mpsc::UnboundedSender<ModeChange>>,
}

impl Proxy {
    /// Listens on one free loopback port for each upstream, each given as `host:port` and resolved again for every
    /// connection. All gates start in [`Mode::Pass`].
    pub fn start<U: Into<String>>(upstreams: impl IntoIterator<Item = U>) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let opened = {
            let _context = runtime.enter();
            open(upstreams)
        };
        let (doors, gates) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                // To wait for its end is not allowed where this is called from async code.
                runtime.shutdown_background();
                return Err(error);
            }
        };
        let thread = std::thread::Builder::new().name("proxy".into()).spawn(move || {
            runtime.block_on(async {
                let mut all = tokio::task::JoinSet::new();
                for gate in gates {
                    all.spawn(gate.keep());
                }
                while all.join_next().await.is_some() {}
            });
            // A name that is being looked up must not hold up the end.
            runtime.shutdown_background();
        })?;
        Ok(Proxy { gates: doors, thread: Some(thread) })
    }

    /// Where the gate of the upstream with this index listens.
    ///
    /// # Panics
    /// If there is no such upstream.
    pub fn address(&self, upstream: usize) -> SocketAddr {
        self.gates[upstream].address
    }

    /// Where all the gates listen, in the order of the upstreams.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.gates.iter().map(|gate| gate.address).collect()
    }

    /// Changes the mode of all gates. Once this returns it is in force: not a byte passes that the mode forbids.
    pub fn set(&self, mode: Mode) -> io::Result<()> {
        (0..self.gates.len()).try_for_each(|upstream| self.set_one(upstream, mode))
    }

    /// Changes the mode of one gate.
    ///
    /// # Panics
    /// If there is no such upstream.
    pub fn set_one(&self, upstream: usize, mode: Mode) -> io::Result<()> {
        let (done, answer) = acknowledgement::sync_channel(1);
        let ended = || io::Error::other("the proxy has ended");
        let changes = self.gates[upstream].changes.as_ref().ok_or_else(ended)?;
        changes.send(ModeChange { mode, done }).map_err(|_| ended())?;
        answer.recv_timeout(PATIENCE).map_err(|_| ended())?
    }
}

/// Opens a gate for each upstream, within a runtime.
fn open<U: Into<String>>(upstreams: impl IntoIterator<Item = U>) -> io::Result<(Vec<Door>, Vec<Gate>)> {
    let (mut doors, mut gates) = (Vec::new(), Vec::new());
    for upstream in upstreams {
        let (changes, received) = mpsc::unbounded_channel();
        let gate = Gate::open(upstream.into(), received)?;
        doors.push(Door { address: gate.address(), changes: Some(changes) });
        gates.push(gate);
    }
    Ok((doors, gates))
}

impl Drop for Proxy {
    fn drop(&mut self) {
        for gate in &mut self.gates {
            gate.changes = None;
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
