//! What a cluster costs on a store that charges for every request.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use super::Explanation;
use crate::store::LISTS_A_SWEEP;

/// What requests cost, in thousand-millionths of a dollar each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prices {
    /// One write, or one page of a listing.
    pub write_nanodollars: u64,
    /// One read.
    pub read_nanodollars: u64,
}

impl Default for Prices {
    /// What the large providers take for their standard class: 0.005 dollars per thousand writes or listings, and
    /// 0.0004 per thousand reads.
    fn default() -> Self {
        Prices { write_nanodollars: 5_000, read_nanodollars: 400 }
    }
}

/// What a cluster at rest costs on a store that charges for every request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bill {
    /// How many nodes.
    pub nodes: u64,
    /// How many shards, which costs nothing here.
    pub shards: u64,
    /// Renewals.
    pub writes_per_hour: u64,
    /// Looks at whether anything changed, and at the sessions of the other nodes.
    pub reads_per_hour: u64,
    /// Listings of everything, which show what was not marked, and that what runs is still its holder's.
    pub lists_per_hour: u64,
    /// All of it.
    pub month: Dollars,
    /// What the same shards cost under leases of their own, each renewed every two thirds of its ttl.
    pub month_of_renewing_every_shard: Dollars,
}

/// The size of the cluster that somebody asks about, as far as they said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Setup {
    /// How many nodes.
    pub nodes: Option<u64>,
    /// How many shards.
    pub shards: Option<u64>,
}

/// Money, in thousand-millionths of a dollar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dollars(pub u64);

impl fmt::Display for Dollars {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cents = (self.0 + 5_000_000) / 10_000_000;
        f.pad(&format!("{}.{:02}", cents / 100, cents % 100))
    }
}

const HOUR: Duration = Duration::from_secs(3600);
const HOURS_A_MONTH: u64 = 730;
/// How often the record of another session is read while it says nothing, in parts of its ttl: `node/fencing.rs`.
const DOUBTED_AFTER: u32 = 2;

/// Whether a store of this kind charges for every request, and is looked at instead of telling.
pub(super) fn is_charged(kind: &str) -> bool {
    matches!(kind, "s3" | "gs" | "az")
}

/// After what part of the ttl the record of a silent session is read by whoever hears of it by looking only.
pub(super) fn doubted_after(ttl: Duration) -> Duration {
    ttl / DOUBTED_AFTER
}

impl Explanation {
    /// What a cluster of that size costs at rest; `None` on stores that don't charge for requests.
    pub fn bill(&self, nodes: u64, shards: u64, prices: &Prices) -> Option<Bill> {
        let look_every = self.look_every?;
        let per_hour = |every: Duration, times: u64| {
            let count = u128::from(times) * HOUR.as_nanos() / every.as_nanos().max(1);
            u64::try_from(count).unwrap_or(u64::MAX)
        };
        let looks = per_hour(look_every, nodes).saturating_add(per_hour(self.list_every, nodes));
        let sessions = per_hour(doubted_after(self.ttl), nodes.saturating_mul(nodes.saturating_sub(1)));
        let writes_per_hour = per_hour(self.renew_every, nodes);
        let reads_per_hour = looks.saturating_add(sessions);
        let lists_per_hour = per_hour(self.list_every.saturating_mul(LISTS_A_SWEEP), nodes);
        let month = |writes: u64, reads: u64| {
            let writes = writes.saturating_mul(prices.write_nanodollars);
            let reads = reads.saturating_mul(prices.read_nanodollars);
            Dollars(writes.saturating_add(reads).saturating_mul(HOURS_A_MONTH))
        };
        Some(Bill {
            nodes,
            shards,
            writes_per_hour,
            reads_per_hour,
            lists_per_hour,
            month: month(writes_per_hour.saturating_add(lists_per_hour), reads_per_hour),
            month_of_renewing_every_shard: month(per_hour(self.ttl * 2 / 3, shards), 0),
        })
    }

