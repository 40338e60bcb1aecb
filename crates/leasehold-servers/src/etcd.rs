use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use tempfile::TempDir;

use crate::peers::{self, Doors};
use crate::{Certificates, Process, Program, find, free_port, wait_until};

/// The configuration of an etcd cluster.
#[derive(Clone, Debug)]
pub struct EtcdSetup {
    /// Which etcd.
    pub program: Program,
    /// How many members.
    pub members: usize,
    /// Whether clients must use TLS and show a certificate.
    pub tls: bool,
    /// Whether members can be cut off from each other.
    pub doors: bool,
    /// More arguments for every member.
    pub args: Vec<String>,
}

impl EtcdSetup {
    /// One member of this version, without TLS.
    pub fn single(program: Program) -> Self {
        EtcdSetup { program, members: 1, tls: false, doors: false, args: Vec::new() }
    }

    /// The same with this many members.
    pub fn members(mut self, members: usize) -> Self {
        self.members = members;
        self
    }

    /// The same with TLS, for clients with a certificate.
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// The same with members that can be cut off from each other while their clients still reach them.
    pub fn doors(mut self) -> Self {
        self.doors = true;
        self
    }

    /// The same with one more argument.
    pub fn arg(mut self, arg: impl Into<String>) -> Self {
        self.args.push(arg.into());
        self
    }
}

/// A cluster of etcd on loopback. It ends when this is dropped.
#[derive(Debug)]
pub struct Etcd {
    setup: EtcdSetup,
    program: PathBuf,
    folder: TempDir,
    certificates: Option<Certificates>,
    members: Vec<Member>,
    doors: Doors,
    /// What `etcdctl` says it is, as `user:password`.
    login: Option<String>,
}

#[derive(Debug)]
struct Member {
    name: String,
    client_port: u16,
    peer_port: u16,
    /// Where the other members find it.
    door: u16,
    data: PathBuf,
    process: Option<Process>,
}

impl Etcd {
    /// Starts a cluster and waits until it serves. `None` if the program is missing.
    ///
    /// # Panics
    /// If it does not come up.
    pub fn start(setup: EtcdSetup) -> Option<Self> {
        let program = find(setup.program)?;
        let folder =
            tempfile::Builder::new().prefix("leasehold-etcd-").tempdir().expect("a folder can be made");
        let certificates = setup.tls.then(|| Certificates::make(folder.path(), "tester"));
        let doors = Doors::default();
        let members = (0..setup.members)
            .map(|number| {
                let name = format!("m{number}");
                let data = folder.path().join(format!("{name}.data"));
                let peer_port = free_port();
                let door = if setup.doors { doors.before(peer_port) } else { peer_port };
                Member { name, client_port: free_port(), peer_port, door, data, process: None }
            })
            .collect();
        let mut cluster = Etcd { setup, program, folder, certificates, members, doors, login: None };
        (0..cluster.members.len()).for_each(|member| cluster.launch(member));
        cluster.wait_until_it_serves();
        Some(cluster)
    }

    /// The members as `host:port,host:port`, for an address.
    pub fn hosts(&self) -> String {
        let hosts: Vec<_> = (0..self.members.len()).map(|member| self.host(member)).collect();
        hosts.join(",")
    }

    /// One member as `host:port`.
    pub fn host(&self, member: usize) -> String {
        format!("127.0.0.1:{}", self.members[member].client_port)
    }

    /// Cuts a member off from the others; its clients still reach it.
    ///
    /// # Panics
    /// If the set-up has no doors.
    pub fn cut_off(&self, member: usize) {
        assert!(self.setup.doors, "members of this cluster cannot be cut off");
        self.doors.cut_off(self.members[member].door);
    }

    /// Lets members that were cut off reach the others again.
    pub fn reconnect(&self) {
        self.doors.heal();
    }

    /// The certificates, if there is TLS.
    pub fn certificates(&self) -> Option<&Certificates> {
        self.certificates.as_ref()
    }

    /// A folder that lives as long as the cluster.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The process of a member that runs, to signal.
    ///
    /// # Panics
    /// If it does not run.
    pub fn process(&self, member: usize) -> &Process {
        self.members[member].process.as_ref().expect("the member runs")
    }

    /// Kills a member, as kill -9 does.
    pub fn kill(&mut self, member: usize) {
        if let Some(mut process) = self.members[member].process.take() {
            process.kill();
        }
    }

    /// Starts a member that was killed, on the data that it had.
    pub fn revive(&mut self, member: usize) {
        self.launch(member);
    }

    /// Kills all members, starts them again on their data, and waits until they serve.
    pub fn restart(&mut self) {
        (0..self.members.len()).for_each(|member| self.kill(member));
        (0..self.members.len()).for_each(|member| self.launch(member));
        self.wait_until_it_serves();
    }

    /// Which member leads. `None` while nobody does.
    pub fn leader(&self) -> Option<usize> {
        (0..self.members.len()).filter(|member| self.members[*member].process.is_some()).find(|member| {
            let status = self.ctl_at(&self.host(*member), &["endpoint", "status", "-w", "fields"]);
            let text = String::from_utf8_lossy(&status.stdout).into_owned();
            let field = |name: &str| {
                let line = text.lines().find(|line| line.starts_with(&format!("\"{name}\"")))?;
                line.rsplit(' ').next().map(str::to_owned)
            };
            field("MemberID").is_some_and(|id| Some(id) == field("Leader"))
        })
    }

