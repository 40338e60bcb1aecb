//! `leasehold run --listen`: metrics, health and status over real HTTP.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::Child;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::process::{send, to_its_end, wait_for};
use crate::supervisor::{PATIENCE, POLITE, Sandbox, Supervisor};

const TOKEN: &str = "a-token-that-nobody-guesses";

/// An answer: its status, and its headers and body.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) text: String,
}

impl Answer {
    fn body(&self) -> &str {
        self.text.split_once("\r\n\r\n").map_or("", |(_, body)| body)
    }

    fn json(&self) -> Value {
        serde_json::from_str(self.body()).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }
}

/// Where a node listens, as its log says.
pub(crate) fn address(node: &Supervisor) -> String {
    wait_for("it says where it listens", PATIENCE, || address_in(&node.log()))
}

fn address_in(log: &str) -> Option<String> {
    let (_, rest) = log.split_once("http://")?;
    let (address, _) = rest.split_once(|c: char| !(c.is_ascii_digit() || ".:".contains(c)))?;
    Some(address.to_owned())
}

/// Asks a node for a page.
pub(crate) fn get(at: &str, path: &str, headers: &[&str]) -> Answer {
    ask(TcpStream::connect(at).unwrap(), at, path, headers)
}

fn ask(mut stream: impl Read + Write, host: &str, path: &str, headers: &[&str]) -> Answer {
    let more: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
    let host = if more.contains("Host:") { String::new() } else { format!("Host: {host}\r\n") };
    let request = format!("GET {path} HTTP/1.1\r\n{host}{more}Connection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let status = text.split(' ').nth(1).and_then(|code| code.parse().ok());
    Answer { status: status.unwrap_or_else(|| panic!("no status: {text:?}")), text }
}

/// Waits until a page has this status.
pub(crate) fn wait_status(at: &str, path: &str, status: u16) -> Answer {
    wait_for(&format!("{path} is {status}"), PATIENCE, || {
        let answer = get(at, path, &[]);
        (answer.status == status).then_some(answer)
    })
}

/// Waits until a child has written down its environment.
fn environment(place: &Sandbox) -> String {
    wait_for("the child runs", PATIENCE, || fs::read_to_string(place.path().join("seen")).ok())
}

const WRITES_ITS_ENVIRONMENT: &str = "env > seen.$$; mv seen.$$ seen; exec sleep 1000";

fn leave(mut node: Child) {
    send(node.id(), Signal::SIGTERM);
    assert!(node.wait().unwrap().success());
}

const FLAGS: &[&str] = &["--ttl", "2s", "--shards", "3", "--listen", "127.0.0.1:0"];

#[test]
fn a_node_serves_its_metrics_its_health_and_its_status() {
    let place = Sandbox::new();
    let mut node = place.run("a", FLAGS, POLITE);
    let at = address(&node);
    let ready = wait_status(&at, "/readyz?share=1", 200);
    assert!(ready.body().contains("share: ok: holds 3 of 3 shards"), "{}", ready.text);
    assert!(ready.body().ends_with("\nready\n"), "{}", ready.text);
    let live = get(&at, "/livez", &[]);
    assert!(live.status == 200 && live.body().starts_with("driver: ok: last active "), "{}", live.text);

    let metrics = wait_for("the metrics tell of the shards", PATIENCE, || {
        let metrics = get(&at, "/metrics", &[]);
        let running = "leasehold_shards_running{node=\"a\",group=\"g\"} 3";
        metrics.text.contains(running).then_some(metrics)
    });
    assert!(metrics.text.contains("content-type: text/plain; version=0.0.4"), "{}", metrics.text);
    for line in [
        "# TYPE leasehold_store_call_seconds histogram",
        "# TYPE leasehold_handoff_gap_seconds histogram",
        "leasehold_attached{node=\"a\"} 1",
        "leasehold_session_state{node=\"a\",state=\"attached\"} 1",
        "leasehold_detachments_total{node=\"a\",cause=\"fenced\"} 0",
        "leasehold_starts_total{node=\"a\",group=\"g\",reason=\"",
    ] {
        assert!(metrics.text.contains(line), "{line}\n{}", metrics.text);
    }
    assert!(!metrics.text.contains("summary") && !metrics.text.contains("quantile"), "{}", metrics.text);
    assert!(!metrics.text.contains("shard=\""), "no metric carries a shard: {}", metrics.text);
    let lines: Vec<&str> = metrics.body().lines().collect();
    for name in lines.iter().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()) {
        assert!(lines.iter().any(|line| line.starts_with(&format!("# HELP {name} "))), "{name} has no help");
    }
    let checked = leasehold_servers::promtool(place.path(), &["check", "metrics"], metrics.body());
    assert!(checked.as_ref().is_none_or(|(fine, _)| *fine), "{checked:?}");

    let status = get(&at, "/status", &[]).json();
    assert_eq!(status["view"]["me"]["node"], "a");
    assert_eq!((status["view"]["me"]["held"].as_u64(), status["ttl_ms"].as_u64()), (Some(3), Some(2000)));
    assert!(status["store_silent_ms"].as_u64().is_some_and(|ms| ms < 2000), "{status}");

    let evil = get(&at, "/status", &["Host: evil.example"]);
    assert_eq!((evil.status, get(&at, "/status", &["Host: localhost:1"]).status), (421, 200));
    assert_eq!(get(&at, "/status", &["Origin: http://evil.example"]).status, 403);
    assert_eq!(get(&at, "/readyz?share=90", &[]).status, 400);
    assert_eq!(get(&at, "/", &[]).status, 404);

    node.signal(Signal::SIGTERM);
    assert!(node.end().success(), "{}", node.log());
    assert!(TcpStream::connect(&at).is_err(), "nothing listens any more");
}

