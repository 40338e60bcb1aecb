//! `leasehold demo` without a terminal.

use std::process::Command;

use crate::process::LEASEHOLD;

#[test]
fn the_demo_breaks_things_heals_and_sees_no_double_owner() {
    let output = Command::new(LEASEHOLD).args(["demo", "--for", "8s", "--shards", "16"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    for part in [
        "3 nodes start",
        "d joins",
        "killed with SIGKILL",
        "SIGSTOP",
        "asked to leave",
        "double owners seen by the workers: 0",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    assert!(!text.contains("in vain"), "{text}");
}
