use leasehold_core::config::Explanation;
use leasehold_store::Charged;
use leasehold_store::bill::{Bill, Dollars, Prices};
use serde_json::{Value, json};

const HOUR_SECONDS: f64 = 3600.0;
const HOURS_A_MONTH: u64 = 730;

/// What a cluster at rest was seen to ask of a store that charges for every request, and what that costs.
#[derive(Debug)]
pub(super) struct Money {
    /// Per hour, as it was measured.
    seen: Charged,
    month: Dollars,
    /// What `config explain` says of the same set-up.
    bill: Bill,
}

impl Money {
    /// `None` if the store does not charge.
    pub(super) fn of(
        charged: &Charged,
        seconds: f64,
        explained: &Explanation,
        nodes: usize,
        shards: u32,
    ) -> Option<Money> {
        let prices = Prices::default();
        let bill = Bill::of(explained, nodes as u64, u64::from(shards), &prices)?;
        let per_hour = |count: u64| (count as f64 / seconds.max(0.001) * HOUR_SECONDS).round() as u64;
        let seen = Charged {
            writes: per_hour(charged.writes),
            reads: per_hour(charged.reads),
            lists: per_hour(charged.lists),
        };
        let hour =
            (seen.writes + seen.lists) * prices.write_nanodollars + seen.reads * prices.read_nanodollars;
        Some(Money { seen, month: Dollars(hour.saturating_mul(HOURS_A_MONTH)), bill })
    }

    /// For people.
    pub(super) fn text(&self, nodes: usize, shards: u32) -> String {
        let Money { seen, month, bill } = self;
        let row = |title: &str, writes: u64, reads: u64, lists: u64, month: Dollars| {
            format!("{title:<32}{writes:>12}{reads:>12}{lists:>12}{month:>18}\n")
        };
        // The same price as in the bill, so that it comes out as a whole number of writes.
        let renewed =
            bill.month_of_renewing_every_shard.0 / HOURS_A_MONTH / Prices::default().write_nanodollars.max(1);
        format!(
            "\n{:<32}{:>12}{:>12}{:>12}{:>18}\n{}{}{}Prices: 0.005 dollars per 1000 writes or listings, 0.0004 dollars per 1000 reads.\n",
            "requests per hour at rest",
            "writes",
            "reads",
            "lists",
            "dollars per month",
            row(&format!("{nodes} nodes, measured"), seen.writes, seen.reads, seen.lists, *month),
            row(
                &format!("{nodes} nodes, computed"),
                bill.writes_per_hour,
                bill.reads_per_hour,
                bill.lists_per_hour,
                bill.month
            ),
            row(
                &format!("{shards} shards, one lease each"),
                renewed,
                0,
                0,
                bill.month_of_renewing_every_shard
            ),
        )
    }

    /// For programs.
    pub(super) fn as_json(&self) -> Value {
        let Money { seen, month, bill } = self;
        let dollars = |money: &Dollars| (money.0 as f64 / 1e7).round() / 100.0;
        json!({
            "writes_per_hour": seen.writes, "reads_per_hour": seen.reads, "lists_per_hour": seen.lists,
            "dollars_a_month": dollars(month), "dollars_a_month_by_the_settings": dollars(&bill.month),
            "dollars_a_month_renewing_every_shard": dollars(&bill.month_of_renewing_every_shard),
        })
    }
}
