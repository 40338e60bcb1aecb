//! Measures how shards are best packed: cold starts of a group by several clients, with more or fewer objects.
//!
//! `cargo run -p leasehold-object --example measure -- 's3://bucket/prefix?endpoint=…' [SHARDS] [CLIENTS]`, or with
//! `seaweedfs` in place of the address, which starts that server for it.

use std::sync::Arc;

use leasehold::{BoxError, clock};
use leasehold_object::{Bucket, Options, Requests};
use leasehold_servers::{Program, S3Server};
use leasehold_store::bill::{Dollars, Prices};
use leasehold_store::{Key, Lane, Store, StoreErrorKind, Swap, Swapped};

/// How many objects a group is packed into; the last one is an object a shard.
const PAGES: [u32; 5] = [1, 4, 16, 64, 1_000_003];

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let mut args = std::env::args().skip(1);
    let mut address = args.next().ok_or("say the address of a bucket, or seaweedfs")?;
    let shards: usize = args.next().map_or(Ok(1000), |text| text.parse())?;
    let clients: usize = args.next().map_or(Ok(5), |text| text.parse())?;
    let server = (address == "seaweedfs").then(|| S3Server::start(Program::SeaweedFs)).flatten();
    if let Some(server) = &server {
        server.make_bucket("measure");
        address = server.address("measure", "");
    }
    // The check of the bucket is made once a process.
    claim(&Bucket::open(&address, &format!("measure-{}", clock::unix_ms()))?, &["shards/g/0".parse()?])
        .await?;
    println!(
        "{shards} shards claimed by {clients} clients at once, then one moved, and that found by another"
    );
    println!("   objects   claimed in    writes     reads   moved in   found in   dollars for 1000 starts");
    for pages in PAGES {
        measure(&address, pages, shards, clients).await?;
    }
    Ok(())
}

async fn measure(address: &str, pages: u32, shards: usize, clients: usize) -> Result<(), BoxError> {
    let namespace = format!("measure-{pages}-{}", clock::unix_ms());
    let options = Options { pages, ..Options::default() };
    let open = || Bucket::open_with(address, &namespace, options.clone()).map(Arc::new);
    let buckets = (0..clients).map(|_| open()).collect::<Result<Vec<_>, _>>()?;
    let keys: Vec<Key> =
        (0..shards).map(|n| format!("shards/g/{n}").parse().expect("a number is a name")).collect();
    let began_at = clock::now();
    let mut tasks = tokio::task::JoinSet::new();
    for (n, bucket) in buckets.iter().cloned().enumerate() {
        let mine: Vec<Key> = keys.iter().skip(n).step_by(clients).cloned().collect();
        tasks.spawn(async move { claim(&bucket, &mine).await.map_err(|e| e.to_string()) });
    }
    while let Some(claimed) = tasks.join_next().await {
        claimed??;
    }
    let claimed_in = clock::now().since(began_at);
    let spent = buckets.iter().map(|bucket| bucket.requests()).fold(Requests::default(), |all, one| {
        Requests { puts: all.puts + one.puts, gets: all.gets + one.gets, lists: all.lists + one.lists }
    });
    for bucket in &buckets {
        bucket.list().await?;
    }
    let (key, first, last) = (&keys[0], &buckets[0], &buckets[clients - 1]);
    let version = first.read(std::slice::from_ref(key)).await?.found[0].clone().map(|stored| stored.version);
    let began_at = clock::now();
    let swap = Swap { key: key.clone(), expect: version, value: Some(record(0).into()) };
    first.swap(Lane::Work, &[swap]).await?;
    let moved_in = clock::now().since(began_at);
    let began_at = clock::now();
    last.list().await?;
    let found_in = clock::now().since(began_at);
    let prices = Prices::default();
    let dollars =
        (spent.puts + spent.lists) * prices.write_nanodollars + spent.gets * prices.read_nanodollars;
    println!(
        "{:>10} {:>12} {:>9} {:>9} {:>10} {:>10} {:>12}",
        if pages as usize > shards { "a shard".to_owned() } else { pages.to_string() },
        format!("{claimed_in:.1?}"),
        spent.puts,
        spent.gets,
        format!("{moved_in:.1?}"),
        format!("{found_in:.1?}"),
        Dollars(dollars * 1000)
    );
    Ok(())
}

/// A record of the size that shards have.
fn record(n: usize) -> Vec<u8> {
    let filler = "x".repeat(260);
    format!("{{\"format\":1,\"write\":\"{n:032x}\",\"epoch\":{n},\"filler\":\"{filler}\"}}").into_bytes()
}

/// Creates these shards, trying again what is unknown.
async fn claim(bucket: &Bucket, keys: &[Key]) -> Result<(), BoxError> {
    let mut open: Vec<Key> = keys.to_vec();
    while !open.is_empty() {
        let batch: Vec<Key> = open.iter().take(bucket.facts().swaps_max).cloned().collect();
        let wish =
            |(n, key): (usize, &Key)| Swap { key: key.clone(), expect: None, value: Some(record(n).into()) };
        let swaps: Vec<Swap> = batch.iter().enumerate().map(wish).collect();
        let reply = match bucket.swap(Lane::Work, &swaps).await {
            Ok(reply) => reply,
            Err(error) if error.kind == StoreErrorKind::Refused => return Err(error.into()),
            Err(_) => continue,
        };
        let stored: std::collections::BTreeSet<Key> = batch
            .into_iter()
            .zip(reply.outcomes)
            .filter(|(_, outcome)| *outcome != Swapped::Unknown)
            .map(|(key, _)| key)
            .collect();
        open.retain(|key| !stored.contains(key));
    }
    Ok(())
}
