//! The demo in a terminal, until the user quits.

use std::io;
use std::time::Duration;

use leasehold::{Client, clock};
use leasehold_cli_common::failure::Failure;
use leasehold_cli_common::plural::count;

use super::Ended;
use super::picture;
use super::scene::Scene;
use super::screen::{self, Key, Screen};
use crate::cluster::{Cluster, Fate};

/// How often the picture is drawn.
const DRAW_EVERY: Duration = Duration::from_millis(100);

/// Draws, and does what keys say.
pub(super) async fn run(
    scene: &mut Scene,
    cluster: &mut Cluster,
    client: &Client,
    run_for: Option<Duration>,
) -> Result<Ended, Failure> {
    let screen = Screen::open()?;
    let mut keys = screen::keys()?;
    let end_at = run_for.map(|span| clock::now() + span);
    let nodes = count(cluster.members().len(), "node");
    scene.say(format!("starting {nodes}; press k to kill one and watch its shards move"));
    loop {
        cluster.look()?;
        scene.update(&client.view(), cluster)?;
        let (width, height) = screen.size();
        screen.show(&picture::draw(scene, width, height))?;
        tokio::select! {
            () = tokio::time::sleep(DRAW_EVERY) => {}
            key = keys.recv() => match key {
                Some(Key::Quit) | None => break,
                Some(key) => act(key, scene, cluster)?,
            },
        }
        if end_at.is_some_and(|end_at| clock::now() >= end_at) {
            break;
        }
    }
    Ok(Ended::Well)
}

fn act(key: Key, scene: &mut Scene, cluster: &mut Cluster) -> io::Result<()> {
    let place = scene.chosen;
    let Some(member) = cluster.members().get(place) else { return Ok(()) };
    let (name, fate, there) = (member.name.clone(), member.fate, member.is_there());
    let count = cluster.members().len();
    match key {
        Key::Up => scene.chosen = (place + count - 1) % count,
        Key::Down => scene.chosen = (place + 1) % count,
        Key::Kill if there => {
            cluster.kill(place)?;
            scene.say(format!("killed {name} with SIGKILL: its released file lock proves that it is gone"));
        }
        Key::Kill => match cluster.restart(place) {
            Ok(()) => scene.say(format!("started {name} again, with a new session")),
            Err(error) => scene.say(format!("cannot start {name}: {error}")),
        },
        Key::Pause if fate == Fate::Paused => {
            cluster.resume(place)?;
            scene.say(format!("resumed {name}: it finds that its session is over before it runs anything"));
        }
        Key::Pause if fate == Fate::Running => {
            cluster.pause(place)?;
            scene.say(format!("paused {name} with SIGSTOP: its shards are free when its lease expires"));
        }
        Key::Drain if matches!(fate, Fate::Running | Fate::Paused) => {
            cluster.drain(place)?;
            scene.say(format!("stopping {name} gracefully: it hands its shards over one by one"));
        }
        Key::Pause | Key::Drain if fate == Fate::Draining => {
            scene.say(format!("{name} is already leaving"));
        }
        Key::Pause | Key::Drain => scene.say(format!("{name} is not running: press k to start it")),
        Key::Add => match scene.add_to(cluster) {
            Ok(place) => {
                let name = &cluster.members()[place].name;
                scene.say(format!("added {name}: it gets its share"));
            }
            Err(error) => scene.say(error.to_string()),
        },
        Key::Quit => {}
    }
    Ok(())
}
