//! Fences an SQL write with the epoch: the target itself refuses a lower epoch, even for a write that was sent in time
//! and arrives late.
//!
//! The table keeps the highest epoch that has written. A write is conditional on its epoch not being lower, in one
//! statement, so there is no gap between the check and the write.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::store::MemoryServer;
use leasehold::{BoxError, Epoch, Grant, Group, Node, Outcome};
use rusqlite::Connection;

type Accounts = Arc<Mutex<Connection>>;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let accounts = Connection::open_in_memory()?;
    accounts.execute_batch(
        "create table account (shard text primary key, balance integer not null, epoch integer not null)",
    )?;
    let accounts = Arc::new(Mutex::new(accounts));
    let server = MemoryServer::new();
    let stale = hold(&server, &accounts, "first").await?;
    let fresh = hold(&server, &accounts, "second").await?;
    println!("a write of the first holder (epoch {stale}) arrives now, after epoch {fresh} has written:");
    match add(&accounts, "ledger/0", stale, 1_000_000) {
        Ok(()) => Err("the stale write went through".into()),
        Err(error) => {
            println!("  refused: {error}");
            Ok(())
        }
    }
}

/// One holder: writes until SIGTERM or Ctrl-C, or here for a moment. Returns the epoch that it wrote under.
async fn hold(server: &MemoryServer, accounts: &Accounts, name: &str) -> Result<Epoch, BoxError> {
    let table = accounts.clone();
    let node = Node::builder(server.open("example")).name(name).new_namespace();
    let node = node.group(Group::leader("ledger"), move |grant| write(grant, table.clone())).start().await?;
    node.until(|view| view.me.as_ref().is_some_and(|me| me.held == 1)).await?;
    let epoch = node.grant(&"ledger/0".parse()?).ok_or("the shard has moved on")?.epoch();
    let ends = async {
        tokio::select! {
            () = leasehold::shutdown_signal() => {}
            () = tokio::time::sleep(Duration::from_millis(300)) => {}
        }
    };
    node.leave_on(ends).await;
    let balance: i64 =
        accounts.lock().unwrap().query_row("select balance from account", [], |row| row.get(0))?;
    println!("{name} (epoch {epoch}) leaves the balance at {balance}");
    Ok(epoch)
}

/// The work: a payment every 20 ms, written in batches.
async fn write(grant: Grant, accounts: Accounts) -> Outcome {
    let mut unwritten = 0;
    let mut payments = tokio::time::interval(Duration::from_millis(20));
    while grant.stopping().run_until_cancelled(payments.tick()).await.is_some() {
        unwritten += 1;
        if unwritten == 5 {
            flush(&grant, &accounts, unwritten).await?;
            unwritten = 0;
        }
    }
    match grant.stop_reason() {
        Some(why) if why.is_planned() => flush(&grant, &accounts, unwritten).await,
        _ => Ok(()), // the lease is lost: the next holder does these payments again
    }
}

/// SQLite blocks its thread, so the grant owns the call: the shard is not given away before it is over.
async fn flush(grant: &Grant, accounts: &Accounts, amount: i64) -> Outcome {
    let accounts = accounts.clone();
    let write = grant.spawn_blocking(move |grant| {
        grant.check()?;
        add(&accounts, &grant.shard().to_string(), grant.epoch(), amount)
    })?;
    write.await?
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
