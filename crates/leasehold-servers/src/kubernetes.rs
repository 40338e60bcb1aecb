use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::{Process, Program, find, free_port};

/// A user, identified by a bearer token: its name is the token.
const ADMIN: &str = "admin";

/// A real Kubernetes API server with RBAC, on an etcd of its own. There are no controllers, no nodes and no pods.
#[derive(Debug)]
pub struct Kubernetes {
    folder: TempDir,
    programs: Programs,
    port: u16,
    etcd_port: u16,
    etcd: Option<Process>,
    api: Option<Process>,
}

#[derive(Debug)]
struct Programs {
    api: PathBuf,
    etcd: PathBuf,
    kubectl: PathBuf,
}

/// What `kubectl` said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// Whether it succeeded.
    pub good: bool,
    /// All that it printed.
    pub text: String,
}

impl Kubernetes {
    /// Starts one, and waits until it answers. Besides `admin`, these users exist, who may do nothing before a role is
    /// bound to them; a service account is one by its long name, `system:serviceaccount:<namespace>:<name>`.
    ///
    /// `None`, after a loud note, means that a program is missing and the test must be skipped.
    ///
    /// # Panics
    /// If a server does not come up.
    pub fn start(users: &[&str]) -> Option<Self> {
        let programs = Programs {
            api: find(Program::KubeApiserver)?,
            etcd: find(Program::Etcd34)?,
            kubectl: find(Program::Kubectl)?,
        };
        let folder = TempDir::new().expect("a folder for the server");
        let mut tokens = format!("{ADMIN},{ADMIN},{ADMIN},system:masters\n");
        for user in users {
            let group =
                if user.starts_with("system:serviceaccount:") { ",system:serviceaccounts" } else { "" };
            tokens.push_str(&format!("{user},{user},{user}{group}\n"));
        }
        fs::write(folder.path().join("tokens.csv"), tokens).expect("the tokens can be written");
        let made = Command::new("openssl")
            .args(["genrsa", "-out", "sa.key", "2048"])
            .current_dir(folder.path())
            .stderr(Stdio::null())
            .status();
        assert!(made.is_ok_and(|status| status.success()), "openssl makes a key");
        let (port, etcd_port) = (free_port(), free_port());
        let mut server = Kubernetes { folder, programs, port, etcd_port, etcd: None, api: None };
        server.start_etcd();
        server.start_api();
        Some(server)
    }

    /// Where the server answers.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its folder, where files can be left until it ends.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The kubeconfig of a user, for this server.
    pub fn kubeconfig(&self, user: &str) -> PathBuf {
        self.kubeconfig_to(user, self.port)
    }

    /// A kubeconfig with a token that the server may not know.
    pub fn kubeconfig_with_token(&self, token: &str) -> PathBuf {
        self.kubeconfig_to(token, self.port)
    }

    /// The kubeconfig of a user for something on another port that passes on to this server.
    pub fn kubeconfig_to(&self, user: &str, port: u16) -> PathBuf {
        let path = self.folder.path().join(format!("kubeconfig-{}-{port}", user.replace(':', "-")));
        let authority = format!("certificate-authority: {}", self.certificate().display());
        // Others may be reading the file, so it is never half written.
        let fresh = path.with_extension(format!("{:?}", std::thread::current().id()));
        fs::write(&fresh, kubeconfig_text(user, port, &authority)).expect("the kubeconfig can be written");
        fs::rename(&fresh, &path).expect("the kubeconfig can be renamed");
        path
    }

    /// The kubeconfig of a user as a text that needs no other file.
    pub fn kubeconfig_text(&self, user: &str) -> String {
        let encoded = Command::new("openssl").args(["base64", "-A", "-in"]).arg(self.certificate()).output();
        let encoded = String::from_utf8(encoded.expect("openssl encodes").stdout).expect("base64 is text");
        kubeconfig_text(user, self.port, &format!("certificate-authority-data: {encoded}"))
    }

    /// A file with the certificate that the server shows, and with the one that signed it.
    pub fn certificate(&self) -> PathBuf {
        self.folder.path().join("certs/apiserver.crt")
    }

    /// The key that belongs to the certificate, for a proxy that shows the same one.
    pub fn certificate_key(&self) -> PathBuf {
        self.folder.path().join("certs/apiserver.key")
    }

    /// Runs `kubectl` as `admin`.
    pub fn kubectl(&self, args: &[&str]) -> Said {
        self.kubectl_as(ADMIN, args, "")
    }

