//! Notes what the program is built from, for `leasehold --version`.

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
    if let Some(head) = said("git", &["rev-parse", "--git-path", "HEAD"]) {
        println!("cargo::rerun-if-changed={head}");
    }
}
