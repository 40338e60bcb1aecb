use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::{Process, Program, RedisReply, RedisShell, find, free_port, wait_until};

/// One Redis or Valkey in a folder of its own.
#[derive(Debug)]
pub struct RedisServer {
    /// Where it listens without TLS.
    pub port: u16,
    program: PathBuf,
    folder: TempDir,
    args: Vec<String>,
    password: Option<String>,
    process: Process,
}

impl RedisServer {
    /// Starts one without persistence; `None` if the program is missing.
    pub fn start(program: Program) -> Option<Self> {
        RedisServer::start_with(program, &[])
    }

    /// Starts one with more or other settings than the usual ones, as on its command line.
    pub fn start_with(program: Program, settings: &[&str]) -> Option<Self> {
        RedisServer::start_at(program, free_port(), settings)
    }

    /// Starts one at this port.
    pub fn start_at(program: Program, port: u16, settings: &[&str]) -> Option<Self> {
        let program = find(program)?;
        let folder = TempDir::new().expect("a folder for a server");
        let mut args: Vec<String> =
            vec![format!("--port {port}"), "--bind 127.0.0.1".into(), "--save ''".into()];
        args.extend(["--appendonly no", "--repl-diskless-sync-delay 0", "--daemonize no"].map(String::from));
        args.extend(settings.iter().map(|setting| format!("--{setting}")));
        let args: Vec<String> =
            args.iter().flat_map(|arg| arg.split(' ')).map(|arg| arg.replace('\'', "")).collect();
        let password =
            settings.iter().find_map(|setting| setting.strip_prefix("requirepass ")).map(String::from);
        let process = Process::start("redis", &program, folder.path(), &args);
        let mut server = RedisServer { port, program, folder, args, password, process };
        server.wait_ready();
        Some(server)
    }

    /// The address that Leasehold takes.
    pub fn address(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// The folder that it runs in.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A stranger's connection.
    pub fn shell(&self) -> std::io::Result<RedisShell> {
        let mut shell = RedisShell::connect(self.port)?;
        if let Some(password) = &self.password {
            shell.ask(&["AUTH", password])?;
        }
        Ok(shell)
    }

    /// Asks one thing over a connection of its own.
    ///
    /// # Panics
    /// If it does not answer.
    pub fn ask<P: AsRef<[u8]>>(&self, parts: &[P]) -> RedisReply {
        self.shell().and_then(|mut shell| shell.ask(parts)).expect("Redis answers")
    }

    /// One line of what INFO says.
    pub fn info(&self, section: &str, name: &str) -> String {
        let text = self.ask(&["INFO", section]).text();
        let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        found.unwrap_or_default().trim().to_owned()
    }

    /// Stops it from answering, though its connections stand.
    pub fn stall(&self) {
        self.process.signal(Signal::SIGSTOP);
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.process.signal(Signal::SIGCONT);
    }

    /// Ends it at once, as kill -9 does.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Asks it to end, as a service manager does.
    pub fn stop(&mut self) {
        self.process.stop();
    }

    /// Starts it again, with the same settings, in the same folder.
    pub fn start_again(&mut self) {
        self.process.kill();
        self.process = Process::start("redis", &self.program, self.folder.path(), &self.args);
        self.wait_ready();
    }

    fn wait_ready(&mut self) {
        let port = self.port;
        self.process.wait_ready(|| {
            let reply = RedisShell::connect(port).and_then(|mut shell| shell.ask(&["PING"]));
            // A server that asks for a password is up.
            reply.is_ok_and(|reply| reply.text() == "PONG" || reply.text().starts_with("NOAUTH"))
        });
    }

    /// Waits until `yes`, asking again and again.
    ///
    /// # Panics
    /// With `what` and the end of its log, if that takes longer than 30 seconds.
    pub fn wait_for(&self, what: &str, yes: impl FnMut() -> bool) {
        assert!(
            wait_until(Duration::from_secs(30), yes),
            "{what} did not come; the log:\n{}",
            self.process.log_end()
        );
    }
}
