//! Full and read-only file systems, in a mount namespace of their own so that nothing is left behind.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use leasehold_local::Local;
use leasehold_store::{Lane, Store, StoreErrorKind, Swapped};

use crate::child::{self, Process, say};
use crate::common::*;

/// Says so past the test harness, which would swallow it.
fn skipped(test: &str, why: &str) {
    let line = format!("SKIPPED 1 test: {test}: {why}\n");
    let _ = std::io::stderr().lock().write_all(line.as_bytes());
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A command that runs a role with a small file system mounted on the folder, if this machine allows it.
fn in_small_file_system(role: &str, folder: &Folder) -> Option<Command> {
    in_file_system_of("3m", role, folder)
}

fn in_file_system_of(size: &str, role: &str, folder: &Folder) -> Option<Command> {
    let unshare = || {
        let mut command = Command::new("unshare");
        command.arg("--mount");
        if !is_root() {
            command.args(["--user", "--map-root-user"]);
        }
        command
    };
    let mount = format!(r#"mount -t tmpfs -o size={size} tmpfs "$1""#);
    let allowed = unshare()
        .args(["sh", "-c", &mount, "sh"])
        .arg(folder.dir.path())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    let script = format!(r#"{mount} && shift && exec "$@""#);
    let mut command = unshare();
    command.args(["sh", "-c", &script, "sh"]).arg(folder.dir.path());
    let inner = child::command(role, &folder.file());
    command.arg(inner.get_program()).args(inner.get_args());
    child::set(&mut command, role, &folder.file());
    allowed.then_some(command)
}

#[test]
fn a_full_disk_refuses_and_recovers() {
    let folder = Folder::new();
    match in_small_file_system("full", &folder) {
        Some(command) => Process::spawn(command).ends_well(),
        None => skipped("a_full_disk_refuses_and_recovers", "no file system can be mounted here"),
    }
}

/// In the sandbox: fills the disk, and frees it again.
pub(crate) async fn fill_the_disk(file: &Path) {
    let store = Local::open(file, "test").expect("it opens");
    let mut version = applied(&store, put("meta", None, b"1")).await;
    let ballast = file.with_file_name("ballast");
    let mut big = std::fs::File::create(&ballast).expect("made");
    while big.write_all(&[0; 4096]).is_ok() {}
    let mut refused = 0;
    for round in 0..200 {
        let value = vec![b'x'; 2_000];
        match store.swap(Lane::Renewal, &[put("meta", Some(&version), &value)]).await {
            Ok(mut reply) => match reply.outcomes.remove(0) {
                Swapped::Applied(next) => version = next,
                other => panic!("round {round}: {other:?}"),
            },
            Err(error) => {
                assert_eq!(error.kind, StoreErrorKind::Refused, "{error}");
                assert!(error.message.contains("full"), "{error}");
                refused += 1;
            }
        }
    }
    assert!(refused > 50, "the disk was full for {refused} of 200 writes");
    drop(big);
    std::fs::remove_file(&ballast).expect("freed");
    let found = read(&store, "meta").await.expect("there");
    applied(&store, put("meta", Some(&found.version), b"free again")).await;
    say("done");
}

#[test]
fn two_megabytes_are_enough_for_ever() {
    let folder = Folder::new();
    match in_file_system_of("2m", "small", &folder) {
        Some(command) => Process::spawn(command).ends_well(),
        None => skipped("two_megabytes_are_enough_for_ever", "no file system can be mounted here"),
    }
}

/// In the sandbox: many renewals of several nodes, on a disk that holds a few hundred of them at most.
pub(crate) async fn write_on(file: &Path) {
    let stores = [(); 3].map(|()| Local::open(file, "test").expect("it opens"));
    let value = vec![b'x'; 600];
    for round in 0..1_000 {
        for (at, store) in stores.iter().enumerate() {
            let name = format!("nodes/n{at}");
            let before = read(store, &name).await.map(|found| found.version);
            let reply = store.swap(Lane::Renewal, &[put(&name, before.as_ref(), &value)]).await;
            let outcome = reply.unwrap_or_else(|error| panic!("round {round}: {error}")).outcomes.remove(0);
            assert!(matches!(outcome, Swapped::Applied(_)), "round {round}: {outcome:?}");
        }
    }
    say("done");
}

#[test]
fn a_read_only_file_system_refuses_and_recovers() {
    let folder = Folder::new();
    match in_small_file_system("remount", &folder) {
        Some(command) => Process::spawn(command).ends_well(),
        None => skipped("a_read_only_file_system_refuses_and_recovers", "no file system can be mounted here"),
    }
}

/// In the sandbox: makes the file system read-only under a running store, and writable again.
pub(crate) async fn remount(file: &Path) {
    let folder = file.parent().expect("a folder").to_owned();
    let mount = |how: &str| {
        let status = Command::new("mount").args(["-o", how]).arg(&folder).status().expect("mount runs");
        assert!(status.success(), "{status}");
    };
    drop(Local::open(file, "test").expect("it opens"));
    checkpoint(file);
    mount("remount,ro");
    let error = Local::open(file, "test").expect_err("it is read-only");
    assert_eq!(error.kind, StoreErrorKind::Refused, "{error}");
    mount("remount,rw");
    let store = Local::open(file, "test").expect("it opens");
    applied(&store, put("meta", None, b"1")).await;
    say("done");
}

#[test]
fn a_file_that_this_user_may_not_write_is_refused() {
    if !is_root() {
        return skipped(
            "a_file_that_this_user_may_not_write_is_refused",
            "only root can become another user",
        );
    }
    let folder = Folder::new();
    drop(folder.open());
    let mode = |path: &Path, mode| {
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(path, permissions).expect("set");
    };
    mode(folder.dir.path(), 0o777);
    mode(&folder.dir.path().join("x.db-live"), 0o777);
    mode(&folder.dir.path().join("x.db-live/open"), 0o666);
    mode(&folder.file(), 0o444);
    // This binary may lie where that user cannot come.
    let open = tempfile::tempdir().expect("a folder");
    mode(open.path(), 0o755);
    let program = open.path().join("test");
    std::fs::copy(std::env::current_exe().expect("this binary"), &program).expect("a copy");
    let mut command = child::command_of(&program, "open", &folder.file());
    command.uid(65534).gid(65534);
    let word = Process::spawn(command).says().expect("a word");
    assert!(word.starts_with("Refused") && word.contains("read-only for this user"), "{word}");

    mode(folder.dir.path(), 0o555);
    let mut command = child::command_of(&program, "open", &folder.dir.path().join("new.db"));
    command.uid(65534).gid(65534);
    let word = Process::spawn(command).says().expect("a word");
    assert!(word.starts_with("Refused") && word.contains("must be able to write"), "{word}");
}
