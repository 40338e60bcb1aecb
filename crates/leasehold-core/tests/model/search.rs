//! Breadth-first search over all reachable states, with a check of each.

use std::fmt::Write as _;

use crate::moves::{KINDS, Move, Next, Violation, successors};
use crate::pack::{Packed, pack, rename, renamings, unpack};
use crate::setup::{PROCS, SHARDS, Setup};
use crate::state::{Phase, Proc, State, WorkState};

/// What a search found.
pub(crate) struct Found {
    /// How many states were visited, each once for all its renamings.
    pub(crate) states: usize,
    /// How many steps between states were taken.
    pub(crate) steps: usize,
    /// The most steps that any state is away from the start.
    pub(crate) depth: usize,
    /// How often each kind of step was taken, in the order of [`KINDS`].
    pub(crate) kinds: Vec<usize>,
    /// The shortest way to something that must never happen.
    pub(crate) counterexample: Option<Counterexample>,
}

/// A shortest run to a violation.
pub(crate) struct Counterexample {
    pub(crate) violation: Violation,
    pub(crate) trace: String,
    pub(crate) steps: usize,
}

/// Whether states that differ only in the names of processes and shards count as one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Symmetry {
    /// They do: fewer states.
    Reduced,
    /// They don't: traces that read well.
    Kept,
}

/// Visits every reachable state, up to the first of these violations. More than `states_max` states is a failure of
/// the test, never a pass.
pub(crate) fn search(setup: &Setup, symmetry: Symmetry, watched: &[Violation], states_max: usize) -> Found {
    explore(setup, symmetry, watched, Extent::All { states_max }).0
}

/// Visits the states that are fewest steps away from the start, that many of them, up to the first of these violations.
pub(crate) fn search_first(setup: &Setup, watched: &[Violation], states: usize) -> Found {
    explore(setup, Symmetry::Reduced, watched, Extent::First { states }).0
}

/// Visits every reachable state, and then shows that from each of them a state can be reached in which every shard
/// runs. Returns how many states were visited, or one from which no way leads on.
pub(crate) fn search_for_traps(setup: &Setup, states_max: usize) -> Result<usize, String> {
    let (_, visited) = explore(setup, Symmetry::Reduced, &[], Extent::All { states_max });
    let renamings = Renamings::new(setup, Symmetry::Reduced);
    let all_run = |state: &State| {
        (0..setup.shards).all(|x| state.procs.iter().any(|proc| proc.holding[x].work == WorkState::Running))
    };
    let mut good: Vec<bool> = visited.states.iter().map(|packed| all_run(&unpack(setup, packed))).collect();
    let mut next = Vec::new();
    loop {
        let mut changed = false;
        for at in (0..good.len()).rev().filter(|at| !good[*at]).collect::<Vec<_>>() {
            successors(setup, &unpack(setup, &visited.states[at]), &mut next);
            let leads_on = |next: &Next| {
                let slot = visited.slot(&renamings.canonical(&next.state));
                good[visited.table[slot] as usize]
            };
            if next.iter().any(leads_on) {
                (good[at], changed) = (true, true);
            }
        }
        match good.iter().position(|good| !good) {
            None => return Ok(good.len()),
            Some(at) if !changed => return Err(format!("{:?}", unpack(setup, &visited.states[at]))),
            Some(_) => {}
        }
    }
}

/// Picks one of all the states that are the same but for names.
struct Renamings<'a> {
    setup: &'a Setup,
    all: Vec<([usize; PROCS], [usize; SHARDS])>,
}

impl<'a> Renamings<'a> {
    fn new(setup: &'a Setup, symmetry: Symmetry) -> Self {
        let mut all = renamings(setup);
        if symmetry == Symmetry::Kept {
            all.truncate(1);
        }
        Renamings { setup, all }
    }

    fn canonical(&self, state: &State) -> Packed {
        let packed = |(procs, shards): &_| pack(self.setup, &rename(self.setup, state, procs, shards));
        self.all.iter().map(packed).min().expect("the identity is a renaming")
    }
}

/// How much of a space is visited.
#[derive(Clone, Copy)]
enum Extent {
    /// All of it; that it is larger than this is a failure.
    All { states_max: usize },
    /// As many states as this, from the start on.
    First { states: usize },
}

