//! Clients that watch without joining, and what operators do through them.

use std::sync::Arc;
use std::time::Duration;

use leasehold::{Client, ClientOptions, Error, Group};
use leasehold_core::ShardId;
use leasehold_core::explain::WhatIf;
use leasehold_core::record::{Control, Record, ShardSet};
use leasehold_store::Store;
use leasehold_store::wrap::{Call, Counting, Fault, Faulty, Latency, Rates, Slow};

use crate::bench::{Bench, cut, until};

fn shard(text: &str) -> ShardId {
    text.parse().unwrap()
}

async fn client(bench: &Bench, store: Arc<dyn Store>) -> Client {
    let options = ClientOptions { clock: bench.clock.clone(), ..ClientOptions::default() };
    Client::open_with(store, options).await.unwrap()
}

fn control(bench: &Bench) -> Control {
    Control::decode(&bench.server.get_raw("test", "control").unwrap().value).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_client_sees_locates_and_explains_without_joining() {
    let bench = Bench::new();
    let client = client(&bench, bench.store()).await;
    assert!(client.view().nodes.is_empty() && client.view().ready);
    assert!(matches!(client.locate("orders", "x"), Err(Error::UnknownGroup(_))));
    let a = bench
        .node("a")
        .address("10.0.0.1:80")
        .group(Group::numbered("orders", 4), bench.witness.worker("a"))
        .start()
        .await
        .unwrap();
    client.until(|view| view.nodes.iter().any(|node| node.shards == 4)).await;
    let found = client.locate("orders", "customer-7").unwrap();
    assert_eq!(found.address.as_deref(), Some("10.0.0.1:80"));
    assert_eq!(client.whereabouts(&found.shard), found);
    assert_eq!(found.epoch, bench.witness.epoch(&found.shard).unwrap());
    let why = client.explain(&found.shard).unwrap();
    assert_eq!(why.ranking.len(), 1);
    assert!(client.explain(&shard("orders/4")).is_none());
    let gone = client.what_if(&WhatIf::Down("a".parse().unwrap())).unwrap();
    assert_eq!(gone.homeless, 4);
    let error = client.what_if(&WhatIf::Down("b".parse().unwrap())).unwrap_err();
    assert!(error.to_string().contains("unknown live node b"), "{error}");
    assert_eq!(a.explain(&found.shard).await.unwrap().unwrap().holder, why.holder);
    assert_eq!(a.what_if(WhatIf::Down("a".parse().unwrap())).await.unwrap(), gone);
    a.leave().await;
    client.until(|view| view.nodes.iter().all(|node| !node.state.is_alive())).await;
    assert_eq!(client.locate("orders", "customer-7").unwrap().node, None);
}

#[tokio::test(start_paused = true)]
async fn a_client_says_when_it_is_cut_off_and_catches_up() {
    let bench = Bench::new();
    let link = bench.link();
    let client = client(&bench, link.clone()).await;
    cut(&link);
    let a = bench.node("a").group(Group::leader("boss"), bench.witness.worker("a")).start().await.unwrap();
    a.attached().await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(client.heard_ago() > Duration::from_secs(30) && client.last_error().is_some());
    assert!(client.view().nodes.is_empty());
    link.heal();
    until("it sees the node", 30, || client.view().nodes.len() == 1).await;
    until("all is well", 30, || client.last_error().is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_to_list_always_lists_at_a_bounded_rate() {
    let bench = Bench::new();
    let slow = Slow::new(bench.store(), Latency::fixed(Duration::from_millis(1)), 1);
    let counting = Arc::new(Counting::new(Arc::new(slow)));
    let options =
        ClientOptions { list_every: Duration::ZERO, clock: bench.clock.clone(), ..ClientOptions::default() };
    let client = Client::open_with(counting.clone(), options).await.unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    let listed = counting.counts().of(Call::List);
    assert!((10..200).contains(&listed), "{listed} listings in 10 s");
    drop(client);
}

#[tokio::test(start_paused = true)]
async fn operators_move_shards_by_wishes() {
    let bench = Bench::new();
    let client = client(&bench, bench.store()).await;
    let a =
        bench.node("a").group(Group::numbered("orders", 8), bench.witness.worker("a")).start().await.unwrap();
    let b =
        bench.node("b").group(Group::numbered("orders", 8), bench.witness.worker("b")).start().await.unwrap();
    until("both have some", 60, || bench.witness.at_work("a") >= 3 && bench.witness.at_work("b") >= 3).await;
    let (name_a, name_b) = (a.name().clone(), b.name().clone());

    client.drain(&name_a, "maintenance").await.unwrap();
    until("a is drained", 60, || bench.witness.at_work("b") == 8).await;
    client.undrain(&name_a).await.unwrap();
    until("a is back", 60, || bench.witness.at_work("a") >= 3).await;

    let mine = a.owned()[0].clone();
    client.pin(&mine, &name_b).await.unwrap();
    until("it is on b", 60, || b.owns(&mine)).await;
    client.unpin(&mine).await.unwrap();
    for missing in ["orders/8", "orders/acme"] {
        let error = client.pin(&shard(missing), &name_b).await.unwrap_err();
        assert!(matches!(error, Error::UnknownShard(_)), "{error}");
    }
    assert!(control(&bench).pins.is_empty());

    let epoch = bench.witness.epoch(&mine).unwrap();
    client.release(&mine).await.unwrap();
    until("it starts again", 60, || bench.witness.epoch(&mine).unwrap() > epoch).await;
    let error = client.release(&shard("orders/99")).await.unwrap_err();
    assert!(matches!(error, Error::UnknownShard(_)), "{error}");

    client.freeze("deploying").await.unwrap();
    until("they say so", 10, || a.view().frozen.as_deref() == Some("deploying")).await;
    client.unfreeze().await.unwrap();
    client.set_weight(&name_a, Some(0)).await.unwrap();
    until("a has nothing", 60, || bench.witness.at_work("a") == 0).await;
    client.set_weight(&name_a, None).await.unwrap();
    until("a has some", 60, || bench.witness.at_work("a") >= 3).await;
    bench.witness.assert_no_overlap();
}

#[tokio::test(start_paused = true)]
async fn a_group_grows_shrinks_and_its_epochs_survive_its_settings() {
    let bench = Bench::new();
    let client = client(&bench, bench.store()).await;
    let a =
        bench.node("a").group(Group::numbered("orders", 2), bench.witness.worker("a")).start().await.unwrap();
    until("two run", 10, || bench.witness.at_work("a") == 2).await;
    client.set_group(Group::numbered("orders", 5)).await.unwrap();
    until("five run", 10, || bench.witness.at_work("a") == 5).await;
    client.set_group(Group::numbered("orders", 1)).await.unwrap();
    until("one runs", 30, || bench.witness.at_work("a") == 1).await;
    let error = client
        .edit_group(&"orders".parse().unwrap(), |group| group.policy.balance_permille = 1)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("balance_permille"), "{error}");
    a.leave().await;
    client.delete_group("orders").await.unwrap();
    assert!(bench.server.get_raw("test", "groups/orders").is_none());
    assert!(matches!(client.delete_group("orders").await, Err(Error::UnknownGroup(_))));
    let meta = bench.server.get_raw("test", "meta").unwrap();
    let meta = leasehold_core::record::Meta::decode(&meta.value).unwrap();
    assert!(meta.epoch_floor >= bench.witness.epoch(&shard("orders/0")).unwrap());
    let a =
        bench.node("a").group(Group::numbered("orders", 2), bench.witness.worker("a")).start().await.unwrap();
    until("its own settings count again", 30, || bench.witness.at_work("a") == 2).await;
    let stored = || client.view().groups.iter().any(|group| group.shards == ShardSet::Numbered(2));
    until("and are in the store", 10, stored).await;
    bench.witness.assert_no_overlap();
    drop(a);
}

#[tokio::test(start_paused = true)]
async fn wishes_survive_doubt_and_each_other() {
    let bench = Bench::new();
    let faulty = Arc::new(Faulty::new(bench.store(), Rates::default(), 7));
    let client_a = client(&bench, faulty.clone()).await;
    faulty.inject(Call::Swap, Fault::AnswerLost);
    client_a.freeze("why").await.unwrap();
    assert_eq!(control(&bench).freeze.as_deref(), Some("why"));
    let first = bench.server.get_raw("test", "control").unwrap();
    client_a.freeze("why").await.unwrap();
    assert_eq!(bench.server.get_raw("test", "control").unwrap(), first, "nothing to change, nothing written");

    let client_b = client(&bench, bench.store()).await;
    let pin_all = async |client: &Client, from: u32| {
        for slot in from..from + 10 {
            client.pin(&shard(&format!("orders/{slot}")), &"a".parse().unwrap()).await.unwrap();
        }
    };
    tokio::join!(pin_all(&client_a, 0), pin_all(&client_b, 10));
    assert_eq!(control(&bench).pins.len(), 20, "no wish overwrote another one");
}
