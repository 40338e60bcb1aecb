//! The form of a story: comments, commands, `----`, and what they print.

use crate::world::World;

/// Runs a story and gives it back with the outputs as they really were.
pub(crate) fn retell(written: &str) -> String {
    retell_in(World::new, written)
}

/// The same, in worlds that are made like this.
pub(crate) fn retell_in(new: impl Fn() -> World, written: &str) -> String {
    let mut world = new();
    let mut told = String::new();
    let mut commands: Vec<&str> = Vec::new();
    let mut skipping = false;
    for line in written.lines() {
        if skipping {
            if !line.trim().is_empty() {
                continue;
            }
            skipping = false;
        }
        if line == "----" {
            told.push_str("----\n");
            told.push_str(&perform(&mut world, &new, &commands));
            commands.clear();
            skipping = true;
            continue;
        }
        told.push_str(line);
        told.push('\n');
        let text = line.trim();
        if !text.is_empty() && !text.starts_with('#') {
            commands.push(text);
        }
    }
    if !commands.is_empty() {
        told.push_str("----\n");
        told.push_str(&perform(&mut world, &new, &commands));
    }
    told
}

fn perform(world: &mut World, new: impl Fn() -> World, commands: &[&str]) -> String {
    let mut output = Vec::new();
    for command in commands {
        if *command == "afresh" {
            *world = new();
            continue;
        }
        match world.command(command) {
            Ok(lines) => output.extend(lines),
            Err(error) => output.push(format!("!! {command}: {error}")),
        }
    }
    if output.is_empty() {
        output.push("ok".into());
    }
    output.iter().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// Where two texts differ, line by line, with a little of what stands around it.
pub(crate) fn difference(before: &str, after: &str) -> String {
    let (before, after): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let mut common = vec![vec![0_u32; after.len() + 1]; before.len() + 1];
    for i in (0..before.len()).rev() {
        for j in (0..after.len()).rev() {
            common[i][j] = match before[i] == after[j] {
                true => common[i + 1][j + 1] + 1,
                false => common[i + 1][j].max(common[i][j + 1]),
            };
        }
    }
    let (mut i, mut j) = (0, 0);
    let mut lines: Vec<String> = Vec::new();
    while i < before.len() || j < after.len() {
        if i < before.len() && j < after.len() && before[i] == after[j] {
            lines.push(format!("  {}", before[i]));
            (i, j) = (i + 1, j + 1);
        } else if j >= after.len() || (i < before.len() && common[i + 1][j] >= common[i][j + 1]) {
            lines.push(format!("- {}", before[i]));
            i += 1;
        } else {
            lines.push(format!("+ {}", after[j]));
            j += 1;
        }
    }
    let near = |at: usize| {
        let (from, to) = (at.saturating_sub(3), (at + 4).min(lines.len()));
        lines[from..to].iter().any(|line| !line.starts_with("  "))
    };
    let shown: Vec<&str> = (0..lines.len()).filter(|at| near(*at)).map(|at| lines[at].as_str()).collect();
    shown.join("\n")
}
