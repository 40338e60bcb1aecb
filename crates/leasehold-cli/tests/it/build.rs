//! What the build of the program watches, so that `--version` names the commit that it was built from.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use crate::process::to_its_end;

#[test]
fn a_commit_is_noticed_and_nothing_else_is() {
    let folder = tempfile::TempDir::new().unwrap();
    let program = folder.path().join("build");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("build.rs");
    let made = to_its_end(
        Command::new("rustc").args(["--edition", "2024", "-o"]).arg(&program).arg(&source).current_dir("/"),
    );
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    // What is under the watched paths, with its content; a path that is not there would cause a build every time.
    let watched = |place: &Path| -> BTreeMap<String, Vec<u8>> {
        let output = to_its_end(
            Command::new(&program).current_dir(place).env("GIT_CEILING_DIRECTORIES", folder.path()),
        );
        assert!(output.status.success());
        let said = String::from_utf8(output.stdout).unwrap();
        let paths = said.lines().filter_map(|line| line.strip_prefix("cargo::rerun-if-changed="));
        let mut found = BTreeMap::new();
        for path in paths.filter(|path| *path != "build.rs") {
            let mut left = vec![place.join(path)];
            while let Some(path) = left.pop() {
                match path.is_dir() {
                    true => left.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path())),
                    false => drop(found.insert(path.display().to_string(), std::fs::read(&path).unwrap())),
                }
            }
        }
        found
    };
    let outside = folder.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    assert_eq!(watched(&outside), BTreeMap::new());

    let inside = folder.path().join("repository/crates/program");
    std::fs::create_dir_all(&inside).unwrap();
    let git = |arguments: &[&str]| {
        let who =
            ["-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "core.logAllRefUpdates=false"];
        let output = to_its_end(Command::new("git").args(who).args(arguments).current_dir(&inside));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    let commit = || git(&["commit", "-q", "--allow-empty", "-m", "more"]);
    git(&["init", "-q", ".."]);
    commit();
    let first = watched(&inside);
    assert_eq!(watched(&inside), first);
    commit();
    let second = watched(&inside);
    assert_ne!(second, first, "a commit on a branch");
    git(&["pack-refs", "--all"]);
    let packed = watched(&inside);
    commit();
    assert_ne!(watched(&inside), packed, "a commit on a branch that is packed");
}
