//! The demo in a terminal, until somebody quits.

use std::io;
use std::time::Duration;

use leasehold::{Client, clock};

use super::Ended;
use super::picture;
use super::scene::Scene;
use super::screen::{self, Key, Screen};
use crate::cluster::{Cluster, Fate};
use crate::failure::Failure;
use crate::look::count;

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
    scene.say(format!("{nodes} start; kill one with k and see its shards move"));
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
            scene.say(format!("you killed {name} with SIGKILL: the kernel proves its death at once"));
        }
        Key::Kill => match cluster.restart(place) {
            Ok(()) => scene.say(format!("you started {name} again, with a new session")),
            Err(error) => scene.say(format!("{name} was not started: {error}")),
        },
        Key::Pause if fate == Fate::Paused => {
            cluster.resume(place)?;
            scene.say(format!("you let {name} go on: it finds its session over before it does anything"));
        }
        Key::Pause if fate == Fate::Running => {
            cluster.pause(place)?;
            scene.say(format!(
                "you stopped {name} with SIGSTOP: its shards are free when its lease has run out"
            ));
        }
        Key::Drain if matches!(fate, Fate::Running | Fate::Paused) => {
            cluster.drain(place)?;
            scene.say(format!("you asked {name} to leave: it hands its shards over one by one"));
        }
        Key::Pause | Key::Drain if fate == Fate::Draining => {
            scene.say(format!("{name} is leaving already"));
        }
        Key::Pause | Key::Drain => scene.say(format!("{name} is not there: k starts it again")),
        Key::Add => match scene.add_to(cluster) {
            Ok(place) => {
                let name = &cluster.members()[place].name;
                scene.say(format!("you added {name}: it gets its share"));
            }
            Err(error) => scene.say(error.to_string()),
        },
        Key::Quit => {}
    }
    Ok(())
}
