//! The scene as coloured lines. Pure, so that it can be tested and looked at without a terminal.

use std::time::Duration;

use leasehold_cli_common::plural::count;

use super::scene::{Scene, people};

/// A piece of text in one style.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) text: String,
    pub(super) style: Style,
}

/// How a piece looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Plain,
    Bold,
    Dim,
    Good,
    Bad,
    /// On the colour of this node.
    Block(usize),
    /// In the colour of this node.
    Ink(usize),
    /// Nobody's.
    Nobody,
}

/// A line of the picture.
pub(super) type StyledLine = Vec<Piece>;

fn piece(style: Style, text: impl Into<String>) -> Piece {
    Piece { text: text.into(), style }
}

/// Draws the scene for a terminal of that size.
pub(super) fn draw(scene: &Scene, width: usize, height: usize) -> Vec<StyledLine> {
    let mut lines = vec![title(scene, width), Vec::new()];
    lines.extend(shard_map(scene, width));
    lines.push(Vec::new());
    lines.extend(nodes(scene, width));
    lines.push(Vec::new());
    lines.push(counters(scene));
    lines.push(Vec::new());
    let room = height.saturating_sub(lines.len() + 2);
    lines.extend(log(scene, room));
    while lines.len() + 1 < height {
        lines.push(Vec::new());
    }
    lines.truncate(height.saturating_sub(1));
    lines.push(keys(scene, width));
    lines
}

fn title(scene: &Scene, width: usize) -> StyledLine {
    let there = scene.nodes.iter().filter(|node| node.there).count();
    let (shards, nodes) = (count(scene.owners.len(), "shard"), count(there, "node"));
    let left = format!(" {shards} · {nodes} · ttl {}", people(scene.ttl));
    let right = format!("{} ", minutes(scene.age()));
    let space = width.saturating_sub("  Leasehold ".len() + left.chars().count() + right.len());
    vec![
        piece(Style::Bold, "  Leasehold "),
        piece(Style::Dim, left),
        piece(Style::Plain, " ".repeat(space)),
        piece(Style::Dim, right),
    ]
}

fn shard_map(scene: &Scene, width: usize) -> Vec<StyledLine> {
    let digits = scene.owners.len().saturating_sub(1).to_string().len().max(2);
    let cell = digits + 2;
    let per_row = ((width.saturating_sub(4)) / cell).clamp(1, 24);
    let mut rows = Vec::new();
    for (row, owners) in scene.owners.chunks(per_row).enumerate() {
        let mut line = vec![piece(Style::Plain, "  ")];
        for (at, owner) in owners.iter().enumerate() {
            let number = row * per_row + at;
            let alive = |place: usize| scene.nodes.get(place).is_some_and(|node| node.there);
            let style = match owner {
                Some(place) if alive(*place) => Style::Block(*place),
                _ => Style::Nobody,
            };
            line.push(piece(style, format!(" {number:0digits$} ")));
        }
        rows.push(line);
    }
    rows
}

fn nodes(scene: &Scene, width: usize) -> Vec<StyledLine> {
    let mut lines = Vec::new();
    let fair = scene.owners.len().max(1);
    let bar_max = width.saturating_sub(76).clamp(4, 30);
    for (place, node) in scene.nodes.iter().enumerate() {
        let mark = if place == scene.chosen { "▸ " } else { "  " };
        let bar = "█".repeat((node.shards * bar_max).div_ceil(fair));
        let ink = if node.there { Style::Ink(place) } else { Style::Dim };
        let state = match node.state.as_str() {
            "attached" => Style::Good,
            "degraded" | "detached" => Style::Bad,
            state if state.starts_with("paused") || state.starts_with("killed") => Style::Bad,
            _ => Style::Dim,
        };
        let deadline = match node.stop_in {
            Some(span) if span.is_zero() => "deadline passed".to_owned(),
            Some(span) => format!("stops in {} unless renewed", people(span)),
            None => String::new(),
        };
        lines.push(vec![
            piece(Style::Bold, mark),
            piece(ink, format!("● {:<3}", node.name)),
            piece(state, format!("{:<17}", node.state)),
            piece(Style::Dim, format!("weight {:<4}", node.weight)),
            piece(
                Style::Plain,
                format!("{:>3} {:<7}", node.shards, if node.shards == 1 { "shard" } else { "shards" }),
            ),
            piece(ink, format!("{bar:<bar_max$} ")),
            piece(Style::Dim, deadline),
        ]);
    }
    lines
}

fn counters(scene: &Scene) -> StyledLine {
    let verdict = &scene.verdict;
    let gap = |permille| verdict.gap(permille).map_or_else(|| "-".to_owned(), people);
    let held = scene.held();
    let (style, count) = match verdict.is_clean() {
        true => (Style::Good, "0".to_owned()),
        false => (Style::Bad, verdict.double_owners.max(1).to_string()),
    };
    let all = held == scene.owners.len();
    vec![
        piece(Style::Plain, "  owned "),
        piece(if all { Style::Good } else { Style::Bad }, format!("{held}/{}", scene.owners.len())),
        piece(Style::Plain, "   double owners seen by the workers "),
        piece(style, count),
        piece(
            Style::Plain,
            format!("   moves {}   gap median {} · p99 {}", verdict.moves, gap(500), gap(990)),
        ),
    ]
}