#[test]
fn a_node_without_its_store_is_alive_and_not_ready() {
    let place = Sandbox::new();
    let flags = ["--ttl", "2s", "--shards", "3", "--listen", "127.0.0.1:0", "--store", "local:later/x.db"];
    let node = place.run("a", &flags, POLITE);
    let at = address(&node);
    assert_eq!(get(&at, "/livez", &[]).status, 200);
    let waiting = get(&at, "/readyz", &[]);
    assert!(waiting.status == 503 && waiting.body().contains("it waits for its store"), "{}", waiting.text);
    assert_eq!(get(&at, "/status", &[]).status, 503);
    fs::create_dir(place.path().join("later")).unwrap();
    wait_status(&at, "/readyz?share=1", 200);

    // The store goes away: another process keeps it locked for longer than the session lives.
    let held = rusqlite::Connection::open(place.path().join("later/x.db")).unwrap();
    held.busy_timeout(PATIENCE).unwrap();
    held.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let failed = wait_status(&at, "/readyz", 503);
    assert!(failed.body().contains("FAILED") && failed.body().ends_with("not ready\n"), "{}", failed.text);
    wait_for("it detaches", PATIENCE, || {
        let metrics = get(&at, "/metrics", &[]).text;
        let detached = "leasehold_detachments_total{node=\"a\",cause=\"deadline_reached\"} 1";
        (metrics.contains("leasehold_attached{node=\"a\"} 0") && metrics.contains(detached)).then_some(())
    });
    assert_eq!(get(&at, "/livez", &[]).status, 200, "a restart would not bring the store back");
    held.execute_batch("ROLLBACK").unwrap();
    wait_status(&at, "/readyz?share=1", 200);
}

#[test]
fn a_socket_serves_the_same_and_goes_with_the_node() {
    let place = Sandbox::new();
    let mut node = place.run("a", &["--ttl", "2s", "--shards", "3", "--listen", "unix:node.sock"], POLITE);
    let path = place.path().join("node.sock");
    let ready = wait_for("it is ready", PATIENCE, || {
        let answer = ask(UnixStream::connect(&path).ok()?, "leasehold", "/readyz?share=0.9", &[]);
        (answer.status == 200).then_some(answer)
    });
    assert!(ready.body().ends_with("\nready\n"), "{}", ready.text);
    node.signal(Signal::SIGTERM);
    assert!(node.end().success(), "{}", node.log());
    assert!(!path.exists());
}

#[test]
fn nothing_is_open_to_other_machines_by_accident() {
    let place = Sandbox::new();
    let refused = |listen: &str, more: &[&str], token: &str| {
        let mut arguments = vec!["run", "--node", "a", "--group", "g", "--shards", "1", "--listen", listen];
        arguments.extend(more);
        arguments.extend(["--", "true"]);
        let output = to_its_end(place.command(&arguments).env("LEASEHOLD_LISTEN_TOKEN", token));
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        said
    };
    let said = refused("0.0.0.0:0", &[], "");
    assert!(said.contains("other machines can reach 0.0.0.0:0"), "{said}");
    assert!(said.contains("LEASEHOLD_LISTEN_TOKEN_FILE"), "{said}");
    let said = refused("0.0.0.0:0", &["--margin", "9s"], "hush");
    assert!(said.contains("LEASEHOLD_LISTEN_TOKEN: the token must have"), "{said}");
    assert!(said.contains("margin") && !said.contains("hush"), "all at once, and no secret: {said}");

    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken_at = taken.local_addr().unwrap().to_string();
    let said = refused(&taken_at, &[], "");
    assert!(said.contains(&format!("--listen: cannot listen on {taken_at}")), "{said}");
}

