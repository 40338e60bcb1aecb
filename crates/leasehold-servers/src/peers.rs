//! A door before the peers' side of every member of etcd, so that one member can be cut off from the others while its
//! clients still reach it.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The doors of a cluster. What every member tells the others is the place of its door.
#[derive(Clone, Debug, Default)]
pub(crate) struct Doors(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// The URLs of members that nothing passes to or from.
    cut_off: BTreeSet<String>,
    /// Connections, with the URLs of both ends.
    open: Vec<([String; 2], TcpStream)>,
}

impl Doors {
    /// A new door to the member that listens on that port; the answer is the door's own port.
    pub(crate) fn before(&self, port: u16) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let door = listener.local_addr().expect("it is bound").port();
        let doors = self.clone();
        let run = move || {
            for incoming in listener.incoming().flatten() {
                let doors = doors.clone();
                thread(move || drop(doors.pass(incoming, door, port)));
            }
        };
        thread(run);
        door
    }

    /// Lets nothing pass to or from the member behind a door any more.
    pub(crate) fn cut_off(&self, door: u16) {
        let url = url(door);
        let mut state = self.state();
        state.open.retain(|(ends, stream)| {
            let goes_on = !ends.contains(&url);
            if !goes_on {
                let _ = stream.shutdown(Shutdown::Both);
            }
            goes_on
        });
        state.cut_off.insert(url);
    }

    /// Lets everything pass again.
    pub(crate) fn heal(&self) {
        self.state().cut_off.clear();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Members say in their first request who they are. A connection without that only checks whether the port is open.
    fn pass(&self, mut incoming: TcpStream, door: u16, port: u16) -> std::io::Result<()> {
        let mut head = Vec::new();
        let mut some = [0; 4096];
        incoming.set_read_timeout(Some(Duration::from_secs(5)))?;
        while !head.windows(4).any(|four| four == b"\r\n\r\n") {
            match incoming.read(&mut some)? {
                0 => return Ok(()),
                count => head.extend_from_slice(&some[..count]),
            }
        }
        incoming.set_read_timeout(None)?;
        let text = String::from_utf8_lossy(&head).to_ascii_lowercase();
        let from = text.lines().find_map(|line| line.strip_prefix("x-peerurls: ")).unwrap_or_default();
        let ends = [url(door), from.trim().to_owned()];
        let mut outgoing = TcpStream::connect(("127.0.0.1", port))?;
        {
            let mut state = self.state();
            if ends.iter().any(|end| state.cut_off.contains(end)) {
                return Ok(());
            }
            state.open.push((ends.clone(), incoming.try_clone()?));
            state.open.push((ends, outgoing.try_clone()?));
        }
        outgoing.write_all(&head)?;
        let (back_from, back_to) = (outgoing.try_clone()?, incoming.try_clone()?);
        thread(move || copy(back_from, back_to));
        copy(incoming, outgoing);
        Ok(())
    }
}

/// The URL by which members know the one behind a door.
pub(crate) fn url(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

fn copy(mut from: TcpStream, mut to: TcpStream) {
    let _ = std::io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}

fn thread(work: impl FnOnce() + Send + 'static) {
    let started = std::thread::Builder::new().name("peers".to_owned()).spawn(work);
    drop(started.expect("a thread can be started"));
}
