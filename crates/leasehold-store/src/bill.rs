//! What a cluster costs on a store that charges for every request: the price list, and the bill of a month.

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};
use std::time::Duration;

use leasehold_core::config::Explanation;
use leasehold_core::store::LISTS_A_SWEEP;

/// What requests cost, in billionths of a dollar each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prices {
    /// One write, or one page of a listing.
    pub write_nanodollars: u64,
    /// One read.
    pub read_nanodollars: u64,
}

impl Default for Prices {
    /// What the large providers charge for their standard class: 0.005 dollars per thousand writes or listings, and
    /// 0.0004 per thousand reads.
    fn default() -> Self {
        Prices { write_nanodollars: 5_000, read_nanodollars: 400 }
    }
}

/// What a cluster at rest costs on a store that charges for every request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Bill {
    /// How many nodes.
    pub nodes: u64,
    /// How many shards. They cost nothing here.
    pub shards: u64,
    /// Renewals.
    pub writes_per_hour: u64,
    /// Polls for changes, and reads of the sessions of the other nodes.
    pub reads_per_hour: u64,
    /// Full listings. They show changes that polling missed, and confirm who holds what.
    pub lists_per_hour: u64,
    /// What all requests cost in a month.
    pub month: Dollars,
    /// What the same shards would cost with one lease each, renewed every two thirds of its ttl.
    pub month_of_renewing_every_shard: Dollars,
}

/// The size of a cluster, as far as it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClusterSize {
    /// How many nodes.
    pub nodes: Option<u64>,
    /// How many shards.
    pub shards: Option<u64>,
}

/// Money, in billionths of a dollar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dollars(pub u64);

impl fmt::Display for Dollars {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cents = (self.0 + 5_000_000) / 10_000_000;
        f.pad(&format!("{}.{:02}", cents / 100, cents % 100))
    }
}

/// Whether the store charges for every request.
fn charges_for_requests(explained: &Explanation) -> bool {
    matches!(explained.store, "s3" | "gs" | "az")
}

const HOUR: Duration = Duration::from_secs(3600);
const HOURS_A_MONTH: u64 = 730;

impl Bill {
    /// What a cluster with these settings and of that size costs at rest; `None` on stores that do not charge for requests.
    pub fn of(explained: &Explanation, nodes: u64, shards: u64, prices: &Prices) -> Option<Bill> {
        let look_every = explained.look_every.filter(|_| charges_for_requests(explained))?;
        let per_hour = |every: Duration, times: u64| {
            let count = u128::from(times) * HOUR.as_nanos() / every.as_nanos().max(1);
            u64::try_from(count).unwrap_or(u64::MAX)
        };
        let looks = per_hour(look_every, nodes).saturating_add(per_hour(explained.list_every, nodes));
        let pairs = nodes.saturating_mul(nodes.saturating_sub(1));
        let sessions = per_hour(explained.session_read_every(), pairs);
        let writes_per_hour = per_hour(explained.renew_every, nodes);
        let reads_per_hour = looks.saturating_add(sessions);
        let lists_per_hour = per_hour(explained.list_every.saturating_mul(LISTS_A_SWEEP), nodes);
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
            month_of_renewing_every_shard: month(per_hour(explained.ttl * 2 / 3, shards), 0),
        })
    }

    /// A table of bills for clusters of several sizes, with this one among them. Empty on stores that do not charge for
    /// requests.
    pub fn table(explained: &Explanation, size: ClusterSize) -> String {
        const NODES: [u64; 4] = [3, 10, 30, 100];
        let mut text = String::new();
        if !charges_for_requests(explained) {
            return text;
        }
        let shards = size.shards.unwrap_or(10_000);
        let _ = writeln!(
            text,
            "\nCost in dollars at rest (0.005 per 1000 writes or listings, 0.0004 per 1000 reads)\n      nodes    writes/h     \
             reads/h     lists/h  dollars/month  with one lease for each of {shards} shards"
        );
        let sizes: BTreeSet<u64> = NODES.into_iter().chain(size.nodes).collect();
        for nodes in sizes {
            let Some(bill) = Bill::of(explained, nodes, shards, &Prices::default()) else { continue };
            let mark = if size.nodes == Some(nodes) { "  this setup" } else { "" };
            let _ = writeln!(
                text,
                "{nodes:>11} {:>11} {:>11} {:>11} {:>14} {:>14}{mark}",
                bill.writes_per_hour,
                bill.reads_per_hour,
                bill.lists_per_hour,
                bill.month,
                bill.month_of_renewing_every_shard
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::config::Config;
    use leasehold_core::store::{Facts, Freshness, Safety};

    use super::*;

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
        let bill = Bill::of(&config.explain(&facts("s3")), 10, 10_000, &Prices::default()).unwrap();
        assert_eq!(bill.writes_per_hour, 12_000);
        assert!(bill.month < Dollars(60_000_000_000), "{bill:?}");
        assert_eq!(bill.month.to_string(), "59.95");
        assert_eq!(bill.month_of_renewing_every_shard.to_string(), "13140.00");
        let cost = config.explain(&facts("s3")).cost(10);
        assert_eq!((cost.writes_per_hour, cost.lists_per_hour), (bill.writes_per_hour, bill.lists_per_hour));
        assert_eq!(Bill::of(&config.explain(&facts("etcd")), 10, 10_000, &Prices::default()), None);
    }

    #[test]
    fn the_size_that_was_given_is_priced() {
        let config = Config::with_ttl("n".parse().unwrap(), Duration::from_secs(15));
        let explained = config.explain(&facts("s3"));
        let rows = |size: ClusterSize| -> Vec<String> {
            let text = Bill::table(&explained, size);
            text.lines().skip_while(|line| !line.contains("dollars/month")).map(str::to_owned).collect()
        };
        let plain = rows(ClusterSize::default());
        assert_eq!(plain.len(), 5);
        assert!(plain[0].ends_with("with one lease for each of 10000 shards"), "{plain:?}");
        assert_eq!(Bill::table(&config.explain(&facts("etcd")), ClusterSize::default()), "");
        let given = rows(ClusterSize { nodes: Some(7), shards: Some(64) });
        assert_eq!(given.len(), 6);
        assert!(given[0].ends_with("with one lease for each of 64 shards"), "{given:?}");
        let bill = Bill::of(&explained, 7, 64, &Prices::default()).unwrap();
        let (month, renewing) = (bill.month, bill.month_of_renewing_every_shard);
        assert!(given[2].trim_start().starts_with("7 "), "{given:?}");
        assert!(given[2].ends_with(&format!("{month:>14} {renewing:>14}  this setup")), "{given:?}");
        let usual = rows(ClusterSize { nodes: Some(10), shards: None });
        assert_eq!(usual.len(), 5, "no size comes twice: {usual:?}");
        assert!(usual[2].contains("59.95") && usual[2].ends_with("this setup"), "{usual:?}");
    }
}
