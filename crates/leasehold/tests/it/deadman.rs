//! The dead-man timer kills for real, so each case runs in a child: this same program, started again.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use leasehold::clock;
use leasehold::deadman::DeadMan;
use leasehold::{Group, Moment, Node};
use leasehold_store::MemoryServer;
use leasehold_store::wrap::{CutOff, Link};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// How late the kernel's SIGKILL may be seen here, on a busy machine.
const SLACK: Duration = Duration::from_secs(2);

fn spawn(case: &str) -> (Child, Moment) {
    spawn_test("deadman::child", case)
}

fn spawn_test(test: &str, case: &str) -> (Child, Moment) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--nocapture"])
        .env("LEASEHOLD_DEADMAN_CASE", case)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let set = lines.find_map(|line| line.strip_prefix("set ")?.parse().ok());
    // Read on, so that the child can say its last words.
    std::thread::Builder::new().spawn(move || lines.for_each(drop)).unwrap();
    (child, Moment::from_nanos(set.expect("the child says when it will be killed")))
}

fn wait(mut child: Child, until: Moment) -> (Option<i32>, Option<i32>) {
    while clock::now() < until {
        if let Some(status) = child.try_wait().unwrap() {
            return (status.signal(), status.code());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let _ = child.kill();
    let _ = child.wait();
    panic!("the child lived on");
}

/// Not a test: the child of the tests below.
#[test]
#[ignore = "started by the other tests as a child"]
fn child() {
    let Ok(case) = std::env::var("LEASEHOLD_DEADMAN_CASE") else { return };
    let mut timer = DeadMan::new().unwrap();
    let at = clock::now() + Duration::from_millis(300);
    timer.set(at).unwrap();
    println!("\nset {}", at.as_nanos());
    match case.as_str() {
        "spins" => loop {
            std::hint::spin_loop();
        },
        "sleeps" => std::thread::sleep(Duration::from_secs(30)),
        "moved" => {
            timer.set(at + Duration::from_millis(300)).unwrap();
            std::thread::sleep(Duration::from_secs(30));
        }
        "off" => {
            timer.off().unwrap();
            std::thread::sleep(Duration::from_millis(600));
        }
        other => panic!("no such case: {other}"),
    }
}

/// Not a test: a whole node with a dead-man timer, whose store goes silent once its shard runs.
#[test]
#[ignore = "started by the other tests as a child"]
fn node_child() {
    let Ok(case) = std::env::var("LEASEHOLD_DEADMAN_CASE") else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let link = Arc::new(CutOff::new(Arc::new(MemoryServer::with_clock(clock::now).open("test"))));
        let node = Node::builder(link.clone())
            .name("a")
            .ttl(Duration::from_secs(1))
            .new_namespace()
            .dead_man_timer()
            .group(Group::leader("boss"), move |grant| {
                let owns = std::env::var("LEASEHOLD_DEADMAN_CASE").is_ok_and(|case| case == "owned");
                async move {
                    if owns {
                        // It ignores its grant, and its handler is cut off while it waits here.
                        grant.spawn_blocking(|_| std::thread::sleep(Duration::from_secs(30)))?.await?;
                    }
                    grant.stopped().await;
                    Ok::<_, leasehold::BoxError>(())
                }
            })
            .start()
            .await
            .unwrap();
        let shard = "boss/0".parse().unwrap();
        while !node.owns(&shard) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let grant = node.grant(&shard).unwrap();
        // Renewals move the timer: a process that renews is never killed.
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(grant.check(), Ok(()));
        link.set(Link::Stalled);
        println!("\nset {}", (grant.deadline() + Duration::from_millis(150)).as_nanos());
        match case.as_str() {
            // The only thread of the runtime is blocked, so the handler cannot return and cannot be cut off.
            "blocked" => std::thread::sleep(Duration::from_secs(30)),
            // The handler is cut off and gone; the thread that it started under its grant is not.
            "owned" => tokio::time::sleep(Duration::from_secs(30)).await,
            // The handler returns when it is told to, so there is nothing to kill.
            "obedient" => {
                grant.lost().await;
                tokio::time::sleep(Duration::from_secs(1)).await;
                assert!(node.owned().is_empty());
            }
            other => panic!("no such case: {other}"),
        }
    });
}

#[test]
fn a_node_whose_work_cannot_be_stopped_is_killed_before_its_session_is_over() {
    let (child, kill_at) = spawn_test("deadman::node_child", "blocked");
    assert_eq!(wait(child, kill_at + SLACK), (Some(9), None));
    assert!(clock::now() >= kill_at);
}

#[test]
fn blocking_work_of_a_grant_does_not_outlive_the_dead_man() {
    let (child, kill_at) = spawn_test("deadman::node_child", "owned");
    assert_eq!(wait(child, kill_at + SLACK), (Some(9), None));
    assert!(clock::now() >= kill_at);
}

#[test]
fn a_stopped_node_is_killed_before_its_session_is_over() {
    let (child, kill_at) = spawn_test("deadman::node_child", "obedient");
    kill(Pid::from_raw(child.id() as i32), Signal::SIGSTOP).unwrap();
    assert_eq!(wait(child, kill_at + SLACK), (Some(9), None));
    assert!(clock::now() >= kill_at);
}

#[test]
fn a_node_that_stops_in_time_lives_on() {
    let (child, kill_at) = spawn_test("deadman::node_child", "obedient");
    assert_eq!(wait(child, kill_at + SLACK * 2), (None, Some(0)));
}

#[test]
fn a_process_that_spins_is_killed_at_the_moment() {
    let (child, at) = spawn("spins");
    assert_eq!(wait(child, at + SLACK), (Some(9), None));
    assert!(clock::now() >= at);
}

#[test]
fn a_stopped_process_is_killed_at_the_moment() {
    let (child, at) = spawn("sleeps");
    kill(Pid::from_raw(child.id() as i32), Signal::SIGSTOP).unwrap();
    assert_eq!(wait(child, at + SLACK), (Some(9), None));
    assert!(clock::now() >= at);
}

#[test]
fn moving_the_timer_moves_the_kill() {
    let (child, at) = spawn("moved");
    assert_eq!(wait(child, at + SLACK), (Some(9), None));
    assert!(clock::now() >= at + Duration::from_millis(300));
}

#[test]
fn a_timer_that_is_off_kills_nobody() {
    let (child, at) = spawn("off");
    assert_eq!(wait(child, at + SLACK), (None, Some(0)));
}
