//! Children in a process namespace of their own: nothing outlives the lease, even if everybody who could kill it is
//! stopped or killed in one blow.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::guard::{FAMILY, FAMILY_SIZE, Guard, MS};
use crate::process::{LEASEHOLD, now_ns, runs, send, wait_for};
use crate::supervisor::{PATIENCE, STUBBORN, Sandbox, gone_at};

/// Whether this machine gives namespaces; told and counted if not.
fn possible() -> bool {
    let reports = Guard::like("pid", "exit 0", 20_000, 500).reports();
    if let Some(refusal) = reports.iter().find(|report| report.starts_with("failed")) {
        assert!(refusal.contains("this machine does not allow"), "{refusal}");
        leasehold_servers::skip("no process namespace can be made here: be root, or allow user namespaces");
        return false;
    }
    true
}

/// All processes at work in a folder: those of the program itself, and the others.
fn processes_in(folder: &Path) -> (Vec<i32>, Vec<i32>) {
    let folder = fs::canonicalize(folder).unwrap();
    let program = fs::canonicalize(LEASEHOLD).unwrap();
    let (mut ours, mut others) = (Vec::new(), Vec::new());
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let link = |name: &str| fs::read_link(entry.path().join(name)).ok();
        if link("cwd").as_deref() == Some(&folder) {
            if link("exe").as_deref() == Some(&program) { ours.push(pid) } else { others.push(pid) }
        }
    }
    (ours, others)
}

fn family_of(guard: &Guard) -> Vec<i32> {
    wait_for("the processes start", Duration::from_secs(20), || {
        let (ours, family) = processes_in(guard.folder.path());
        // The shell, and those below it; nobody is still on the way to being a command.
        (ours.len() == 2 && family.len() > FAMILY_SIZE).then_some(family)
    })
}

#[test]
fn everything_is_dead_by_the_end_of_the_lease_though_guard_and_namespace_are_stopped() {
    if !possible() {
        return;
    }
    let guard = Guard::like("pid", FAMILY, 2500, 500);
    let family = family_of(&guard);
    let (ours, _) = processes_in(guard.folder.path());
    for pid in ours {
        send(pid as u32, Signal::SIGSTOP);
    }
    guard.assert_in_time(&family);
}

#[test]
fn everything_dies_with_a_guard_that_is_killed() {
    if !possible() {
        return;
    }
    let guard = Guard::like("pid", FAMILY, 60_000, 500);
    let family = family_of(&guard);
    let killed_at = now_ns();
    send(guard.process.id(), Signal::SIGKILL);
    let took = guard.gone_at(&family) - killed_at;
    assert!(took < 15_000 * MS, "not at the end of the lease: took {} ms", took / MS);
}

#[test]
fn a_lease_that_ends_and_a_child_that_ends_are_told_as_without_a_namespace() {
    if !possible() {
        return;
    }
    let guard = Guard::like("pid", FAMILY, 1500, 500);
    let family = family_of(&guard);
    guard.assert_in_time(&family);
    let reports = guard.reports();
    assert_eq!(reports[1..], ["killing the lease ended", "signalled 9", "gone"].map(str::to_owned));

    let script =
        "(setsid sh -c 'exec sleep 1000' &); read -r me rest < /proc/self/stat; [ -d /proc/$$ ] && exit 3";
    let reports = Guard::like("pid", script, 60_000, 500).reports();
    assert_eq!(reports[1..], ["exited 3", "gone"].map(str::to_owned));

    let polite = "trap 'sleep 0.2; exit 4' TERM; echo up > up; while :; do sleep 0.05; done";
    let mut guard = Guard::like("pid", polite, 60_000, 500);
    let up = guard.folder.path().join("up");
    wait_for("it has set its trap", Duration::from_secs(20), || up.exists().then_some(()));
    guard.order(&format!("terminate {}\n", now_ns() + 10_000 * MS));
    assert_eq!(guard.reports()[1..], ["exited 4", "gone"].map(str::to_owned));
}

#[test]
fn a_supervisor_killed_with_all_its_guards_leaves_nobody_beside_the_next_owner() {
    if !possible() {
        return;
    }
    for (signal, isolate) in [(Signal::SIGSTOP, "pid"), (Signal::SIGKILL, "auto")] {
        let place = Sandbox::new();
        let flags = ["--shards", "2", "--ttl", "3s", "--isolate", isolate];
        let mut first = place.run("a", &flags, STUBBORN);
        place.wait_for_beats("a", 2);
        let (ours, family) = wait_for("both shards run", PATIENCE, || {
            Some(processes_in(place.path())).filter(|(_, family)| family.len() >= 4)
        });
        assert_eq!(ours.len(), 5, "a supervisor, and a guard and a first process for each shard");
        for pid in ours {
            send(pid as u32, signal);
        }
        let _second = place.run("b", &flags, STUBBORN);
        gone_at(&family);
        place.wait_for_beats("b", 2);
        place.assert_no_overlap();
        first.signal(Signal::SIGKILL);
        first.end();
    }
}

#[test]
fn a_user_who_is_not_root_gets_a_user_namespace_with_it_or_a_clear_refusal() {
    if !possible() || !rustix::process::geteuid().is_root() {
        return;
    }
    let folder = tempfile::TempDir::new().unwrap();
    let program = folder.path().join("leasehold");
    fs::copy(LEASEHOLD, &program).unwrap();
    open_up(folder.path());
    let mut supervisor = Command::new(&program)
        .args([
            "run",
            "--store",
            "local:x.db",
            "--group",
            "g",
            "--shards",
            "1",
            "--new-namespace",
            "--ttl",
            "3s",
        ])
        .args(["--isolate", "pid", "--", "sh", "-c", "id -u > uid; echo $$ > pid; exec sleep 1000"])
        .current_dir(folder.path())
        .env("HOME", folder.path())
        .uid(65534)
        .gid(65534)
        .stderr(fs::File::create(folder.path().join("log")).unwrap())
        .spawn()
        .unwrap();
    let uid = folder.path().join("uid");
    let log = || fs::read_to_string(folder.path().join("log")).unwrap_or_default();
    let said = wait_for("the child starts", PATIENCE, || {
        let refused = matches!(supervisor.try_wait(), Ok(Some(_)));
        let said = fs::read_to_string(&uid).ok().filter(|said| said.ends_with('\n'));
        if refused { Some(None) } else { said.map(Some) }
    });
    let Some(said) = said else {
        // This kernel gives nobody but root a namespace: then it says so, and runs nothing.
        assert!(log().contains("cannot create PID namespaces for children"), "{}", log());
        return;
    };
    assert_eq!(said, "65534\n", "it is still who it was");
    let (_, family) = processes_in(folder.path());
    let _ = supervisor.kill();
    let _ = supervisor.wait();
    wait_for("all end", PATIENCE, || (!family.iter().any(|pid| runs(*pid))).then_some(()));
}

fn open_up(folder: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o777)).unwrap();
}
