use std::time::Duration;

use tempfile::TempDir;

use crate::{Process, Program, RedisServer, RedisShell, find, free_port, wait_until};

/// A master with replicas, and three sentinels that watch over it under the name `mymaster`.
#[derive(Debug)]
pub struct RedisSentinel {
    /// The master of the beginning, and then its replicas.
    pub servers: Vec<RedisServer>,
    ports: Vec<u16>,
    _sentinels: Vec<(TempDir, Process)>,
}

impl RedisSentinel {
    /// Starts them all, and waits until they know each other; `None` if a program is missing. A master that says
    /// nothing for a second is replaced.
    pub fn start(program: Program, replicas: usize) -> Option<Self> {
        let sentinel = find(program)?;
        let mut servers = vec![RedisServer::start(program)?];
        let master = servers[0].port;
        for _ in 0..replicas {
            servers.push(RedisServer::start_with(program, &[&format!("replicaof 127.0.0.1 {master}")])?);
        }
        let whole =
            || servers[1..].iter().all(|replica| replica.info("replication", "master_link_status") == "up");
        servers[0].wait_for("replication", whole);
        let ports: Vec<u16> = (0..3).map(|_| free_port()).collect();
        let start = |port: &u16| {
            let folder = TempDir::new().expect("a folder for a sentinel");
            let settings = format!(
                "port {port}\nbind 127.0.0.1\nsentinel monitor mymaster 127.0.0.1 {master} 2\n\
                 sentinel down-after-milliseconds mymaster 1000\nsentinel failover-timeout mymaster 6000\n\
                 sentinel parallel-syncs mymaster 2\n"
            );
            let file = folder.path().join("sentinel.conf");
            std::fs::write(&file, settings).expect("a file can be written");
            let args = [file.display().to_string(), "--sentinel".into()];
            let process = Process::start("sentinel", &sentinel, folder.path(), &args);
            (folder, process)
        };
        let sentinels = ports.iter().map(start).collect();
        let all = RedisSentinel { servers, ports, _sentinels: sentinels };
        let whole = wait_until(Duration::from_secs(30), || {
            all.ports.iter().all(|port| {
                let known = |name| all.known(*port, name).and_then(|count| count.parse().ok());
                known("num-slaves") == Some(replicas) && known("num-other-sentinels") == Some(2)
            })
        });
        assert!(whole, "the sentinels did not find each other");
        Some(all)
    }

    /// The address that Leasehold takes.
    pub fn address(&self) -> String {
        let hosts: Vec<String> = self.ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        format!("redis+sentinel://{}", hosts.join(","))
    }

    /// From now on nothing reaches the replicas. The sentinels put that right after six seconds, or by a failover.
    pub fn cut_replication(&self) {
        let nowhere = free_port().to_string();
        for replica in &self.servers[1..] {
            replica.ask(&["REPLICAOF", "127.0.0.1", &nowhere]);
        }
    }

    /// The place in `servers` of the one that the sentinels call master.
    pub fn master(&self) -> Option<usize> {
        let port: u16 = self.known(self.ports[0], "port")?.parse().ok()?;
        self.servers.iter().position(|server| server.port == port)
    }

    /// What a sentinel knows of the master.
    fn known(&self, port: u16, name: &str) -> Option<String> {
        let reply = RedisShell::connect(port).ok()?.ask(&["SENTINEL", "MASTER", "mymaster"]).ok()?;
        let pair = reply.list().chunks_exact(2).find(|pair| pair[0].text() == name)?;
        Some(pair[1].text())
    }
}
