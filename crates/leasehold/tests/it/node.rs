//! Nodes on a memory store under virtual time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use leasehold::notice::SessionState;
use leasehold::{Client, ClientOptions, Error, Finish, Grant, Group, Health, Node, Policy, Pulse};
use leasehold_core::event::Verdict;
use leasehold_core::{Epoch, Notice, ShardId};

use crate::bench::{Bench, cut, until};

fn shard(text: &str) -> ShardId {
    text.parse().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_node_alone_holds_everything_and_leaves_clean() {
    let bench = Bench::new();
    let worker = bench.witness.worker("a");
    let node = bench
        .node("a")
        .address("10.0.0.1:80")
        .group(Group::numbered("orders", 8), worker)
        .start()
        .await
        .unwrap();
    node.attached().await.unwrap();
    until("all run", 5, || bench.witness.at_work("a") == 8).await;
    assert_eq!(node.owned().len(), 8);
    assert!(node.owns(&shard("orders/3")) && !node.owns(&shard("orders/8")));
    assert_eq!(node.grant(&shard("orders/3")).unwrap().epoch(), Epoch(1));
    until("the view shows it", 1, || node.view().me.as_ref().unwrap().held == 8).await;
    let found = node.locate("orders", "customer-7").unwrap();
    assert_eq!(found.node.unwrap().as_str(), "a");
    assert_eq!(found.address.as_deref(), Some("10.0.0.1:80"));
    assert!(matches!(node.locate("nothing", "x"), Err(Error::UnknownGroup(_))));
    let began_at = bench.clock.now();
    assert_eq!(node.leave().await, Finish::Clean);
    assert_eq!(bench.witness.at_work("a"), 0);
    assert!(bench.clock.now().since(began_at) < Duration::from_secs(2), "leaving alone takes no waiting");
    let record = bench.server.get_raw("test", "nodes/a").unwrap();
    assert!(String::from_utf8_lossy(&record.value).contains(r#""state":"left""#));
    bench.witness.assert_no_overlap();
}

#[tokio::test(start_paused = true)]
async fn two_nodes_share_and_a_leave_hands_over() {
    let bench = Bench::new();
    let start = async |name: &str| {
        let worker = bench.witness.worker(name);
        bench.node(name).group(Group::numbered("orders", 16), worker).start().await.unwrap()
    };
    let a = start("a").await;
    until("a has all", 5, || bench.witness.at_work("a") == 16).await;
    let b = start("b").await;
    until("b gets its share", 60, || bench.witness.at_work("b") >= 7 && bench.witness.at_work("a") <= 9)
        .await;
    let began_at = bench.clock.now();
    assert_eq!(b.leave().await, Finish::Clean);
    until("a has all again", 5, || bench.witness.at_work("a") == 16).await;
    assert!(bench.clock.now().since(began_at) < Duration::from_secs(5));
    bench.witness.assert_no_overlap();
    drop(a);
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_work_gets_nothing_done_hands_over_until_its_pulse_beats_again() {
    let bench = Bench::new();
    let pulse = Pulse::on(bench.clock.clone(), Duration::from_secs(30));
    let worker = bench.witness.worker("a");
    let a = bench.node("a").pulse(&pulse).group(Group::numbered("orders", 8), worker).start().await.unwrap();
    let worker = bench.witness.worker("b");
    let b = bench.node("b").group(Group::numbered("orders", 8), worker).start().await.unwrap();
    until("both work", 20, || bench.witness.at_work("a") >= 3 && bench.witness.at_work("b") >= 3).await;
    until("the sick one hands over", 60, || bench.witness.at_work("b") == 8).await;
    pulse.beat();
    until("it takes shards again", 25, || bench.witness.at_work("a") >= 3).await;
    bench.witness.assert_no_overlap();
    drop((a, b));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_cut_off_stops_in_time_and_recovers_by_itself() {
    let bench = Bench::new();
    let link = bench.link();
    let stubborn = bench.witness.stubborn("a");
    let a =
        bench.node_on("a", link.clone()).group(Group::numbered("orders", 4), stubborn).start().await.unwrap();
    until("a has all", 5, || bench.witness.at_work("a") == 4).await;
    let worker = bench.witness.worker("b");
    let b = bench.node("b").capacity(4).group(Group::numbered("orders", 4), worker).start().await.unwrap();
    b.attached().await.unwrap();
    let mut events = a.events();
    let grant = a.grant(&shard("orders/0"));
    cut(&link);
    let cut_at = bench.clock.now();
    until("b has all", 60, || bench.witness.at_work("b") == 4).await;
    bench.witness.assert_no_overlap();
    let ended_after = bench.clock.now().since(cut_at);
    assert!(
        ended_after > Duration::from_secs(8),
        "nobody may start before the session is over: {ended_after:?}"
    );
    assert!(ended_after < Duration::from_secs(16), "failover takes the ttl and a little: {ended_after:?}");
    if let Some(grant) = grant {
        assert!(grant.is_lost());
    }
    assert!(a.owned().is_empty());
    let mut told = Vec::new();
    while told.last().is_none_or(|to| to != "detached") {
        if let Notice::StateChanged { to, .. } = &events.next().await.unwrap().notice {
            told.push(to.to_string());
        }
    }
    assert_eq!(told, ["degraded", "detached"]);
    link.heal();
    until("a is attached again", 60, || {
        a.view().me.as_ref().unwrap().session_state == SessionState::Attached
    })
    .await;
    until("a has a share again", 120, || bench.witness.at_work("a") >= 1).await;
    bench.witness.assert_no_overlap();
}

#[tokio::test(start_paused = true)]
async fn the_gate_sends_shards_to_the_next_in_rank() {
    let bench = Bench::new();
    let open = Arc::new(AtomicBool::new(false));
    let gate = open.clone();
    let a = bench
        .node("a")
        .gate(move |_| {
            let open = gate.load(Ordering::Relaxed);
            async move { if open { Verdict::Take } else { Verdict::Refuse } }
        })
        .group(Group::numbered("orders", 6), bench.witness.worker("a"))
        .start()
        .await
        .unwrap();
    let b =
        bench.node("b").group(Group::numbered("orders", 6), bench.witness.worker("b")).start().await.unwrap();
    until("b has what a refuses", 60, || bench.witness.at_work("b") == 6).await;
    assert_eq!(bench.witness.at_work("a"), 0);
    open.store(true, Ordering::Relaxed);
    until("a takes its share", 120, || bench.witness.at_work("a") >= 2).await;
    bench.witness.assert_no_overlap();
    drop((a, b));
}

#[tokio::test(start_paused = true)]
async fn a_gate_that_hangs_refuses() {
    let bench = Bench::new();
    let a = bench
        .node("a")
        .gate(|_| std::future::pending())
        .group(Group::numbered("orders", 2), bench.witness.worker("a"))
        .start()
        .await
        .unwrap();
    let b =
        bench.node("b").group(Group::numbered("orders", 2), bench.witness.worker("b")).start().await.unwrap();
    until("b has all", 60, || bench.witness.at_work("b") == 2).await;
    drop((a, b));
}

#[tokio::test(start_paused = true)]
async fn an_unhealthy_node_hands_over_and_the_weight_hook_counts() {
    let bench = Bench::new();
    let sick = Arc::new(AtomicBool::new(false));
    let weight = Arc::new(AtomicU32::new(100));
    let (sickness, weighing) = (sick.clone(), weight.clone());
    let a = bench
        .node("a")
        .health(move || {
            let sick = sickness.load(Ordering::Relaxed);
            async move { if sick { Health::Unhealthy } else { Health::Healthy } }
        })
        .weigh(move || {
            let weight = weighing.load(Ordering::Relaxed);
            async move { weight }
        })
        .group(Group::numbered("orders", 12), bench.witness.worker("a"))
        .start()
        .await
        .unwrap();
    let b = bench
        .node("b")
        .group(Group::numbered("orders", 12), bench.witness.worker("b"))
        .start()
        .await
        .unwrap();
    until("both have some", 60, || bench.witness.at_work("a") >= 5 && bench.witness.at_work("b") >= 5).await;
    weight.store(1100, Ordering::Relaxed);
    until("a has more", 120, || bench.witness.at_work("a") >= 10).await;
    sick.store(true, Ordering::Relaxed);
    until("b has all", 60, || bench.witness.at_work("b") == 12).await;
    bench.witness.assert_no_overlap();
    drop((a, b));
}

#[tokio::test(start_paused = true)]
async fn named_shards_come_and_go_and_engaging_again_keeps_the_grant() {
    let bench = Bench::new();
    let node =
        bench.node("a").group(Group::named("tenants"), bench.witness.worker("a")).start().await.unwrap();
    let acme = shard("tenants/acme");
    node.engage(&acme).unwrap();
    until("acme runs", 10, || node.owns(&acme)).await;
    let grant = node.grant(&acme).unwrap();
    node.engage(&acme).unwrap();
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(grant.check(), Ok(()));
    assert_eq!(bench.witness.starts(&acme), 1);
    assert_eq!(node.locate("tenants", "acme").unwrap().node.unwrap().as_str(), "a");
    node.disengage(&acme).unwrap();
    until("acme is gone", 10, || bench.witness.at_work("a") == 0 && !node.owns(&acme)).await;
    assert!(grant.is_lost());
    node.engage(&acme).unwrap();
    until("acme is back", 30, || node.owns(&acme)).await;
    assert!(node.grant(&acme).unwrap().epoch() > grant.epoch());
    bench.witness.assert_no_overlap();
}

#[tokio::test(start_paused = true)]
async fn groups_and_handlers_can_be_added_later() {
    let bench = Bench::new();
    let node = bench.node("a").hold(Group::numbered("orders", 2)).start().await.unwrap();
    until("held without handlers", 10, || node.owned().len() == 2).await;
    let epoch = node.grant(&shard("orders/1")).unwrap().epoch();
    node.handle("orders", bench.witness.worker("a")).unwrap();
    until("the handler joins", 5, || bench.witness.at_work("a") == 2).await;
    assert_eq!(bench.witness.epoch(&shard("orders/1")), Some(epoch), "under the grant that is there");
    node.serve(Group::leader("boss"), bench.witness.worker("a")).unwrap();
    until("the new group runs", 10, || node.owns(&shard("boss/0"))).await;
    assert_eq!(node.leave().await, Finish::Clean);
    assert_eq!(bench.witness.at_work("a"), 0);
}

#[tokio::test(start_paused = true)]
async fn dropping_a_node_stops_its_work_and_frees_its_shards() {
    let bench = Bench::new();
    let a = bench
        .node("a")
        .group(Group::numbered("orders", 4), bench.witness.stubborn("a"))
        .start()
        .await
        .unwrap();
    until("a has all", 5, || bench.witness.at_work("a") == 4).await;
    let b =
        bench.node("b").group(Group::numbered("orders", 4), bench.witness.worker("b")).start().await.unwrap();
    b.attached().await.unwrap();
    drop(a);
    let dropped_at = bench.clock.now();
    until("b has all", 30, || bench.witness.at_work("b") == 4).await;
    let took = bench.clock.now().since(dropped_at);
    assert!(
        took < Duration::from_secs(5),
        "stubborn work is cut off after the margin, not after the ttl: {took:?}"
    );
    bench.witness.assert_no_overlap();
}

#[tokio::test(start_paused = true)]
async fn drain_hands_over_and_undrain_takes_back() {
    let bench = Bench::new();
    let a =
        bench.node("a").group(Group::numbered("orders", 8), bench.witness.worker("a")).start().await.unwrap();
    let b =
        bench.node("b").group(Group::numbered("orders", 8), bench.witness.worker("b")).start().await.unwrap();
    until("both have some", 60, || bench.witness.at_work("a") >= 3 && bench.witness.at_work("b") >= 3).await;
    tokio::time::timeout(Duration::from_secs(30), a.drain()).await.unwrap().unwrap();
    assert_eq!(bench.witness.at_work("a"), 0);
    until("b has all", 10, || bench.witness.at_work("b") == 8).await;
    a.undrain().unwrap();
    until("a has some again", 60, || bench.witness.at_work("a") >= 3).await;
    a.set_weight(0).unwrap();
    until("a has nothing", 60, || bench.witness.at_work("a") == 0).await;
    bench.witness.assert_no_overlap();
    assert_eq!(b.leave().await, Finish::Clean);
}

/// The renewal that tells of another weight is still under way when the last word is said.
#[tokio::test(start_paused = true)]
async fn a_renewal_under_way_does_not_hold_up_leaving() {
    let bench = Bench::new();
    let node = bench.node("a").start().await.unwrap();
    node.attached().await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let began_at = bench.clock.now();
    node.set_weight(7).unwrap();
    assert_eq!(node.leave().await, Finish::Clean);
    let took = bench.clock.now().since(began_at);
    assert!(took < Duration::from_millis(500), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn leaving_without_a_store_is_bounded_and_says_so() {
    let bench = Bench::new();
    let link = bench.link();
    let node = bench
        .node_on("a", link.clone())
        .group(Group::numbered("orders", 2), bench.witness.worker("a"))
        .start()
        .await
        .unwrap();
    until("a has all", 5, || bench.witness.at_work("a") == 2).await;
    cut(&link);
    let began_at = bench.clock.now();
    let finish = node.leave_within(Duration::from_secs(5), leasehold_core::event::Returning::No).await;
    assert_eq!(finish, Finish::Unconfirmed);
    assert_eq!(bench.witness.at_work("a"), 0);
    assert!(bench.clock.now().since(began_at) < Duration::from_secs(18));
}

/// The time that it is given is for work, and none runs.
#[tokio::test(start_paused = true)]
async fn a_detached_node_leaves_within_a_few_seconds() {
    let bench = Bench::new();
    let link = bench.link();
    let builder =
        bench.node_on("a", link.clone()).group(Group::numbered("orders", 4), bench.witness.worker("a"));
    let node = builder.start().await.unwrap();
    until("it holds all", 5, || node.owned().len() == 4).await;
    cut(&link);
    let detached = |node: &Node| {
        node.view().me.as_ref().is_some_and(|me| me.session_state == SessionState::Detached && me.held == 0)
    };
    until("it is detached", 20, || detached(&node)).await;
    let began_at = bench.clock.now();
    assert_eq!(node.leave().await, Finish::Unconfirmed);
    let took = bench.clock.now().since(began_at);
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_group_is_dropped_and_one_from_the_store_is_not_written_again() {
    let bench = Bench::new();
    let options = ClientOptions { clock: bench.clock.clone(), ..ClientOptions::default() };
    let client = Client::open_with(bench.store(), options).await.unwrap();
    client.set_group(Group::numbered("billing", 2)).await.unwrap();
    let node =
        bench.node("a").group(Group::numbered("orders", 4), bench.witness.worker("a")).start().await.unwrap();
    node.serve_stored(Group::numbered("billing", 2), bench.witness.worker("a")).unwrap();
    until("it holds both", 10, || node.owned().len() == 6).await;
    client.delete_group("billing").await.unwrap();
    client.delete_group("orders").await.unwrap();
    until("its own group is written again", 30, || bench.server.get_raw("test", "groups/orders").is_some())
        .await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(bench.server.get_raw("test", "groups/billing").is_none(), "those of others are not");
    assert_eq!(node.owned().len(), 6, "it goes on until it is dropped");
    node.unserve("billing").unwrap();
    until("it is dropped", 5, || node.owned().len() == 4).await;
    node.unserve("billing").unwrap();
    assert!(matches!(node.handle("billing", bench.witness.worker("a")), Err(Error::NotServed(_))));
    node.serve(Group::numbered("billing", 2), bench.witness.worker("a")).unwrap();
    until("it is served again", 10, || node.owned().len() == 6).await;
    assert_eq!(node.leave().await, Finish::Clean);
}

#[tokio::test(start_paused = true)]
async fn settings_that_cannot_work_are_all_reported() {
    let bench = Bench::new();
    let error = bench
        .node("a/b")
        .configure(|config| config.margin = Duration::from_secs(9))
        .hold(Group::numbered("bad/name", 4))
        .start()
        .await
        .unwrap_err();
    let Error::Config(problems) = &error else { panic!("{error}") };
    assert!(problems.len() >= 3, "{problems:#?}");
    let text = error.to_string();
    assert!(text.contains("a/b") && text.contains("bad/name") && text.contains("margin"), "{text}");
}

/// The development coordinator: no store, everything at once, on real threads.
#[tokio::test]
async fn solo_holds_everything_at_once() {
    let node = Node::solo()
        .group(Group::numbered("orders", 100), |grant| async move { grant.stopped().await })
        .start()
        .await
        .unwrap();
    let began_at = node.now();
    while node.owned().len() < 100 {
        assert!(node.now().since(began_at) < Duration::from_secs(5));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    println!("all 100 after {:?}", node.now().since(began_at));
    assert_eq!(node.leave().await, Finish::Clean);
}

/// What is said at run time is checked like what was said at the start, and changes nothing if it is refused.
#[tokio::test(start_paused = true)]
async fn settings_at_run_time_are_checked_too() {
    let bench = Bench::new();
    let worker = || bench.witness.worker("a");
    let node = bench.node("a").group(Group::numbered("orders", 4), worker()).start().await.unwrap();
    until("all run", 5, || bench.witness.at_work("a") == 4).await;
    let refused = |group| match node.serve(group, worker()) {
        Err(Error::Config(problems)) => problems,
        other => panic!("{other:?}"),
    };
    let problems = refused(Group::numbered("zero", 0).capacity(0));
    assert_eq!(problems.len(), 2, "{problems:#?}");
    let unfair = Policy { balance_permille: 1, ..Policy::default() };
    let problems = refused(Group::numbered("unfair", 2).policy(unfair));
    assert!(problems[0].to_string().contains("balance_permille (1)"), "{problems:#?}");
    assert!(matches!(node.set_capacity(Some(0)), Err(Error::Config(_))));
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(node.owned().len(), 4);
    assert!(bench.server.get_raw("test", "groups/zero").is_none());
    assert!(bench.server.get_raw("test", "groups/unfair").is_none());
}

#[tokio::test(start_paused = true)]
async fn times_at_their_ends_are_refused_and_never_a_panic() {
    let bench = Bench::new();
    for (ttl, hook_every, word) in [
        (Duration::from_secs(10), Duration::ZERO, "hook_every: 0ns"),
        (Duration::MAX, Duration::from_secs(1), "ttl"),
        (Duration::ZERO, Duration::from_secs(1), "ttl"),
    ] {
        let builder = bench.node("a").ttl(ttl).hook_every(hook_every).hold(Group::leader("boss"));
        let Err(Error::Config(problems)) = builder.start().await else { panic!("{word}: it started") };
        assert!(problems.iter().any(|problem| problem.to_string().contains(word)), "{word}: {problems:#?}");
    }
}

/// What could never have an effect is an error, and not a silent yes.
#[tokio::test(start_paused = true)]
async fn only_shards_of_named_groups_that_are_served_are_engaged() {
    let bench = Bench::new();
    let worker = || bench.witness.worker("a");
    let node = bench
        .node("a")
        .group(Group::numbered("orders", 4), worker())
        .hold(Group::named("tenants"))
        .start()
        .await
        .unwrap();
    let said = |outcome: Result<(), Error>| match outcome {
        Err(error @ (Error::NotServed(_) | Error::Numbered { .. })) => error.to_string(),
        other => panic!("{other:?}"),
    };
    for _ in 0..2 {
        for outcome in [node.engage(&shard("orders/1")), node.disengage(&shard("orders/1"))] {
            assert!(said(outcome).contains("numbered slots (0 to 3)"));
        }
        for outcome in
            [node.engage(&shard("nope/x")), node.disengage(&shard("nope/x")), node.handle("nope", worker())]
        {
            assert!(said(outcome).contains("does not serve the group nope"));
        }
        node.engage(&shard("tenants/acme")).unwrap();
        // Once more when the store has its say.
        until("all is held", 10, || node.owned().len() == 5).await;
    }
    node.serve(Group::named("nope"), worker()).unwrap();
    node.engage(&shard("nope/x")).unwrap();
    until("it runs", 20, || node.owns(&shard("nope/x"))).await;
}

#[tokio::test(start_paused = true)]
async fn a_group_is_given_twice_only_with_the_same_settings() {
    let bench = Bench::new();
    let worker = || bench.witness.worker("a");
    let both = |first: Group, second: Group| bench.node("a").group(first, worker()).hold(second);
    let group = || Group::numbered("orders", 4);
    assert!(both(group(), group()).start().await.is_ok());
    for other in [Group::numbered("orders", 8), Group::named("orders"), group().capacity(2)] {
        let Err(Error::Config(problems)) = both(group(), other).start().await else { panic!("it started") };
        assert!(
            problems[0].to_string().contains("groups[orders]: the group was added twice"),
            "{problems:#?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn the_holder_of_a_shard_knows_its_group() {
    let bench = Bench::new();
    let node = bench.node("a").hold(Group::numbered("orders", 4)).start().await.unwrap();
    while node.owned().is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    node.locate("orders", "customer-7").unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_leader_with_a_minimum_stays_until_it_leaves_or_steps_down() {
    let minute = Duration::from_secs(60);
    // Whichever of the two the plan prefers, one of the orders has the other one lead first.
    for [leader, joiner] in [["a", "b"], ["b", "a"]] {
        let bench = Bench::new();
        let group = || Group::leader("scheduler").policy(Policy { kept_min: 1, ..Policy::default() });
        let work = |grant: Grant| async move { grant.stopped().await };
        let start = async |name| bench.node(name).group(group(), work).start().await.unwrap();
        let first = start(leader).await;
        until("the first leads", 5, || first.owns(&shard("scheduler/0"))).await;
        let second = start(joiner).await;
        second.attached().await.unwrap();
        tokio::time::sleep(minute).await;
        assert!(first.owns(&shard("scheduler/0")), "{joiner} took the lead from {leader}");
        first.grant(&shard("scheduler/0")).unwrap().step_down(minute).unwrap();
        until("it steps down", 5, || second.owns(&shard("scheduler/0"))).await;
        tokio::time::sleep(2 * minute).await;
        assert!(second.owns(&shard("scheduler/0")), "{leader} took the lead back");
        second.set_accepting(false).unwrap();
        until("it is unhealthy", 20, || first.owns(&shard("scheduler/0"))).await;
        second.set_accepting(true).unwrap();
        tokio::time::sleep(minute).await;
        first.leave().await;
        until("it leaves", 5, || second.owns(&shard("scheduler/0"))).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_group_that_is_served_is_never_unknown() {
    let bench = Bench::new();
    let first = bench.node("a").start().await.unwrap();
    first.attached().await.unwrap();
    // Its name is taken, so it cannot join yet; the store has no settings of the group.
    let second = bench.node("a").hold(Group::numbered("orders", 4)).start().await.unwrap();
    second.until(|view| view.ready).await.unwrap();
    assert!(matches!(second.locate("orders", "customer-7"), Err(Error::NotReady)));
    assert!(matches!(second.locate("nothing", "customer-7"), Err(Error::UnknownGroup(_))));
    first.leave().await;
    second.attached().await.unwrap();
    until("it knows its group", 5, || second.locate("orders", "customer-7").is_ok()).await;
}

#[tokio::test(start_paused = true)]
async fn only_a_shard_that_exists_is_unquarantined() {
    let bench = Bench::new();
    let node = bench.node("a").hold(Group::numbered("orders", 4)).start().await.unwrap();
    until("it holds them", 5, || node.view().shards.len() == 4).await;
    node.unquarantine(&shard("orders/3")).unwrap();
    assert!(matches!(node.unquarantine(&shard("orders/4")), Err(Error::UnknownShard(_))));
    assert!(matches!(node.unquarantine(&shard("ordres/3")), Err(Error::UnknownShard(_))));
}
