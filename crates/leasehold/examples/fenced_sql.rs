//! Fences an SQL write with the epoch: the target itself refuses a lower epoch, even for a write that was sent in time
//! and arrives late.
//!
//! The table keeps the highest epoch that has written. A write is conditional on its epoch not being lower, in one
//! statement, so there is no gap between the check and the write.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::{BoxError, Epoch, Group, Node};
use rusqlite::Connection;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let accounts = Connection::open_in_memory()?;
    accounts.execute_batch(
        "create table account (shard text primary key, balance integer not null, epoch integer not null)",
    )?;
    let accounts = Arc::new(Mutex::new(accounts));
    let stale = run(&accounts, "first", Duration::from_millis(300)).await?;
    let fresh = run(&accounts, "second", Duration::from_millis(300)).await?;
    println!("a write of the first holder (epoch {stale}) arrives now, after epoch {fresh} has written:");
    match add(&accounts, "ledger/0", stale, 1_000_000) {
        Ok(()) => Err("the stale write went through".into()),
        Err(error) => {
            println!("  refused: {error}");
            Ok(())
        }
    }
}

/// Lets one holder write for a while; returns the epoch that it wrote under.
async fn run(
    accounts: &Arc<Mutex<Connection>>,
    name: &'static str,
    span: Duration,
) -> Result<Epoch, BoxError> {
    static STORE: std::sync::OnceLock<leasehold_store::MemoryServer> = std::sync::OnceLock::new();
    let server = STORE.get_or_init(leasehold_store::MemoryServer::new);
    let table = accounts.clone();
    let node = Node::builder(Arc::new(server.open("example"))).name(name).new_namespace();
    let node = node
        .group(Group::leader("ledger"), move |grant| {
            let table = table.clone();
            async move {
                let mut ticks = tokio::time::interval(Duration::from_millis(50));
                while grant.stopping().run_until_cancelled(ticks.tick()).await.is_some() {
                    let table = table.clone();
                    // SQLite blocks its thread, so the grant owns the call: the shard is not given away before it is over.
                    let write = grant.spawn_blocking(move |grant| {
                        grant.check()?;
                        add(&table, &grant.shard().to_string(), grant.epoch(), 1)
                    });
                    write?.await??;
                }
                Ok::<_, BoxError>(())
            }
        })
        .start()
        .await?;
    let shard = "ledger/0".parse()?;
    let epoch = loop {
        if let Some(grant) = node.grant(&shard) {
            break grant.epoch();
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    tokio::time::sleep(span).await;
    node.leave().await;
    let balance: i64 =
        accounts.lock().unwrap().query_row("select balance from account", [], |row| row.get(0))?;
    println!("{name} (epoch {epoch}) leaves the balance at {balance}");
    Ok(epoch)
}

/// Adds to a balance, unless a higher epoch has written.
fn add(accounts: &Mutex<Connection>, shard: &str, epoch: Epoch, amount: i64) -> Result<(), BoxError> {
    let written = accounts.lock().unwrap().execute(
        "insert into account (shard, balance, epoch) values (?1, ?2, ?3)
         on conflict (shard) do update set balance = balance + excluded.balance, epoch = excluded.epoch
         where account.epoch <= excluded.epoch",
        rusqlite::params![shard, amount, i64::try_from(epoch.0)?],
    )?;
    if written == 0 {
        return Err(format!("{shard}: epoch {epoch} is too old: another node holds the shard").into());
    }
    Ok(())
}
