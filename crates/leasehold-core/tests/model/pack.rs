//! States as 256 bits, and the same state with processes and shards renamed.

use crate::setup::{PROCS, SHARDS, Setup};
use crate::state::{
    Hold, Holding, Life, Meta, MetaWrite, Name, Phase, Proc, Release, Session, Shard, State, WorkState,
    WriteState,
};

/// A state in 256 bits.
pub(crate) type Packed = [u64; 4];

/// Packs a state, or unpacks one: the same walk over the fields does both, so that they cannot disagree.
trait Bits {
    fn field(&mut self, value: &mut u8, bits: u32);
}

struct Writer {
    words: Packed,
    at: u32,
}

impl Bits for Writer {
    fn field(&mut self, value: &mut u8, bits: u32) {
        assert!(u32::from(*value) < 1 << bits, "the value {value} does not fit in {bits} bits");
        let (word, shift) = ((self.at / 64) as usize, self.at % 64);
        self.words[word] |= u64::from(*value) << shift;
        if shift + bits > 64 {
            self.words[word + 1] |= u64::from(*value) >> (64 - shift);
        }
        self.at += bits;
    }
}

struct Reader {
    words: Packed,
    at: u32,
}

impl Bits for Reader {
    fn field(&mut self, value: &mut u8, bits: u32) {
        let (word, shift) = ((self.at / 64) as usize, self.at % 64);
        let mut read = self.words[word] >> shift;
        if shift + bits > 64 {
            read |= self.words[word + 1] << (64 - shift);
        }
        *value = (read & ((1 << bits) - 1)) as u8;
        self.at += bits;
    }
}

pub(crate) fn pack(setup: &Setup, state: &State) -> Packed {
    let mut writer = Writer { words: [0; 4], at: 0 };
    walk(setup, &mut state.clone(), &mut writer);
    writer.words
}

pub(crate) fn unpack(setup: &Setup, packed: &Packed) -> State {
    let mut state = State::default();
    walk(setup, &mut state, &mut Reader { words: *packed, at: 0 });
    state
}

/// Visits an enumeration as a number.
macro_rules! choice {
    ($bits:ident, $field:expr, $width:literal, $($variant:path),+) => {{
        let all = [$($variant),+];
        let mut number = $field as u8;
        $bits.field(&mut number, $width);
        $field = all[usize::from(number)];
    }};
}

fn flag(bits: &mut impl Bits, value: &mut bool) {
    let mut number = u8::from(*value);
    bits.field(&mut number, 1);
    *value = number == 1;
}

fn session(bits: &mut impl Bits, value: &mut Session) {
    bits.field(&mut value.owner, 2);
    bits.field(&mut value.life, 3);
}

fn option(bits: &mut impl Bits, value: &mut Option<Session>) {
    let mut there = value.is_some();
    flag(bits, &mut there);
    if there {
        session(bits, value.get_or_insert_default());
    }
}

fn walk(setup: &Setup, state: &mut State, bits: &mut impl Bits) {
    for proc in &mut state.procs[..setup.procs] {
        walk_proc(setup, proc, bits);
    }
    for name in &mut state.names[..setup.names()] {
        walk_name(setup, name, bits);
    }
    for shard in &mut state.shards[..setup.shards] {
        walk_shard(shard, bits);
    }
    choice!(bits, state.meta, 2, Meta::Absent, Meta::Settling, Meta::Open, Meta::Damaged);
    if setup.late_meta {
        choice!(
            bits,
            state.meta_write,
            3,
            MetaWrite::None,
            MetaWrite::Create,
            MetaWrite::Open,
            MetaWrite::Restore,
            MetaWrite::RestoreFormer,
            MetaWrite::Replace
        );
    }
    bits.field(&mut state.vanishes, 2);
    bits.field(&mut state.wipes, 2);
    if setup.holes > 0 {
        bits.field(&mut state.holes, 2);
    }
    if setup.damages > 0 {
        bits.field(&mut state.damages, 2);
    }
}

fn walk_proc(setup: &Setup, proc: &mut Proc, bits: &mut impl Bits) {
    choice!(bits, proc.phase, 3, Phase::Fresh, Phase::Joining, Phase::Attached, Phase::Lost, Phase::Over);
    flag(bits, &mut proc.paused);
    bits.field(&mut proc.life, 3);
    bits.field(&mut proc.left_for, 3);
    choice!(bits, proc.renewal, 2, WriteState::None, WriteState::Flying, WriteState::Applied);
    if proc.renewal != WriteState::None {
        flag(bits, &mut proc.creates);
        bits.field(&mut proc.age, 3);
    }
    for n in 0..setup.names() {
        bits.field(&mut proc.silent[n], 3);
        if !setup.holds(crate::setup::Rule::ProofAfterShard) {
            bits.field(&mut proc.roster[n], 5);
        }
    }
    for holding in &mut proc.holding[..setup.shards] {
        walk_holding(setup, holding, bits);
    }
    if setup.wipes > 0 {
        bits.field(&mut proc.incarnation, 2);
        bits.field(&mut proc.settling_for, 3);
    }
    if setup.damages > 0 {
        flag(bits, &mut proc.asked);
        flag(bits, &mut proc.vouched);
        flag(bits, &mut proc.read);
    }
    if setup.publishes() {
        bits.field(&mut proc.publishing, setup.shards as u32);
        bits.field(&mut proc.published, setup.shards as u32);
    }
}