fn log(scene: &Scene, room: usize) -> Vec<StyledLine> {
    let skip = scene.log.len().saturating_sub(room);
    let line = |(at, text): &(Duration, String)| {
        vec![piece(Style::Dim, format!("  {} ", minutes(*at))), piece(Style::Plain, text.clone())]
    };
    scene.log.iter().skip(skip).map(line).collect()
}

/// The keys; in short words on a narrow terminal, so that no key is cut off.
fn keys(scene: &Scene, width: usize) -> StyledLine {
    let long = all_keys(scene, true);
    let room: usize = long.iter().map(|piece| piece.text.chars().count()).sum();
    if room <= width + KEY_GAP.len() { long } else { all_keys(scene, false) }
}

/// Between two keys.
const KEY_GAP: &str = "   ";

fn all_keys(scene: &Scene, long: bool) -> StyledLine {
    let chosen = scene.nodes.get(scene.chosen);
    let name = chosen.map_or("-", |node| node.name.as_str());
    let mut line = vec![piece(Style::Plain, "  ")];
    let pause = match chosen {
        Some(node) if node.state.starts_with("paused") && long => "continue",
        Some(node) if node.state.starts_with("paused") => "resume",
        _ => "pause",
    };
    let kill = match (chosen.is_some_and(|node| node.there), long) {
        (true, true) => "kill -9",
        (true, false) => "kill",
        (false, true) => "restart",
        (false, false) => "start",
    };
    let gap = if long { KEY_GAP } else { "  " };
    for (key, what) in [
        ("↑↓", if long { format!("node {name}") } else { name.chars().take(6).collect() }),
        ("k", kill.to_owned()),
        ("p", pause.to_owned()),
        ("d", "drain".to_owned()),
        ("a", if long { "add a node" } else { "add" }.to_owned()),
        ("q", "quit".to_owned()),
    ] {
        line.push(piece(Style::Bold, key));
        line.push(piece(Style::Dim, format!(" {what}{gap}")));
    }
    line
}

fn minutes(span: Duration) -> String {
    format!("{}:{:02}", span.as_secs() / 60, span.as_secs() % 60)
}

/// The lines without their colours.
#[cfg(test)]
pub(super) fn plain(lines: &[StyledLine]) -> String {
    let text = |line: &StyledLine| line.iter().map(|piece| piece.text.as_str()).collect::<String>();
    lines.iter().map(|line| format!("{}\n", text(line).trim_end())).collect()
}

#[cfg(test)]
mod tests {
    use super::super::scene::Actor;
    use super::*;

    fn scene() -> Scene {
        let mut scene = Scene::new(8, Duration::from_secs(2), String::new());
        let actor = |name: &str, shards, state: &str, there, stop_ms: Option<u64>| Actor {
            name: name.into(),
            weight: 100,
            shards,
            state: state.into(),
            there,
            stop_in: stop_ms.map(Duration::from_millis),
        };
        scene.nodes =
            vec![actor("a", 5, "attached", true, Some(1400)), actor("b", 2, "killed (SIGKILL)", false, None)];
        scene.owners = vec![Some(0), Some(0), Some(0), Some(0), Some(0), Some(1), Some(1), None];
        scene.say("5 shards nobody → a");
        scene
    }

    #[test]
    fn the_picture_fits_and_says_what_matters() {
        let lines = draw(&scene(), 80, 18);
        let text = plain(&lines);
        assert_eq!(lines.len(), 18);
        assert!(
            lines
                .iter()
                .all(|line| line.iter().map(|piece| piece.text.chars().count()).sum::<usize>() <= 110)
        );
        for part in [
            "8 shards · 1 node · ttl 2.0 s",
            " 00  01 ",
            "● a  attached",
            "killed (SIGKILL)",
            "owned 5/8",
            "double owners seen by the workers 0",
            "5 shards nobody → a",
            "q quit",
        ] {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
    }

    #[test]
    fn no_key_is_cut_off_on_a_narrow_terminal() {
        for chosen in 0..2 {
            let mut scene = scene();
            scene.chosen = chosen;
            scene.nodes[0].state = "paused (SIGSTOP)".into();
            let lines = draw(&scene, 50, 12);
            let keys: String = plain(&lines).lines().last().unwrap().chars().take(50).collect();
            assert!(keys.contains("d drain  a add  q quit"), "{keys}");
        }
    }

    #[test]
    fn shards_of_a_dead_node_are_shown_as_nobodys() {
        let lines = draw(&scene(), 80, 18);
        let cells: Vec<Style> = lines[2][1..].iter().map(|piece| piece.style).collect();
        assert_eq!(cells[0], Style::Block(0));
        assert_eq!(cells[5..8], [Style::Nobody; 3]);
    }
}