    /// Runs `kubectl` as a user, with something to read.
    pub fn kubectl_as(&self, user: &str, args: &[&str], input: &str) -> Said {
        let mut command = Command::new(&self.programs.kubectl);
        command.arg("--kubeconfig").arg(self.kubeconfig(user)).args(args).current_dir(self.folder.path());
        command.env("HOME", self.folder.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("kubectl can be started");
        let mut pipe = child.stdin.take().expect("it was asked for");
        let _ = pipe.write_all(input.as_bytes());
        drop(pipe);
        let output = child.wait_with_output().expect("kubectl ends");
        let text =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        Said { good: output.status.success(), text }
    }

    /// Ends the API server as kill -9 does and starts it again; etcd goes on.
    pub fn restart(&mut self) {
        self.kill();
        self.start_api();
    }

    /// Ends the API server as kill -9 does.
    pub fn kill(&mut self) {
        self.api = None;
    }

    /// Starts the API server again.
    pub fn start_again(&mut self) {
        self.start_api();
    }

    /// Freezes the API server: it neither answers nor closes connections.
    pub fn stall(&self) {
        if let Some(api) = &self.api {
            api.signal(Signal::SIGSTOP);
        }
    }

    /// Lets a frozen API server go on.
    pub fn go_on(&self) {
        if let Some(api) = &self.api {
            api.signal(Signal::SIGCONT);
        }
    }

    /// A copy of all that is in the store, taken while everything is down for a moment.
    pub fn backup(&mut self) -> PathBuf {
        let copy = self.folder.path().join(format!("backup-{}", free_port()));
        self.stopped(|data| copy_folder(data, &copy));
        copy
    }

    /// Puts a backup in place of what is in the store.
    pub fn restore(&mut self, copy: &Path) {
        self.stopped(|data| {
            fs::remove_dir_all(data).expect("the data can be removed");
            copy_folder(copy, data);
        });
    }

    fn stopped(&mut self, work: impl FnOnce(&Path)) {
        self.api = None;
        if let Some(mut etcd) = self.etcd.take() {
            etcd.stop();
        }
        work(&self.folder.path().join("etcd"));
        self.start_etcd();
        self.start_api();
    }

    fn start_etcd(&mut self) {
        let client = format!("http://127.0.0.1:{}", self.etcd_port);
        let peer = format!("http://127.0.0.1:{}", free_port());
        let args: Vec<String> = [
            ("--data-dir", "etcd"),
            ("--listen-client-urls", &client),
            ("--advertise-client-urls", &client),
            ("--listen-peer-urls", &peer),
            ("--initial-advertise-peer-urls", &peer),
            ("--initial-cluster", &format!("default={peer}")),
            ("--logger", "zap"),
            ("--log-level", "warn"),
        ]
        .iter()
        .flat_map(|(name, value)| [(*name).to_owned(), (*value).to_owned()])
        .chain(["--unsafe-no-fsync".to_owned()])
        .collect();
        let mut etcd = Process::start("etcd", &self.programs.etcd, self.folder.path(), &args);
        let port = self.etcd_port;
        etcd.wait_ready(|| std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
        self.etcd = Some(etcd);
    }

    fn start_api(&mut self) {
        let args: Vec<String> = [
            ("etcd-servers", format!("http://127.0.0.1:{}", self.etcd_port)),
            ("bind-address", "127.0.0.1".to_owned()),
            ("secure-port", self.port.to_string()),
            ("cert-dir", "certs".to_owned()),
            ("service-account-issuer", "https://kubernetes.default.svc".to_owned()),
            ("service-account-key-file", "sa.key".to_owned()),
            ("service-account-signing-key-file", "sa.key".to_owned()),
            ("authorization-mode", "RBAC".to_owned()),
            ("token-auth-file", "tokens.csv".to_owned()),
            ("service-cluster-ip-range", "10.96.0.0/24".to_owned()),
            ("endpoint-reconciler-type", "none".to_owned()),
            ("disable-admission-plugins", "ServiceAccount".to_owned()),
            ("profiling", "false".to_owned()),
        ]
        .iter()
        .map(|(name, value)| format!("--{name}={value}"))
        .collect();
        let mut api = Process::start("apiserver", &self.programs.api, self.folder.path(), &args);
        api.wait_ready(|| {
            self.certificate().is_file() && self.kubectl(&["get", "--raw", "/readyz"]).text == "ok"
        });
        self.api = Some(api);
    }
}

fn kubeconfig_text(token: &str, port: u16, authority: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: test\n\
         clusters:\n- name: test\n  cluster:\n    server: https://127.0.0.1:{port}\n    {authority}\n\
         users:\n- name: test\n  user:\n    token: {token}\n\
         contexts:\n- name: test\n  context:\n    cluster: test\n    user: test\n    namespace: default\n"
    )
}

fn copy_folder(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).status();
    assert!(copied.is_ok_and(|status| status.success()), "{} can be copied", from.display());
}
