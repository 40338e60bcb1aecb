use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{OnceLock, mpsc};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A server that runs. It is killed when this is dropped, and by the kernel when this process ends.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a program whose output goes to `NAME.log` in the folder.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start(name: &str, program: &Path, folder: &Path, args: &[String]) -> Self {
        let log = folder.join(format!("{name}.log"));
        let out = File::options().create(true).append(true).open(&log).expect("the log can be written");
        // The kernel ends it when the thread that started it ends: so that is one which lives as long as the process.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]).arg(program).args(args).current_dir(folder);
        command.stdin(Stdio::null()).stdout(out.try_clone().expect("a file has two handles")).stderr(out);
        let child = spawn(command).unwrap_or_else(|e| panic!("{name} cannot be started: {e}"));
        Process { name: name.to_owned(), child, log }
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal: SIGSTOP and SIGCONT to stall it.
    pub fn signal(&self, signal: Signal) {
        let _ = kill(Pid::from_raw(self.child.id() as i32), signal);
    }

    /// Ends it at once, as kill -9 does, and waits until it is gone.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Asks it to end, and waits until it is gone; after ten seconds it is killed.
    pub fn stop(&mut self) {
        self.signal(Signal::SIGTERM);
        wait_until(Duration::from_secs(10), || self.has_ended());
        self.kill();
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits until `ready` says so.
    ///
    /// # Panics
    /// With the end of its log, if it ends or is not ready in 30 seconds.
    pub fn wait_ready(&mut self, mut ready: impl FnMut() -> bool) {
        let up = wait_until(Duration::from_secs(30), || self.has_ended() || ready());
        if !up || self.has_ended() {
            panic!("{} did not come up; the end of its log:\n{}", self.name, self.log_end());
        }
    }

    /// The last lines that it wrote.
    pub fn log_end(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(30)..].join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.signal(Signal::SIGCONT);
        self.kill();
    }
}

/// Asks again and again until the answer is yes; `false` if that takes too long.
pub fn wait_until(at_most: Duration, mut yes: impl FnMut() -> bool) -> bool {
    let step = Duration::from_millis(20);
    for _ in 0..at_most.as_millis() / step.as_millis() {
        if yes() {
            return true;
        }
        std::thread::sleep(step);
    }
    yes()
}

type SpawnRequest = (Command, mpsc::Sender<std::io::Result<Child>>);

fn spawn(command: Command) -> std::io::Result<Child> {
    static NURSERY: OnceLock<mpsc::Sender<SpawnRequest>> = OnceLock::new();
    let nursery = NURSERY.get_or_init(|| {
        let (orders, received) = mpsc::channel::<SpawnRequest>();
        std::thread::Builder::new()
            .name("servers".into())
            .spawn(move || {
                for (mut command, answer) in received {
                    let _ = answer.send(command.spawn());
                }
            })
            .expect("a thread can be started");
        orders
    });
    let (answer, child) = mpsc::channel();
    nursery.send((command, answer)).map_err(std::io::Error::other)?;
    child.recv().map_err(std::io::Error::other)?
}