fn walk_holding(setup: &Setup, holding: &mut Holding, bits: &mut impl Bits) {
    choice!(bits, holding.work, 2, WorkState::None, WorkState::Running, WorkState::Stopping);
    choice!(bits, holding.claim, 2, WriteState::None, WriteState::Flying, WriteState::Applied);
    flag(bits, &mut holding.creates);
    bits.field(&mut holding.epoch, 4);
    let mut late = holding.late.map_or(0, |life| life + 1);
    bits.field(&mut late, 4);
    holding.late = late.checked_sub(1);
    flag(bits, &mut holding.late_creates);
    if setup.vanishes > 0 {
        bits.field(&mut holding.orphaned, 3);
    }
    if setup.tells_releases() {
        flag(bits, &mut holding.trusted);
        flag(bits, &mut holding.ran);
    }
}

fn walk_name(setup: &Setup, name: &mut Name, bits: &mut impl Bits) {
    choice!(bits, name.state, 2, Life::Absent, Life::Active, Life::Left, Life::Fenced);
    session(bits, &mut name.session);
    flag(bits, &mut name.proves);
    flag(bits, &mut name.old);
    flag(bits, &mut name.renewal);
    flag(bits, &mut name.leave);
    option(bits, &mut name.fence);
    option(bits, &mut name.join);
    flag(bits, &mut name.join_creates);
    if setup.publishes() {
        bits.field(&mut name.publishes, setup.shards as u32);
        bits.field(&mut name.late_publishes, setup.shards as u32);
    }
}

fn walk_shard(shard: &mut Shard, bits: &mut impl Bits) {
    choice!(bits, shard.state, 2, Hold::Absent, Hold::Vacant, Hold::Held, Hold::Unstarted);
    session(bits, &mut shard.session);
    bits.field(&mut shard.epoch, 4);
    bits.field(&mut shard.floor, 4);
    bits.field(&mut shard.started, 4);
    choice!(bits, shard.release, 2, Release::None, Release::Proper, Release::Unstarted);
}

/// The renamings of processes and shards under which nothing about a setup changes.
pub(crate) fn renamings(setup: &Setup) -> Vec<([usize; PROCS], [usize; SHARDS])> {
    let procs: &[[usize; PROCS]] = match setup.procs {
        1 => &[[0, 1, 2]],
        2 => &[[0, 1, 2], [1, 0, 2]],
        _ => &[[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]],
    };
    let keeps_names = |to: &[usize; PROCS]| {
        setup.names() == 1 || (0..setup.procs).all(|p| setup.name[to[p]] == to[setup.name[p]])
    };
    let shards: &[[usize; SHARDS]] = if setup.shards == 2 { &[[0, 1], [1, 0]] } else { &[[0, 1]] };
    let both = procs.iter().filter(|to| keeps_names(to)).flat_map(|p| shards.iter().map(move |s| (*p, *s)));
    both.collect()
}

/// The state with processes (and, where each has its own, their names) and shards renamed.
pub(crate) fn rename(
    setup: &Setup,
    state: &State,
    procs: &[usize; PROCS],
    shards: &[usize; SHARDS],
) -> State {
    let mut to = *state;
    let name = |n: usize| if setup.names() == 1 { n } else { procs[n] };
    let bits =
        |set: u8| (0..setup.shards).filter(|x| set & (1 << x) != 0).fold(0, |all, x| all | 1 << shards[x]);
    for p in 0..setup.procs {
        let mut proc = state.procs[p];
        (proc.publishing, proc.published) = (bits(proc.publishing), bits(proc.published));
        for n in 0..setup.names() {
            proc.silent[name(n)] = state.procs[p].silent[n];
            proc.roster[name(n)] = state.procs[p].roster[n];
        }
        for x in 0..setup.shards {
            proc.holding[shards[x]] = state.procs[p].holding[x];
        }
        to.procs[procs[p]] = proc;
    }
    for n in 0..setup.names() {
        let mut record = state.names[n];
        (record.publishes, record.late_publishes) = (bits(record.publishes), bits(record.late_publishes));
        to.names[name(n)] = record;
    }
    for x in 0..setup.shards {
        to.shards[shards[x]] = state.shards[x];
    }
    let mut seen = |session: &mut Session| session.owner = procs[usize::from(session.owner)] as u8;
    for n in &mut to.names {
        if n.state != Life::Absent {
            seen(&mut n.session);
        }
        n.fence.iter_mut().chain(n.join.iter_mut()).for_each(&mut seen);
    }
    to.shards.iter_mut().filter(|shard| shard.state == Hold::Held).for_each(|shard| seen(&mut shard.session));
    for proc in &mut to.procs[..setup.procs] {
        for roster in proc.roster.iter_mut().filter(|roster| **roster >= 2) {
            *roster = 2 + procs[usize::from((*roster - 2) / 8)] as u8 * 8 + (*roster - 2) % 8;
        }
    }
    to
}