#[test]
fn strangers_learn_nothing_but_the_verdict() {
    let place = Sandbox::new();
    fs::write(place.path().join("token"), format!("{TOKEN}\n")).unwrap();
    let mut command = place.command(&["run", "--node", "a", "--group", "g", "--shards", "1", "--ttl", "2s"]);
    command.args(["--new-namespace", "--listen", "0.0.0.0:0", "--", "sh", "-c", WRITES_ITS_ENVIRONMENT]);
    let log = place.path().join("a.log");
    command.env("LEASEHOLD_LISTEN_TOKEN_FILE", "token").stderr(fs::File::create(&log).unwrap());
    let node = command.spawn().unwrap();
    let said = || fs::read_to_string(&log).unwrap();
    let at = wait_for("it says where it listens", PATIENCE, || address_in(&said()));
    let at = at.replace("0.0.0.0", "127.0.0.1");
    let ready = wait_status(&at, "/readyz", 200);
    assert_eq!(ready.body(), "ready\n");
    let with_token = format!("Authorization: Bearer {TOKEN}");
    for path in ["/metrics", "/status"] {
        assert_eq!(get(&at, path, &[]).status, 401);
        assert_eq!(get(&at, path, &["Authorization: Bearer a-token-that-somebody-guessed"]).status, 401);
        assert_eq!(get(&at, path, &[&with_token]).status, 200);
    }
    let full = get(&at, "/readyz", &[&with_token]);
    assert!(full.body().contains("attached: ok"), "{}", full.text);
    environment(&place);
    leave(node);
    assert!(!said().contains(TOKEN), "{}", said());

    let mut command = place.command(&["config", "show"]);
    let output = to_its_end(command.env("LEASEHOLD_LISTEN_TOKEN", TOKEN));
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(shown.contains("LEASEHOLD_LISTEN_TOKEN") && !shown.contains(TOKEN), "{shown}");
}

#[test]
fn the_token_is_not_handed_on_and_loopback_asks_for_it_too() {
    let place = Sandbox::new();
    let mut command = place.command(&["run", "--node", "a", "--group", "g", "--shards", "1", "--ttl", "2s"]);
    command.args(["--new-namespace", "--listen", "127.0.0.1:0", "--", "sh", "-c", WRITES_ITS_ENVIRONMENT]);
    let log = place.path().join("a.log");
    command.env("LEASEHOLD_LISTEN_TOKEN", TOKEN).stderr(fs::File::create(&log).unwrap());
    let node = command.spawn().unwrap();
    let at =
        wait_for("it says where it listens", PATIENCE, || address_in(&fs::read_to_string(&log).unwrap()));
    assert_eq!(get(&at, "/metrics", &[]).status, 401);
    let seen = environment(&place);
    leave(node);
    assert!(seen.contains("LEASEHOLD_SHARD=") && !seen.contains(TOKEN), "{seen}");
}

/// `docs/status.md` has a row for every field that a real answer has.
#[test]
fn every_field_of_the_status_is_documented() {
    let place = Sandbox::new();
    let flags =
        [FLAGS, &["--capacity", "2", "--zone", "z", "--address", "h:1", "--labels", "rack=3"]].concat();
    let node = place.run("a", &flags, POLITE);
    let at = address(&node);
    // Room for two of three shards: a problem to show, and a shard without a holder.
    let status = wait_for("two shards are held", PATIENCE, || {
        let answer = get(&at, "/status", &[]);
        let status = (answer.status == 200).then(|| answer.json())?;
        let problem = status["view"]["problems"].as_array().is_some_and(|problems| !problems.is_empty());
        (status["view"]["me"]["held"] == 2 && problem).then_some(status)
    });
    let mut seen = BTreeSet::new();
    fields(&status, "", &mut seen);
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/status.md");
    let page = fs::read_to_string(page).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let mut documented: BTreeSet<String> = rows.map(str::to_owned).collect();
    // These are there only while a node is silent, and after it had no session.
    for rare in ["silence.for_ms", "silence.watched", "outage.cause", "outage.for_ms", "outage.unix_ms"] {
        assert!(documented.remove(&format!("view.nodes[].{rare}")), "{rare}");
    }
    let lacks: Vec<_> = seen.difference(&documented).collect();
    let knows_more: Vec<_> = documented.difference(&seen).collect();
    assert!(
        lacks.is_empty() && knows_more.is_empty(),
        "docs/status.md lacks {lacks:?}, and has {knows_more:?}"
    );
}

/// The paths of all fields: `view.nodes[].name`. What users name themselves stands as `NAME`.
fn fields(value: &Value, path: &str, seen: &mut BTreeSet<String>) {
    match value {
        Value::Object(object) => {
            for (name, inner) in object {
                let name = if path.ends_with("labels") { "NAME" } else { name };
                let path = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
                seen.insert(path.clone());
                fields(inner, &path, seen);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| fields(item, &format!("{path}[]"), seen)),
        _ => {}
    }
}
