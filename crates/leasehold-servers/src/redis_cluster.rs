use crate::{Program, RedisReply, RedisServer, RedisShell, free_port};

/// A cluster of three masters with a replica each.
#[derive(Debug)]
pub struct RedisCluster {
    /// The first three were masters in the beginning; the replica of the one at `i` is at `i + 3`.
    pub servers: Vec<RedisServer>,
}

/// How many slots there are in a cluster.
const SLOTS: usize = 16384;

impl RedisCluster {
    /// Starts it, and waits until all of it works; `None` if the program is missing. A master that says nothing for a
    /// second is replaced.
    pub fn start(program: Program) -> Option<Self> {
        let mut servers = Vec::new();
        for _ in 0..6 {
            let bus = free_port();
            let settings = [
                "cluster-enabled yes",
                "cluster-node-timeout 1000",
                &format!("cluster-port {bus}"),
                "cluster-config-file nodes.conf",
            ];
            servers.push((RedisServer::start_with(program, &settings)?, bus));
        }
        let ids: Vec<String> =
            servers.iter().map(|(server, _)| server.ask(&["CLUSTER", "MYID"]).text()).collect();
        for (i, (server, _)) in servers.iter().enumerate().take(3) {
            let (from, to) = (SLOTS * i / 3, SLOTS * (i + 1) / 3 - 1);
            let range = [from.to_string(), to.to_string()];
            server.ask(&["CLUSTER", "ADDSLOTSRANGE", &range[0], &range[1]]);
        }
        for (i, (server, _)) in servers.iter().enumerate() {
            server.ask(&["CLUSTER", "SET-CONFIG-EPOCH", &(i + 1).to_string()]);
        }
        for (other, bus) in &servers[1..] {
            let (port, bus) = (other.port.to_string(), bus.to_string());
            servers[0].0.ask(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
        }
        let cluster = RedisCluster { servers: servers.into_iter().map(|(server, _)| server).collect() };
        for i in 3..6 {
            cluster.servers[i].wait_for("a cluster", || {
                cluster.servers[i].ask(&["CLUSTER", "REPLICATE", &ids[i - 3]])
                    == RedisReply::Text(b"OK".to_vec())
            });
        }
        cluster.servers[0].wait_for("a whole cluster", || {
            let up =
                |server: &RedisServer| server.ask(&["CLUSTER", "INFO"]).text().contains("cluster_state:ok");
            let linked = |server: &RedisServer| server.info("replication", "master_link_status") == "up";
            cluster.servers.iter().all(up) && cluster.servers[3..].iter().all(linked)
        });
        Some(cluster)
    }

    /// The address that Leasehold takes.
    pub fn address(&self) -> String {
        let hosts: Vec<String> =
            self.servers.iter().map(|server| format!("127.0.0.1:{}", server.port)).collect();
        format!("redis+cluster://{}", hosts.join(","))
    }

    /// The place in `servers` of the master that has this key's slot, if one answers for it.
    pub fn master_of(&self, key: &str) -> Option<usize> {
        self.servers.iter().position(|server| {
            let asked = RedisShell::connect(server.port).and_then(|mut shell| shell.ask(&["EXISTS", key]));
            matches!(asked, Ok(RedisReply::Number(_)))
        })
    }
}