    /// Sets the user of `etcdctl` from now on, as `user:password`.
    pub fn log_in(&mut self, login: &str) {
        self.login = Some(login.to_owned());
    }

    /// Runs `etcdctl` and gives what it printed.
    ///
    /// # Panics
    /// If it fails.
    pub fn ctl(&self, args: &[&str]) -> String {
        let output = self.ctl_at(&self.hosts(), args);
        let (said, wrong) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "etcdctl {args:?}: {said}{wrong}");
        said.into_owned()
    }

    /// Saves the data of a cluster of one member to a file.
    pub fn save(&self, file: &Path) {
        self.ctl(&["snapshot", "save", &file.display().to_string()]);
    }

    /// Puts saved data in the place of what a cluster of one member has. With another `token` it becomes another
    /// cluster, with the same one it has the same id as before.
    pub fn restore(&mut self, file: &Path, token: Option<&str>) {
        self.kill(0);
        let data = tempfile::Builder::new().prefix("restored-").tempdir_in(self.folder.path());
        let data = data.expect("a folder can be made").keep().join("data");
        let (cluster, peer) = (self.initial_cluster(), peers::url(self.members[0].door));
        let mut args = vec!["snapshot".to_owned(), "restore".into(), file.display().to_string()];
        args.extend(["--data-dir".into(), data.display().to_string(), "--name".into(), "m0".into()]);
        args.extend(["--initial-cluster".into(), cluster, "--initial-advertise-peer-urls".into(), peer]);
        args.extend(token.into_iter().flat_map(|token| ["--initial-cluster-token".into(), token.into()]));
        self.ctl(&args.iter().map(String::as_str).collect::<Vec<_>>());
        self.members[0].data = data;
        self.launch(0);
        self.wait_until_it_serves();
    }

    fn wait_until_it_serves(&mut self) {
        let up = wait_until(Duration::from_secs(30), || {
            self.members.iter_mut().flat_map(|member| &mut member.process).any(Process::has_ended)
                || self.ctl_at(&self.hosts(), &["endpoint", "health"]).status.success()
        });
        let ended = self
            .members
            .iter_mut()
            .flat_map(|m| &mut m.process)
            .find_map(|process| (process.has_ended() || !up).then(|| process.log_end()));
        assert!(up && ended.is_none(), "etcd did not come up:\n{}", ended.unwrap_or_default());
    }

    fn ctl_at(&self, endpoints: &str, args: &[&str]) -> Output {
        let scheme = if self.certificates.is_some() { "https" } else { "http" };
        let endpoints: Vec<_> = endpoints.split(',').map(|host| format!("{scheme}://{host}")).collect();
        let mut command = Command::new(self.program.with_file_name("etcdctl"));
        command.env("ETCDCTL_API", "3").args(["--dial-timeout=1s", "--command-timeout=3s"]);
        command.arg("--endpoints").arg(endpoints.join(","));
        if let Some(certificates) = &self.certificates {
            for (flag, file) in [("--cacert", "ca.pem"), ("--cert", "client.pem"), ("--key", "client.key")] {
                command.arg(flag).arg(certificates.file(file));
            }
        }
        if let Some(login) = &self.login {
            command.arg("--user").arg(login);
        }
        command.args(args).output().expect("etcdctl stands beside etcd")
    }

    fn initial_cluster(&self) -> String {
        let members =
            self.members.iter().map(|member| format!("{}={}", member.name, peers::url(member.door)));
        members.collect::<Vec<_>>().join(",")
    }

    fn launch(&mut self, number: usize) {
        let cluster = self.initial_cluster();
        let scheme = if self.certificates.is_some() { "https" } else { "http" };
        let member = &self.members[number];
        let client = format!("{scheme}://127.0.0.1:{}", member.client_port);
        let mut args: Vec<String> = Vec::new();
        let mut set = |flag: &str, value: String| args.push(format!("--{flag}={value}"));
        set("name", member.name.clone());
        set("data-dir", member.data.display().to_string());
        set("listen-client-urls", client.clone());
        set("advertise-client-urls", client);
        set("listen-peer-urls", peers::url(member.peer_port));
        set("initial-advertise-peer-urls", peers::url(member.door));
        set("initial-cluster", cluster);
        set("initial-cluster-state", "new".into());
        set("logger", "zap".into());
        set("log-level", "warn".into());
        set("unsafe-no-fsync", "true".into());
        if let Some(certificates) = &self.certificates {
            for (flag, file) in
                [("cert-file", "server.pem"), ("key-file", "server.key"), ("trusted-ca-file", "ca.pem")]
            {
                set(flag, certificates.file(file).display().to_string());
            }
            set("client-cert-auth", "true".into());
        }
        args.extend(self.setup.args.iter().cloned());
        let process = Process::start(&member.name, &self.program, self.folder.path(), &args);
        self.members[number].process = Some(process);
    }
}
