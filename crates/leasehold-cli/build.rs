//! Notes what the program is built from, for `leasehold --version`.

use std::path::PathBuf;
use std::process::Command;

fn main() {
    let said = |program: &str, arguments: &[&str]| {
        let output =
            Command::new(program).args(arguments).output().ok().filter(|output| output.status.success())?;
        let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
        (!text.is_empty()).then_some(text)
    };
    let variable = |name: &str| std::env::var(name).unwrap_or_else(|_| "unknown".to_owned());
    let commit = said("git", &["rev-parse", "--short=12", "HEAD"]).unwrap_or_else(|| "unknown".to_owned());
    let rustc = said(&variable("RUSTC"), &["--version"]).unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=LEASEHOLD_BUILD_COMMIT={commit}");
    println!("cargo::rustc-env=LEASEHOLD_BUILD_RUSTC={rustc}");
    println!("cargo::rustc-env=LEASEHOLD_BUILD_TARGET={}", variable("TARGET"));
    println!("cargo::rustc-env=LEASEHOLD_BUILD_PROFILE={}", variable("PROFILE"));
    println!("cargo::rerun-if-changed=build.rs");
    let path = |name: &str| said("git", &["rev-parse", "--git-path", name]).map(PathBuf::from);
    // A commit changes the branch and leaves HEAD as it is. A branch that is packed has no file of its own until then, so
    // the folder where it appears is watched. What is not there must not be named: it would count as changed every time.
    let branch = said("git", &["symbolic-ref", "-q", "HEAD"]).and_then(|name| path(&name));
    let branch = branch.and_then(|branch| branch.ancestors().find(|at| at.exists()).map(PathBuf::from));
    let others = ["HEAD", "packed-refs", "reftable"].into_iter().filter_map(path);
    for watched in others.chain(branch).filter(|watched| watched.exists()) {
        println!("cargo::rerun-if-changed={}", watched.display());
    }
}
