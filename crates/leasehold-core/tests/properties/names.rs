//! Names: the order in which people count, and the ways to make one.

use leasehold_core::name::{NameError, natural_cmp};
use leasehold_core::view::ShardKey;
use leasehold_core::{Epoch, GroupName, ShardId, ShardName};
use proptest::prelude::*;

#[test]
fn people_count_two_before_ten_and_numbers_before_names() {
    let mut names: Vec<ShardName> = ["b", "10", "a10", "2", "01", "0", "a2", "4294967296", "-1"]
        .map(|name| ShardName::new(name).unwrap())
        .to_vec();
    names.sort_by(ShardName::natural_cmp);
    let names: Vec<&str> = names.iter().map(ShardName::as_str).collect();
    assert_eq!(names, ["0", "2", "10", "4294967296", "-1", "01", "a2", "a10", "b"]);
    let mut keys: Vec<ShardKey> =
        ["b/1", "a/10", "a/9"].map(|shard| ShardKey(shard.parse().unwrap())).to_vec();
    keys.sort();
    assert_eq!(keys.iter().map(|key| key.0.to_string()).collect::<Vec<_>>(), ["a/9", "a/10", "b/1"]);
}

#[test]
fn people_count_the_digits_inside_names() {
    let mut names = ["n10", "n9", "n", "n09", "n1-b", "n1-a10", "n1-a9", "é2", "m99"];
    names.sort_by(|a, b| natural_cmp(a, b));
    assert_eq!(names, ["m99", "n", "n1-a9", "n1-a10", "n1-b", "n09", "n9", "n10", "é2"]);
}

proptest! {
    #[test]
    fn the_order_of_people_is_an_order(a in "[0-9a-c]{0,5}", b in "[0-9a-c]{0,5}", c in "[0-9a-c]{0,5}") {
        prop_assert_eq!(natural_cmp(&a, &b), natural_cmp(&b, &a).reverse());
        prop_assert_eq!(natural_cmp(&a, &b).is_eq(), a == b);
        if natural_cmp(&a, &b).is_lt() && natural_cmp(&b, &c).is_lt() {
            prop_assert!(natural_cmp(&a, &c).is_lt());
        }
    }
}

#[test]
fn only_canonical_numbers_are_slots() {
    let slot = |name: &str| ShardName::new(name).unwrap().as_slot();
    assert_eq!([slot("0"), slot("7"), slot("4294967295")], [Some(0), Some(7), Some(u32::MAX)]);
    assert_eq!([slot("00"), slot("+7"), slot("4294967296"), slot("x"), slot("7 x")], [None; 5]);
}

#[test]
fn shards_are_made_of_what_a_program_has_at_hand() {
    let shard: ShardId = "orders/7".parse().unwrap();
    let (group, name) = (GroupName::try_from("orders").unwrap(), ShardName::try_from("7").unwrap());
    assert!(group == "orders" && name == *"7");
    assert_eq!(ShardId::from((group, name)), shard);
    assert_eq!(ShardId::try_from(("orders", "7")).unwrap(), shard);
    assert_eq!(ShardId::try_from(("orders", 7)).unwrap(), shard);
    assert_eq!(ShardId::try_from("orders/7").unwrap(), shard);
    assert!(matches!(ShardId::try_from(("or/ders", 7)), Err(NameError::Character { .. })));
    assert_eq!(u64::from(Epoch::from(7)), 7);
}

proptest! {
    #![proptest_config(crate::trying(2_000))]

    #[test]
    fn the_order_of_people_is_total_and_agrees_with_equality(a in "[0-9a]{1,3}", b in "[0-9a]{1,3}", c in "[0-9a]{1,3}") {
        let [a, b, c] = [a, b, c].map(|name| ShardName::new(name).unwrap());
        prop_assert_eq!(a.natural_cmp(&b), b.natural_cmp(&a).reverse());
        prop_assert_eq!(a.natural_cmp(&b).is_eq(), a == b);
        if a.natural_cmp(&b).is_le() && b.natural_cmp(&c).is_le() {
            prop_assert!(a.natural_cmp(&c).is_le());
        }
        if let (Some(a_slot), Some(b_slot)) = (a.as_slot(), b.as_slot()) {
            prop_assert_eq!(a.natural_cmp(&b), a_slot.cmp(&b_slot));
        }
    }
}
