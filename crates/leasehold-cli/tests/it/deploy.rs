//! What is under `deploy/`, manual pages and the sample of settings: each checked by the programs that will read it, as
//! far as they are there.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::process::{LEASEHOLD, to_its_end};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(repository().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn stdout(command: &mut Command) -> String {
    let output = to_its_end(command);
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Whether there is such a program; if not, the test is skipped.
fn have(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
    if !found {
        leasehold_servers::skip(&format!("{program} is missing: run servers/install {program}"));
    }
    found
}

/// The variables of all settings.
fn variables() -> BTreeSet<String> {
    let shown = stdout(Command::new(LEASEHOLD).args(["config", "show", "--json"]).env_clear());
    let settings: Vec<Value> = serde_json::from_str(&shown).unwrap();
    let keys = settings.iter().map(|setting| setting["setting"].as_str().unwrap().to_uppercase());
    // The address of `run --listen`, which `probe` reads too.
    keys.map(|key| format!("LEASEHOLD_{key}")).chain(["LEASEHOLD_LISTEN".to_owned()]).collect()
}

#[test]
fn the_sample_of_settings_is_current() {
    let file = repository().join("deploy/leasehold.toml");
    let now = stdout(Command::new(LEASEHOLD).args(["config", "sample"]));
    if std::env::var_os("REWRITE").is_some() {
        std::fs::write(&file, &now).unwrap();
    }
    assert_eq!(read("deploy/leasehold.toml"), now, "REWRITE=1 rewrites deploy/leasehold.toml");
    let mut check = Command::new(LEASEHOLD);
    let said = stdout(check.args(["config", "check", "--config"]).arg(&file).env_clear());
    assert!(said.contains("safe"), "{said}");
}

#[test]
fn every_command_has_a_manual_page_that_renders_without_a_warning() {
    let folder = tempfile::TempDir::new().unwrap();
    let said = stdout(Command::new(LEASEHOLD).args(["man", "--dir"]).arg(folder.path()));
    let pages: Vec<PathBuf> =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(said, format!("{} manual pages written to {}\n", pages.len(), folder.path().display()));
    for wanted in ["leasehold.1", "leasehold-run.1", "leasehold-group-set.1", "leasehold-what-if-add.1"] {
        assert!(folder.path().join(wanted).is_file(), "{wanted}");
    }
    let one = stdout(Command::new(LEASEHOLD).args(["man", "group", "set"]));
    assert_eq!(one, std::fs::read_to_string(folder.path().join("leasehold-group-set.1")).unwrap());
    if !have("groff") {
        return;
    }
    for page in pages {
        let mut groff = Command::new("groff");
        let output = to_its_end(groff.args(["-man", "-Tutf8", "-P-cbou", "-ww", "-rLL=78n"]).arg(&page));
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && told.is_empty(), "{}: {told}", page.display());
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        for heading in ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "SEE ALSO"] {
            assert!(text.contains(heading), "{}: {heading} is missing:\n{text}", page.display());
        }
    }
}

#[test]
fn an_unknown_manual_page_is_refused_with_advice() {
    let output = to_its_end(Command::new(LEASEHOLD).args(["man", "group", "sett"]));
    assert_eq!(output.status.code(), Some(2));
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(told, "leasehold: `leasehold group` has no command \"sett\": did you mean \"set\"?\n");
}

/// Only reads and judges the unit: nothing is started.
#[test]
fn the_systemd_unit_is_valid_and_its_sandbox_tight() {
    if !have("systemd-analyze") {
        return;
    }
    let unit = read("deploy/systemd/leasehold.service");
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("leasehold.service");
    std::fs::write(&file, unit.replace("/usr/local/bin/leasehold ", &format!("{LEASEHOLD} "))).unwrap();
    let verify = to_its_end(Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&file));
    let told = String::from_utf8_lossy(&verify.stderr).into_owned();
    assert!(verify.status.success() && told.is_empty(), "{told}");
    let mut security = Command::new("systemd-analyze");
    let security = to_its_end(security.args(["security", "--offline=true", "--threshold=20"]).arg(&file));
    assert!(security.status.success(), "{}", String::from_utf8_lossy(&security.stdout));
    let variables = variables();
    for line in unit.lines().filter(|line| line.contains("LEASEHOLD_")) {
        let name = line.split(['=', '#']).find(|word| word.starts_with("LEASEHOLD_")).unwrap();
        assert!(variables.contains(name.trim_end_matches("_FILE")), "{line}");
    }
    let stop = unit.lines().find_map(|line| line.strip_prefix("TimeoutStopSec=")).unwrap();
    assert!(longer_than_a_handover(stop), "{stop}");
}

/// Whether it is longer than `drain_within` and `kill_after` together.
fn longer_than_a_handover(text: &str) -> bool {
    let seconds = text.strip_suffix('s').and_then(|number| number.parse().ok()).unwrap();
    let shown = stdout(Command::new(LEASEHOLD).args(["config", "show", "--json"]).env_clear());
    let settings: Vec<Value> = serde_json::from_str(&shown).unwrap();
    let default = |key: &str| -> u64 {
        let setting = settings.iter().find(|setting| setting["setting"] == key).unwrap();
        setting["default"].as_str().unwrap().strip_suffix('s').unwrap().parse().unwrap()
    };
    Duration::from_secs(seconds) > Duration::from_secs(default("drain_within") + default("kill_after"))
}

