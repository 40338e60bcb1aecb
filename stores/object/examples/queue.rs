//! A task queue on nothing but a bucket. Workers hold shards of the queue, list only the shards that they hold, claim
//! tasks by conditional writes, and look often while there is work and rarely while there is none. A monitor, itself
//! sharded, gives back tasks that are stuck.
//!
//! ```text
//! ready/<shard>/<task>   {"state":"ready"}, then {"state":"claimed","worker":…,"epoch":…}
//! done/<shard>/<task>    created once, never twice: the worker that creates it has completed the task
//! ```
//!
//! ```text
//! queue ADDRESS put TASKS SHARDS          puts tasks
//! queue ADDRESS work NAME SHARDS TTL_MS [IDLE_MS]
//!                                         works on them until it is ended; an idle shard is looked at every IDLE_MS
//! queue ADDRESS count SHARDS              says how many are ready and done
//! ```
//! ADDRESS is that of the store, such as `s3://bucket/prefix?endpoint=…`. Tasks lie under the same prefix, in `queue/`.
//!
//! SIGTERM and Ctrl-C let a worker finish its task and hand its shards over at once. With `NEW_NAMESPACE=yes` in the
//! environment the first worker does not wait for former holders: say so only of a prefix where no worker ever was.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt;
use leasehold::{BoxError, Grant, Group, Node};
use leasehold_object::Bucket;
use leasehold_object::object_store::path::Path;
use leasehold_object::object_store::{
    Error, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutOptions, UpdateVersion,
};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The pause between two looks at a shard while there is work. It grows by half with every look that finds none, up to
/// IDLE_MS: at 5 s a shard costs 2.63 dollars a month in listings.
const BUSY: Duration = Duration::from_millis(50);
const IDLE_MS: u64 = 5000;
/// The pause before a write that must be made is tried again.
const RETRY: Duration = Duration::from_millis(500);
/// A claim that nobody touched for so long, on our own clock, is given back.
const STUCK_AFTER: Duration = Duration::from_secs(20);
/// How often the monitor looks, and in how many shards it is divided.
const SWEEP_EVERY: Duration = Duration::from_secs(5);
const SWEEPERS: u32 = 2;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        [address, "put", tasks, shards] => {
            put_tasks(address, number("TASKS", tasks)?, number("SHARDS", shards)?).await
        }
        [address, "work", name, shards, ttl_ms] => {
            work(address, name, number("SHARDS", shards)?, number("TTL_MS", ttl_ms)?.into(), IDLE_MS).await
        }
        [address, "work", name, shards, ttl_ms, idle_ms] => {
            let (shards, ttl_ms) = (number("SHARDS", shards)?, number("TTL_MS", ttl_ms)?);
            work(address, name, shards, ttl_ms.into(), number("IDLE_MS", idle_ms)?.into()).await
        }
        [address, "count", shards] => count(address, number("SHARDS", shards)?).await,
        _ => {
            Err("usage: queue ADDRESS put TASKS SHARDS | work NAME SHARDS TTL_MS [IDLE_MS] | count SHARDS"
                .into())
        }
    }
}

fn number(what: &str, text: &str) -> Result<u32, BoxError> {
    match text.parse() {
        Ok(0) | Err(_) => Err(format!("{what} must be a number from 1 to {}, not {text:?}", u32::MAX).into()),
        Ok(number) => Ok(number),
    }
}

/// The queue in the bucket.
#[derive(Clone)]
struct Queue {
    objects: Arc<dyn ObjectStore>,
    /// Where its folders are.
    root: Path,
}

impl Queue {
    fn of(bucket: &Bucket) -> Result<Self, BoxError> {
        Ok(Queue { objects: bucket.client()?, root: bucket.prefix().clone().join("queue") })
    }

    fn folder(&self, folder: &str, shard: u32) -> Path {
        self.root.clone().join(folder).join(format!("{shard:04}"))
    }

    async fn list(&self, folder: &str, shard: u32) -> Result<Vec<ObjectMeta>, BoxError> {
        let prefix = self.folder(folder, shard);
        Ok(self.objects.list(Some(&prefix)).try_collect().await?)
    }

