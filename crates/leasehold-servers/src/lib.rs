//! Real servers for Leasehold's own tests. Each starts on free loopback ports in a temporary folder, says what it
//! wrote when it does not come up, and ends with the process that started it, even if that is killed.
//!
//! `servers/install` brings the programs onto the machine. A test that needs one which is missing is skipped loudly
//! and counted; where `CI` is set it fails instead. [`words`] are what tests of all stores say.

mod certificates;
mod etcd;
mod install;
mod kubernetes;
mod peers;
mod ports;
mod process;
mod prometheus;
mod redis;
mod redis_cluster;
mod redis_sentinel;
mod redis_shell;
mod s3;
pub mod words;

pub use certificates::Certificates;
pub use etcd::{Etcd, EtcdSetup};
pub use install::{Program, find, skip};
pub use kubernetes::{Kubernetes, Said};
pub use ports::free_port;
pub use process::{Process, wait_until};
pub use prometheus::{Prometheus, promtool};
pub use redis::RedisServer;
pub use redis_cluster::RedisCluster;
pub use redis_sentinel::RedisSentinel;
pub use redis_shell::{RedisReply, RedisShell};
pub use s3::{S3_KEY, S3_SECRET, S3Server};