/// The instructions of the Dockerfile, with continued lines put together.
fn instructions() -> Vec<(String, String)> {
    let text = read("deploy/docker/Dockerfile").replace("\\\n", " ");
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#') && !line.trim().is_empty());
    lines
        .map(|line| line.split_once(' ').unwrap())
        .map(|(a, b)| (a.to_owned(), b.trim().to_owned()))
        .collect()
}

#[test]
fn the_dockerfile_copies_what_exists_into_images_that_are_defined_and_runs_as_nobody() {
    let ignored = read("deploy/docker/Dockerfile.dockerignore");
    let kept: Vec<&str> = ignored.lines().filter_map(|line| line.strip_prefix('!')).collect();
    for path in &kept {
        assert!(repository().join(path).exists(), "{path}");
    }
    // Cargo must find every member of the workspace, and nothing else is needed.
    for needed in ["Cargo.toml", "Cargo.lock", "crates", "stores"] {
        assert!(kept.contains(&needed), "{needed}");
    }
    let (mut stages, mut user, mut from) = (Vec::new(), None, 0);
    for (word, rest) in instructions() {
        match word.as_str() {
            "FROM" => {
                let words: Vec<&str> = rest.split(' ').collect();
                let (_, tag) = words[0].rsplit_once(':').unwrap_or_else(|| panic!("no version: {rest}"));
                assert_ne!(tag, "latest", "{rest}");
                assert!(words[0].split('/').next().unwrap().contains('.'), "no registry: {rest}");
                if let Some(at) = words.iter().position(|word| *word == "AS") {
                    stages.push(words[at + 1].to_owned());
                }
                (user, from) = (None, from + 1);
            }
            "COPY" => {
                let mut words: Vec<&str> = rest.split(' ').collect();
                words.pop();
                match words[0].strip_prefix("--from=") {
                    Some(stage) => assert!(stages.iter().any(|known| known == stage), "{rest}"),
                    None => {
                        for path in words.iter().filter(|path| **path != ".") {
                            assert!(repository().join(path).exists(), "{path}");
                            assert!(kept.contains(path), "{path} is ignored");
                        }
                    }
                }
            }
            "USER" => user = Some(rest),
            "ENTRYPOINT" | "CMD" => {
                let words: Vec<String> =
                    serde_json::from_str(&rest).unwrap_or_else(|_| panic!("a shell: {rest}"));
                assert!(!words.is_empty());
            }
            "RUN" | "WORKDIR" | "ENV" | "ARG" => {}
            other => panic!("unknown instruction {other}"),
        }
    }
    let user = user.expect("the last image has a user");
    let id: u32 = user.split(':').next().unwrap().parse().expect("a number, for runAsNonRoot");
    assert_ne!(id, 0);
    assert_eq!((from, stages), (3, vec!["build".to_owned(), "example".to_owned()]));
}

#[test]
fn the_compose_file_names_what_exists_and_its_worker_is_a_shell_script() {
    let compose: Value = serde_saphyr::from_str(&read("deploy/docker/compose.yaml")).unwrap();
    let worker = &compose["services"]["worker"];
    let context = repository().join("deploy/docker").join(worker["build"]["context"].as_str().unwrap());
    assert_eq!(context.canonicalize().unwrap(), repository());
    assert!(context.join(worker["build"]["dockerfile"].as_str().unwrap()).is_file());
    let target = worker["build"]["target"].as_str().unwrap();
    assert!(
        instructions().iter().any(|(word, rest)| word == "FROM" && rest.ends_with(&format!("AS {target}")))
    );
    let variables = variables();
    for name in worker["environment"].as_object().unwrap().keys() {
        assert!(variables.contains(name), "{name}");
    }
    for dependency in worker["depends_on"].as_object().unwrap().keys() {
        assert!(compose["services"][dependency].is_object(), "{dependency}");
    }
    for (name, service) in compose["services"].as_object().unwrap() {
        assert!(service["healthcheck"]["test"].is_array(), "{name}");
        for volume in service["volumes"].as_array().into_iter().flatten() {
            let volume = volume.as_str().unwrap().split(':').next().unwrap();
            assert!(compose["volumes"].as_object().unwrap().contains_key(volume), "{volume}");
        }
    }
    assert!(longer_than_a_handover(worker["stop_grace_period"].as_str().unwrap()));
    // What they run are commands of this program, with a worker that a shell understands.
    let words = |value: &Value| -> Vec<String> {
        value.as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(words(&worker["command"]), ["run", "--", "worker"]);
    let check = words(&worker["healthcheck"]["test"]);
    assert_eq!(check[..2], ["CMD", "leasehold"]);
    let help = to_its_end(Command::new(LEASEHOLD).args(&check[2..]).arg("--help"));
    assert!(help.status.success(), "{check:?}");
    let script = repository().join("deploy/docker/worker.sh");
    assert!(to_its_end(Command::new("sh").arg("-n").arg(script)).status.success());
}
