//! The guard's end of a command's process namespace ([`init`] is the other).

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;

use super::descriptor::send_fd;
use super::init;
use super::wire::Report;

/// The first process of the command's namespace, as the guard sees it.
pub(super) struct Inside {
    pub(super) socket: UnixStream,
    heard: Vec<u8>,
    /// The command was not started.
    pub(super) failed: bool,
    /// It has closed its end.
    pub(super) silent: bool,
}

impl Inside {
    /// Starts it, with the command below it; the answer has its process id.
    pub(super) fn start(command: &[OsString], stdin: Option<OwnedFd>) -> io::Result<(i32, Inside)> {
        init::leave_namespace()?;
        let (ours, theirs) = UnixStream::pair()?;
        let child = Command::new("/proc/self/exe")
            .arg0("leasehold-guard")
            .args(["guard-init", if stdin.is_some() { "sent" } else { "null" }, "--"])
            .args(command)
            .stdin(OwnedFd::from(theirs))
            .spawn()?;
        if let Some(stdin) = stdin {
            send_fd(&ours, &stdin)?;
        }
        ours.set_nonblocking(true)?;
        let inside = Inside { socket: ours, heard: Vec::new(), failed: false, silent: false };
        Ok((child.id() as i32, inside))
    }

    pub(super) fn terminate(&mut self) {
        // One that does not listen is killed soon.
        let _ = self.socket.write_all(init::TERMINATE);
    }

    /// What it said since we last looked.
    pub(super) fn reports(&mut self) -> Vec<Report> {
        let mut bytes = [0u8; 1024];
        loop {
            match self.socket.read(&mut bytes) {
                Ok(count @ 1..) => self.heard.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Ok(_) | Err(_) => {
                    self.silent = true;
                    break;
                }
            }
        }
        let end = self.heard.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let said: Vec<u8> = self.heard.drain(..end).collect();
        String::from_utf8_lossy(&said).lines().filter_map(Report::parse).collect()
    }
}
