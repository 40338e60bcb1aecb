//! The demo without a terminal: a bounded run that breaks things by itself, and says what it does.

use std::io;
use std::time::Duration;

use leasehold::{Client, clock};
use leasehold_cli_common::failure::Failure;
use leasehold_cli_common::plural::count;
use leasehold_cli_common::sanitize::sanitize;
use leasehold_core::Moment;

use super::Ended;
use super::scene::{Scene, people};
use crate::cluster::Cluster;

/// How long shards may stay unowned before the demo says so: far above every bound, for very busy machines.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(20);

struct Play<'a> {
    scene: &'a mut Scene,
    cluster: &'a mut Cluster,
    client: &'a Client,
    told: usize,
    ended: Ended,
}

/// Plays all acts, each when its time has come, and then waits for the end.
pub(super) async fn run(
    scene: &mut Scene,
    cluster: &mut Cluster,
    client: &Client,
    run_for: Duration,
) -> Result<Ended, Failure> {
    let began_at = clock::now();
    let end_at = began_at + run_for;
    let mut play = Play { scene, cluster, client, told: 0, ended: Ended::Well };
    let nodes = count(play.cluster.members().len(), "node");
    let shards = count(play.scene.owners.len(), "shard");
    play.say(format!("starting {nodes}, each a separate process; {shards}; ttl {}", people(play.scene.ttl)));
    play.until_all_owned("all shards are owned").await?;
    let acts: [(u32, Act); 4] = [(15, Act::Join), (30, Act::Kill), (45, Act::Pause), (80, Act::Drain)];
    let mut hurried = false;
    for (percent, act) in acts {
        play.watch_until(began_at + run_for * percent / 100).await?;
        if clock::now() + act.takes(play.scene.ttl) < end_at {
            play.perform(act).await?;
        } else if !std::mem::replace(&mut hurried, true) {
            play.say("skipping the remaining steps; for all of them use --for 20s");
        }
    }
    play.watch_until(end_at).await?;
    Ok(play.ended)
}

#[derive(Clone, Copy)]
enum Act {
    Join,
    Kill,
    Pause,
    Drain,
}

impl Act {
    /// How long it takes at least; what has begun is brought to its end.
    fn takes(self, ttl: Duration) -> Duration {
        match self {
            Act::Pause => ttl,
            Act::Join | Act::Kill | Act::Drain => Duration::ZERO,
        }
    }
}

impl Play<'_> {
    async fn perform(&mut self, act: Act) -> Result<(), Failure> {
        let name = |play: &Self, place: usize| play.cluster.members()[place].name.clone();
        let last = self.cluster.members().len() - 1;
        match act {
            Act::Join => {
                let place = self.scene.add_to(self.cluster)?;
                self.say(format!("{} joins", name(self, place)));
                self.until("it has its share", |scene| {
                    scene.nodes.get(place).is_some_and(|node| node.shards > 0)
                })
                .await?;
            }
            Act::Kill => {
                let place = 1.min(last);
                self.cluster.kill(place)?;
                self.say(format!("{} is killed with SIGKILL", name(self, place)));
                self.until_all_owned("all shards are owned again").await?;
            }
            Act::Pause => {
                let place = 2.min(last);
                self.cluster.pause(place)?;
                self.say(format!("{} is paused with SIGSTOP, as if its machine hung", name(self, place)));
                self.until("its lease expired, and other nodes hold its shards", |scene| {
                    scene.held() == scene.owners.len()
                        && scene.nodes.get(place).is_some_and(|node| node.shards == 0)
                })
                .await?;
                self.cluster.resume(place)?;
                self.say(format!(
                    "{} resumes: it finds that its session is over, and joins again",
                    name(self, place)
                ));
                self.until("it has its share again", |scene| {
                    scene.nodes.get(place).is_some_and(|node| node.shards > 0)
                })
                .await?;
            }
            Act::Drain => {
                self.cluster.drain(0)?;
                self.say(format!("{} is stopped gracefully (SIGTERM)", name(self, 0)));
                self.until("it handed over all shards and left", |scene| !scene.nodes[0].there).await?;
                self.until_all_owned("all shards are owned").await?;
            }
        }
        Ok(())
    }

    async fn until_all_owned(&mut self, what: &str) -> io::Result<()> {
        self.until(what, |scene| scene.held() == scene.owners.len()).await
    }

    /// Waits for something, and says how long it took.
    async fn until(&mut self, what: &str, reached: impl Fn(&Scene) -> bool) -> io::Result<()> {
        let began_at = clock::now();
        loop {
            self.look().await?;
            let took = clock::now().since(began_at);
            if reached(self.scene) {
                self.say(format!("  {what}, after {}", people(took)));
                return Ok(());
            }
            if took > PATIENCE {
                self.ended = Ended::WithHoles;
                self.say(format!("  timed out after {}: {what}", people(took)));
                return Ok(());
            }
        }
    }

    async fn watch_until(&mut self, at: Moment) -> io::Result<()> {
        while clock::now() < at {
            self.look().await?;
        }
        Ok(())
    }

    async fn look(&mut self) -> io::Result<()> {
        tokio::time::sleep(LOOK_EVERY).await;
        self.cluster.look()?;
        self.scene.update(&self.client.view(), self.cluster)?;
        self.tell();
        Ok(())
    }

    fn say(&mut self, line: impl Into<String>) {
        self.scene.say(line);
        self.tell();
    }

    /// Prints what came since the last time.
    fn tell(&mut self) {
        // The log forgets its oldest lines; a run of this length never has that many.
        for (at, line) in self.scene.log.iter().skip(self.told) {
            println!("{:>6.2} s  {}", at.as_secs_f64(), sanitize(line));
        }
        self.told = self.scene.log.len();
    }
}
