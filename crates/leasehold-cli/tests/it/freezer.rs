//! A control group whose processes are frozen as a sleeping machine's are: all at once, and none can notice.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use crate::process::wait_for;
use crate::supervisor::PATIENCE;

/// A group of processes.
#[derive(Debug)]
pub(crate) struct Freezer {
    folder: PathBuf,
    state: &'static str,
    frozen: &'static str,
    thawed: &'static str,
}

impl Freezer {
    /// A new, empty group; `None` where this machine lets us have none, which is told and counted.
    pub(crate) fn new(name: &str) -> Option<Freezer> {
        let name = format!("leasehold-{name}-{}", std::process::id());
        let kinds = [
            ("/sys/fs/cgroup/freezer", "freezer.state", "FROZEN", "THAWED"),
            ("/sys/fs/cgroup", "cgroup.freeze", "1", "0"),
            ("/sys/fs/cgroup/unified", "cgroup.freeze", "1", "0"),
        ];
        for (root, state, frozen, thawed) in kinds {
            let folder = PathBuf::from(root).join(&name);
            if fs::create_dir(&folder).is_ok() && folder.join(state).exists() {
                return Some(Freezer { folder, state, frozen, thawed });
            }
            let _ = fs::remove_dir(&folder);
        }
        leasehold_servers::skip(
            "no control group can be made to freeze processes: be root, or have one delegated",
        );
        None
    }

    /// Takes a process in; what it starts from now on is in it too.
    pub(crate) fn take(&self, pid: u32) {
        fs::write(self.folder.join("cgroup.procs"), pid.to_string()).expect("a process can be moved");
    }

    /// Freezes all of them, until what this gives back is dropped: declare it after everything that waits for a process in here.
    #[must_use]
    pub(crate) fn freeze(&self) -> Frozen<'_> {
        let asleep = || {
            fs::write(self.folder.join(self.state), self.frozen).expect("the group can be frozen");
            self.state != "freezer.state" || self.reads_frozen()
        };
        // A group whose processes start others just then may get stuck halfway; the kernel's advice is to try again.
        wait_for("all are frozen", PATIENCE, || {
            let done = (0..50).any(|_| {
                std::thread::sleep(Duration::from_millis(1));
                asleep()
            });
            if !done {
                self.thaw();
            }
            done.then_some(())
        });
        Frozen(self)
    }

    fn reads_frozen(&self) -> bool {
        fs::read_to_string(self.folder.join(self.state)).is_ok_and(|state| state.trim() == self.frozen)
    }

    fn thaw(&self) {
        let _ = fs::write(self.folder.join(self.state), self.thawed);
    }
}

/// A group that is frozen. It thaws when this is dropped.
#[derive(Debug)]
pub(crate) struct Frozen<'f>(&'f Freezer);

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        self.0.thaw();
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        self.thaw();
        // It goes once the last process has: those that are being killed need an instant.
        for _ in 0..100 {
            if fs::remove_dir(&self.folder).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