    pub(super) fn write_bill(&self, f: &mut fmt::Formatter<'_>, setup: Setup) -> fmt::Result {
        const NODES: [u64; 4] = [3, 10, 30, 100];
        let shards = setup.shards.unwrap_or(10_000);
        if self.look_every.is_none() {
            return Ok(());
        }
        writeln!(f, "\nCost in dollars at rest (0.005 per 1000 writes or listings, 0.0004 per 1000 reads)")?;
        writeln!(
            f,
            "      nodes    writes/h     reads/h     lists/h  dollars/month  with one lease for each of {shards} shards"
        )?;
        let sizes: BTreeSet<u64> = NODES.into_iter().chain(setup.nodes).collect();
        for nodes in sizes {
            let Some(bill) = self.bill(nodes, shards, &Prices::default()) else { continue };
            let mark = if setup.nodes == Some(nodes) { "  this setup" } else { "" };
            writeln!(
                f,
                "{nodes:>11} {:>11} {:>11} {:>11} {:>14} {:>14}{mark}",
                bill.writes_per_hour,
                bill.reads_per_hour,
                bill.lists_per_hour,
                bill.month,
                bill.month_of_renewing_every_shard
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::store::{Facts, Freshness, Safety};

    fn facts(kind: &'static str) -> Facts {
        Facts {
            kind,
            watch: true,
            poll_every: Duration::from_secs(6),
            write_every_min: Duration::from_millis(20),
            swaps_max: 1024,
            reads: Freshness::ListsMayLag,
            removes: true,
            safety: Safety::Strict,
            ttl_default: Duration::from_secs(30),
        }
    }

    #[test]
    fn ten_thousand_shards_on_ten_nodes_cost_less_than_sixty_dollars_a_month() {
        let config = Config::with_ttl("n".parse().unwrap(), Duration::from_secs(15));
        let bill = config.explain(&facts("s3")).bill(10, 10_000, &Prices::default()).unwrap();
        assert_eq!(bill.writes_per_hour, 12_000);
        assert!(bill.month < Dollars(60_000_000_000), "{bill:?}");
        assert_eq!(bill.month.to_string(), "59.95");
        assert_eq!(bill.month_of_renewing_every_shard.to_string(), "13140.00");
        let cost = config.explain(&facts("s3")).cost(10);
        assert_eq!((cost.writes_per_hour, cost.lists_per_hour), (bill.writes_per_hour, bill.lists_per_hour));
        assert_eq!(config.explain(&facts("etcd")).bill(10, 10_000, &Prices::default()), None);
    }

    #[test]
    fn failover_counts_the_looks_at_sessions() {
        let config = Config::with_ttl("n".parse().unwrap(), Duration::from_secs(30));
        let explained = config.explain(&facts("s3"));
        assert!(
            explained.failover >= Duration::from_secs(45) && explained.failover < Duration::from_secs(46)
        );
        assert!(explained.to_string().contains("dollars/month"));
    }

    #[test]
    fn the_setup_that_was_given_is_priced() {
        let config = Config::with_ttl("n".parse().unwrap(), Duration::from_secs(15));
        let explained = config.explain(&facts("s3"));
        let rows = |setup: Setup| -> Vec<String> {
            let text = explained.for_setup(setup).to_string();
            text.lines().skip_while(|line| !line.contains("dollars/month")).map(str::to_owned).collect()
        };
        let plain = rows(Setup::default());
        assert_eq!(plain.len(), 5);
        assert!(plain[0].ends_with("with one lease for each of 10000 shards"), "{plain:?}");
        assert!(explained.to_string().ends_with(&(plain.join("\n") + "\n")));
        let given = rows(Setup { nodes: Some(7), shards: Some(64) });
        assert_eq!(given.len(), 6);
        assert!(given[0].ends_with("with one lease for each of 64 shards"), "{given:?}");
        let bill = explained.bill(7, 64, &Prices::default()).unwrap();
        let (month, renewing) = (bill.month, bill.month_of_renewing_every_shard);
        assert!(given[2].trim_start().starts_with("7 "), "{given:?}");
        assert!(given[2].ends_with(&format!("{month:>14} {renewing:>14}  this setup")), "{given:?}");
        let usual = rows(Setup { nodes: Some(10), shards: None });
        assert_eq!(usual.len(), 5, "no size comes twice: {usual:?}");
        assert!(usual[2].contains("59.95") && usual[2].ends_with("this setup"), "{usual:?}");
    }
}