    /// Writes on a condition; `false` if the server refused, because it did not hold or because another client was
    /// writing just then: it does not say that something is there. After any other error nothing is known, and the
    /// task is looked at again later.
    async fn write(&self, path: &Path, body: String, mode: PutMode) -> Result<bool, BoxError> {
        let options = PutOptions { mode, ..PutOptions::default() };
        match self.objects.put_opts(path, body.into(), options).await {
            Ok(_) => Ok(true),
            Err(Error::Precondition { .. } | Error::AlreadyExists { .. } | Error::NotFound { .. }) => {
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn is_there(&self, path: &Path) -> Result<bool, BoxError> {
        match self.objects.head(path).await {
            Ok(_) => Ok(true),
            Err(Error::NotFound { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Claims a task for an epoch of its shard. Claims of earlier epochs are void: their holder has been stopped.
    async fn claim(&self, task: &ObjectMeta, worker: &str, epoch: u64) -> Result<bool, BoxError> {
        let found = match self.objects.get(&task.location).await {
            Ok(found) => found,
            Err(Error::NotFound { .. }) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let mode = update(&found.meta);
        let state = found.bytes().await?;
        if claimed_in(&state).is_some_and(|claimed| claimed >= epoch) {
            return Ok(false);
        }
        let claim = format!("{{\"state\":\"claimed\",\"worker\":\"{worker}\",\"epoch\":{epoch}}}\n");
        self.write(&task.location, claim, mode).await
    }

    /// Gives a task back if it is claimed, and still is what was listed.
    async fn give_back(&self, task: &ObjectMeta) -> Result<(), BoxError> {
        let found = match self.objects.get(&task.location).await {
            Ok(found) if found.meta.e_tag == task.e_tag => found,
            Ok(_) | Err(Error::NotFound { .. }) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let mode = update(&found.meta);
        if claimed_in(&found.bytes().await?).is_some() {
            self.write(&task.location, ready(), mode).await?;
        }
        Ok(())
    }

    /// Completes a task. Only one worker ever can, because its object can be created once. `false` if another did, or if the
    /// shard is given up before the server took it: then the task is still there, for the next holder of the shard.
    async fn complete(
        &self,
        shard: u32,
        task: &ObjectMeta,
        worker: &str,
        grant: &Grant,
    ) -> Result<bool, BoxError> {
        let done = self.folder("done", shard).join(task.location.filename().unwrap_or_default());
        let body = format!("{{\"worker\":\"{worker}\",\"epoch\":{}}}\n", grant.epoch().0);
        let first = loop {
            if self.write(&done, body.clone(), PutMode::Create).await? {
                break true;
            }
            // A server also refuses when two write at once and neither has yet: what was refused need not be there.
            if self.is_there(&done).await? {
                break false;
            }
            if grant.stopping().run_until_cancelled(tokio::time::sleep(RETRY)).await.is_none() {
                return Ok(false);
            }
            grant.check()?;
        };
        // It is done, by this worker or another; the rest of it can be removed.
        self.objects.delete(&task.location).await?;
        Ok(first)
    }
}

fn update(meta: &ObjectMeta) -> PutMode {
    PutMode::Update(UpdateVersion { e_tag: meta.e_tag.clone(), version: meta.version.clone() })
}

/// The epoch that a task is claimed in, if it is.
fn claimed_in(state: &[u8]) -> Option<u64> {
    let state: serde_json::Value = serde_json::from_slice(state).ok()?;
    state.get("epoch")?.as_u64()
}

/// The worker: holds shards of the queue and of the monitor until it is ended.
async fn work(address: &str, name: &str, shards: u32, ttl_ms: u64, idle_ms: u64) -> Result<(), BoxError> {
    let bucket = Bucket::open(address, "queue-workers")?;
    let queue = Queue::of(&bucket)?;
    let idle = Duration::from_millis(idle_ms).max(BUSY);
    let (lister, sweeper) = (queue.clone(), queue);
    let worker: Arc<str> = name.into();
    let (terminated, interrupted) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let mut node = Node::builder(Arc::new(bucket)).name(name).ttl(Duration::from_millis(ttl_ms));
    if std::env::var_os("NEW_NAMESPACE").is_some() {
        node = node.new_namespace();
    }
    let node = node
        .group(Group::numbered("queue", shards), move |grant| {
            let (queue, worker) = (lister.clone(), worker.clone());
            async move { work_on(&queue, &worker, idle, &grant).await }
        })
        .group(Group::numbered("monitor", SWEEPERS), move |grant| {
            let queue = sweeper.clone();
            async move { sweep(&queue, shards, &grant).await }
        })
        .start()
        .await?;
    tokio::select! {
        _ = node.until_left() => {}
        () = asked_to_end(terminated, interrupted) => {
            // The next holders of the shards need not wait for our ttl.
            node.leave().await;
        }
    }
    Ok(())
}

async fn asked_to_end(mut terminated: Signal, mut interrupted: Signal) {
    tokio::select! {
        _ = terminated.recv() => {}
        _ = interrupted.recv() => {}
    }
}

/// Works on one shard for as long as it is held.
async fn work_on(queue: &Queue, worker: &str, idle: Duration, grant: &Grant) -> Result<(), BoxError> {
    let (shard, epoch) = (grant.slot().unwrap_or_default(), grant.epoch().0);
    let mut pause = BUSY;
    while !grant.stopping().is_cancelled() {
        grant.check()?;
        println!("list {shard}");
        for task in queue.list("ready", shard).await? {
            // A planned move does not wait for the backlog.
            if grant.stopping().is_cancelled() {
                return Ok(());
            }
            grant.check()?;
            if !queue.claim(&task, worker, epoch).await? {
                continue;
            }
            pause = BUSY;
            // The work itself would be here.
            tokio::time::sleep(Duration::from_millis(20)).await;
            grant.check()?;
            if queue.complete(shard, &task, worker, grant).await? {
                println!("done {}", task.location.filename().unwrap_or_default());
            }
        }
        grant.stopping().run_until_cancelled(tokio::time::sleep(pause)).await;
        pause = (pause * 3 / 2).min(idle);
    }
    Ok(())
}

/// Gives back what is claimed and does not move. Which claims those are is judged by looking twice.
async fn sweep(queue: &Queue, shards: u32, grant: &Grant) -> Result<(), BoxError> {
    let mine: Vec<u32> =
        (0..shards).filter(|shard| shard % SWEEPERS == grant.slot().unwrap_or_default()).collect();
    let mut seen: BTreeMap<Path, (Option<String>, leasehold::Moment)> = BTreeMap::new();
    loop {
        let mut there = BTreeMap::new();
        for shard in &mine {
            grant.check()?;
            println!("sweep {shard}");
            for task in queue.list("ready", *shard).await? {
                let now = leasehold::clock::now();
                let mut since = match seen.get(&task.location) {
                    Some((etag, since)) if *etag == task.e_tag => *since,
                    _ => now,
                };
                if now.since(since) > STUCK_AFTER {
                    grant.check()?;
                    queue.give_back(&task).await?;
                    // One that only waits is looked at again after as long.
                    since = now;
                }
                there.insert(task.location, (task.e_tag, since));
            }
        }
        seen = there;
        if grant.stopping().run_until_cancelled(tokio::time::sleep(SWEEP_EVERY)).await.is_none() {
            return Ok(());
        }
    }
}

/// A task that is free, never with the same bytes twice.
fn ready() -> String {
    format!("{{\"state\":\"ready\",\"at\":{}}}\n", leasehold::clock::unix_ms())
}

async fn put_tasks(address: &str, tasks: u32, shards: u32) -> Result<(), BoxError> {
    let queue = Queue::of(&Bucket::open(address, "queue-workers")?)?;
    // A name that was used before would be that of a task which is done. In the order of time, as far as clocks agree.
    let batch = format!("{:013}-{}", leasehold::clock::unix_ms(), &leasehold_store::rng::fresh_id()?[..16]);
    for task in 0..tasks {
        let (shard, name) = (task % shards, format!("task-{batch}-{task:05}"));
        let (path, done) = (
            queue.folder("ready", shard).join(name.as_str()),
            queue.folder("done", shard).join(name.as_str()),
        );
        // Making it a second time does nothing, so that it can be tried until it is there. A try that failed may have made
        // it all the same, and it may be done by now; one that was refused need not have found it.
        let mut tries = 0;
        loop {
            let made = queue.write(&path, ready(), PutMode::Create).await;
            // In this order: it is done before it goes.
            if matches!(made, Ok(true))
                || matches!(queue.is_there(&path).await, Ok(true))
                || matches!(queue.is_there(&done).await, Ok(true))
            {
                break;
            }
            tries += 1;
            if tries == 10 {
                let why =
                    made.err().map_or_else(|| "the server refuses it".to_owned(), |error| error.to_string());
                return Err(format!(
                    "{path} could not be put in {tries} tries, and {task} tasks were: {why}"
                )
                .into());
            }
            tokio::time::sleep(RETRY).await;
        }
    }
    Ok(())
}

async fn count(address: &str, shards: u32) -> Result<(), BoxError> {
    let queue = Queue::of(&Bucket::open(address, "queue-workers")?)?;
    let (mut ready, mut done) = (0, 0);
    for shard in 0..shards {
        ready += queue.list("ready", shard).await?.len();
        done += queue.list("done", shard).await?.len();
    }
    println!("ready {ready} done {done}");
    Ok(())
}