fn explore(setup: &Setup, symmetry: Symmetry, watched: &[Violation], extent: Extent) -> (Found, Visited) {
    let mut visited = Visited::new();
    let renamings = Renamings::new(setup, symmetry);
    visited.insert(renamings.canonical(&State::start(setup)), 0);
    let mut found =
        Found { states: 0, steps: 0, depth: 0, kinds: vec![0; KINDS.len()], counterexample: None };
    let mut next = Vec::new();
    let (mut at, mut layer_ends) = (0, 1);
    while at < visited.states.len() {
        if at == layer_ends {
            (found.depth, layer_ends) = (found.depth + 1, visited.states.len());
        }
        let state = unpack(setup, &visited.states[at]);
        successors(setup, &state, &mut next);
        for Next { by, state, violation } in &next {
            found.steps += 1;
            found.kinds[by.kind()] += 1;
            let violations = [*violation, broken(setup, state, watched)];
            if let Some(violation) = violations.into_iter().flatten().find(|found| watched.contains(found)) {
                found.states = visited.states.len();
                found.counterexample = Some(tell(setup, &visited, at, (*by, state), violation));
                return (found, visited);
            }
            visited.insert(renamings.canonical(state), at as u32);
        }
        at += 1;
        match extent {
            Extent::First { states } if visited.states.len() >= states => break,
            Extent::First { .. } => {}
            Extent::All { states_max } => assert!(
                visited.states.len() <= states_max,
                "more than {states_max} states: the setup is too large"
            ),
        }
    }
    found.states = visited.states.len();
    (found, visited)
}

/// What of this is wrong with a state in itself.
fn broken(setup: &Setup, state: &State, watched: &[Violation]) -> Option<Violation> {
    let procs = &state.procs[..setup.procs];
    let valid = |x: usize| {
        let holds =
            |proc: &&Proc| proc.holding[x].work == WorkState::Running && proc.phase == Phase::Attached;
        procs.iter().filter(holds).filter(|proc| proc.left_for > 0).count()
    };
    let running = |x: usize| {
        procs.iter().filter(|proc| proc.holding[x].work != WorkState::None && !proc.paused).count()
    };
    let two_holders = (0..setup.shards).any(|x| valid(x) > 1).then_some(Violation::TwoHolders);
    let two_running = (0..setup.shards).any(|x| running(x) > 1).then_some(Violation::TwoRunning);
    [two_holders, two_running].into_iter().flatten().find(|found| watched.contains(found))
}

/// Writes down the way to a violation, one step a line, with the tick that it happened in.
fn tell(
    setup: &Setup,
    visited: &Visited,
    at: usize,
    last: (Move, &State),
    violation: Violation,
) -> Counterexample {
    let mut way = vec![at];
    while way[way.len() - 1] != 0 {
        way.push(visited.parents[way[way.len() - 1]] as usize);
    }
    way.reverse();
    let mut moves = Vec::new();
    let mut next = Vec::new();
    for pair in way.windows(2) {
        successors(setup, &unpack(setup, &visited.states[pair[0]]), &mut next);
        let by = next.iter().find(|next| pack(setup, &next.state) == visited.states[pair[1]]);
        moves.push(by.map(|next| next.by));
    }
    moves.push(Some(last.0));
    let mut trace = String::new();
    let mut tick = 0;
    for (number, by) in moves.iter().enumerate() {
        tick += usize::from(matches!(by, Some(Move::Tick | Move::TickAsleep(_))));
        let told = by.map_or_else(|| "(a step up to renaming)".to_owned(), |by| by.to_string());
        let _ = writeln!(trace, "{:>4}  tick {tick:>2}  {told}", number + 1);
    }
    for (p, proc) in last.1.procs[..setup.procs].iter().enumerate() {
        let works = proc.holding[..setup.shards].iter().map(|holding| format!("{:?}", holding.work));
        let works = works.collect::<Vec<_>>().join(", ");
        let name = ["A", "B", "C"][p];
        let _ =
            writeln!(trace, "      {name}: {:?} for {} more ticks, work: {works}", proc.phase, proc.left_for);
    }
    Counterexample { violation, trace, steps: moves.len() }
}

/// The states seen so far, in the order of their finding, and where each was come from. A table of indexes with open
/// addressing, so that a state costs 32 bytes and a little.
struct Visited {
    states: Vec<Packed>,
    parents: Vec<u32>,
    table: Vec<u32>,
}

const EMPTY: u32 = u32::MAX;

impl Visited {
    fn new() -> Self {
        Visited { states: Vec::new(), parents: Vec::new(), table: vec![EMPTY; 1 << 16] }
    }

    fn insert(&mut self, state: Packed, parent: u32) {
        if self.states.len() * 2 > self.table.len() {
            self.grow();
        }
        let slot = self.slot(&state);
        if self.table[slot] == EMPTY {
            self.table[slot] = self.states.len() as u32;
            self.states.push(state);
            self.parents.push(parent);
        }
    }

    fn slot(&self, state: &Packed) -> usize {
        let mask = self.table.len() - 1;
        let mut slot = hash(state) as usize & mask;
        while self.table[slot] != EMPTY && self.states[self.table[slot] as usize] != *state {
            slot = (slot + 1) & mask;
        }
        slot
    }

    fn grow(&mut self) {
        self.table = vec![EMPTY; self.table.len() * 2];
        for index in 0..self.states.len() {
            let slot = self.slot(&self.states[index]);
            self.table[slot] = index as u32;
        }
    }
}

fn hash(state: &Packed) -> u64 {
    state.iter().fold(0, |hash: u64, word| {
        let mixed = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ (mixed >> 29)
    })
}
