use std::io::Write;
use std::path::{Path, PathBuf};

/// A program that tests need and that `servers/install` brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// etcd as the distribution has it (3.4 on Debian 12).
    Etcd34,
    /// etcd 3.5, kept in the cache folder.
    Etcd35,
    /// Redis, which is Sentinel too.
    Redis,
    /// Valkey, kept in the cache folder.
    Valkey,
    /// The API server of Kubernetes 1.20, kept in the cache folder.
    KubeApiserver,
    /// The client of Kubernetes, which comes with the API server.
    Kubectl,
    /// SeaweedFS, a real S3 server, kept in the cache folder.
    SeaweedFs,
    /// moto, an emulator that answers with the codes of AWS, kept in the cache folder.
    Moto,
    /// Prometheus, as the distribution has it.
    Prometheus,
    /// The tool that comes with Prometheus and tests its rules.
    Promtool,
    /// rclone, whose S3 server ignores conditions, kept in the cache folder.
    Rclone,
}

impl Program {
    /// What to give to `servers/install`.
    pub fn name(self) -> &'static str {
        match self {
            Program::Etcd34 => "etcd",
            Program::Etcd35 => "etcd-3.5",
            Program::Redis => "redis",
            Program::Valkey => "valkey",
            Program::KubeApiserver | Program::Kubectl => "kube-apiserver",
            Program::SeaweedFs => "seaweedfs",
            Program::Moto => "moto",
            Program::Rclone => "rclone",
            Program::Prometheus | Program::Promtool => "prometheus",
        }
    }

    fn places(self) -> Vec<PathBuf> {
        match self {
            Program::Etcd34 => on_path("etcd"),
            Program::Etcd35 => vec![cache().join("etcd-3.5/etcd")],
            Program::Redis => on_path("redis-server"),
            Program::Valkey => vec![cache().join("valkey/valkey-server")],
            Program::KubeApiserver => vec![cache().join("kube-apiserver-1.20.2/kube-apiserver")],
            Program::Kubectl => on_path("kubectl"),
            Program::SeaweedFs => vec![cache().join("seaweedfs.venv/bin/weed")],
            Program::Moto => vec![cache().join("moto.venv/bin/moto_server")],
            Program::Prometheus => on_path("prometheus"),
            Program::Promtool => on_path("promtool"),
            Program::Rclone => vec![cache().join("rclone.venv/bin/rclone")],
        }
    }
}

/// Where the program is. `None`, after a loud note that is counted, means that the test must be skipped.
///
/// # Panics
/// Where `CI` is set and the program is missing.
pub fn find(program: Program) -> Option<PathBuf> {
    let found = program.places().into_iter().find(|place| place.is_file());
    if found.is_none() {
        skip(&format!("{} is missing: run servers/install {}", program.name(), program.name()));
    }
    found
}

/// Says loudly that a test is skipped, and counts it: `./test` names a file for that.
///
/// # Panics
/// Where `CI` is set: there nothing may be missing.
pub fn skip(note: &str) {
    assert!(std::env::var_os("CI").is_none(), "{note}");
    eprintln!("SKIPPED: {note}");
    let Some(path) = std::env::var_os("LEASEHOLD_SKIPS") else { return };
    let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
    let _ = file.and_then(|mut file| writeln!(file, "{note}"));
}

fn on_path(name: &str) -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join(name)).collect()
}

fn cache() -> PathBuf {
    let home = || Path::new(&std::env::var_os("HOME").unwrap_or_default()).join(".cache");
    std::env::var_os("XDG_CACHE_HOME").map_or_else(home, PathBuf::from).join("leasehold")
}
