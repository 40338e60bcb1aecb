//! Everything that can happen, one small step at a time.

use std::fmt;

use crate::setup::Setup;
use crate::state::{MetaWrite, State};

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Move {
    Tick,
    /// A tick in which these processes (as bits) sleep through a deadline.
    TickAsleep(usize),
    Crash(usize),
    Wake(usize),
    Detach(usize),
    Open(usize, u8),
    Adopt(usize),
    SendRenewal(usize, u8),
    GiveUpRenewal(usize),
    LandRenewal(usize),
    LandRenewalCopied(usize),
    HearRenewal(usize),
    SendLeave(usize),
    LandLeave(usize),
    LandLateRenewal(usize),
    LandLateJoin(usize),
    See(usize, usize),
    SeeRoster(usize),
    SendFence(usize, usize),
    LandFence(usize),
    SendClaim(usize, usize),
    SendCreate(usize, usize),
    AssumeClaim(usize, usize),
    GiveUpClaim(usize, usize),
    LandClaim(usize, usize),
    LandLateClaim(usize, usize),
    HearClaim(usize, usize),
    ForgetClaim(usize, usize),
    TellToStop(usize, usize),
    Stopped(usize, usize),
    SendRelease(usize, usize),
    LandRelease(usize),
    Resume(usize, usize),
    Repair(usize, usize),
    Vanish(usize),
    Hole(usize),
    Wipe,
    NoticeWipe(usize),
    CreateMeta(usize),
    OpenMeta(usize),
    LearnMeta(usize),
    DamageMeta,
    RestoreMeta(usize),
    ReplaceMeta(usize),
    SendMeta(MetaWrite),
    LandMeta(MetaWrite),
}

/// What must never happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Violation {
    /// Two grants of one shard are valid at once.
    TwoHolders,
    /// The work of one shard runs in two processes at once.
    TwoRunning,
    /// Work started under an epoch that is not above all earlier ones.
    EpochNotHigher,
    /// A shard was released while its work still ran.
    ReleasedWhileRunning,
}

/// What a step leads to.
pub(crate) struct Next {
    pub(crate) by: Move,
    pub(crate) state: State,
    pub(crate) violation: Option<Violation>,
}

/// All steps out of a state.
pub(crate) fn successors(setup: &Setup, state: &State, out: &mut Vec<Next>) {
    out.clear();
    let mut step = Steps { setup, from: state, out };
    step.time();
    for p in 0..setup.procs {
        step.process(p);
        step.session(p);
        step.meta(p);
        for x in 0..setup.shards {
            step.shard(p, x);
        }
    }
    for n in 0..setup.names() {
        step.name(n);
    }
    for x in 0..setup.shards {
        step.release_lands(x);
    }
    step.store_fails();
    step.meta_is_damaged();
    step.meta_lands();
}

/// Collects the steps out of one state.
pub(crate) struct Steps<'a> {
    pub(crate) setup: &'a Setup,
    pub(crate) from: &'a State,
    out: &'a mut Vec<Next>,
}

impl Steps<'_> {
    /// Adds a step that makes these changes.
    pub(crate) fn step(&mut self, by: Move, change: impl FnOnce(&Setup, &mut State) -> Option<Violation>) {
        let mut state = *self.from;
        let violation = change(self.setup, &mut state);
        state.normalise(self.setup);
        if state != *self.from || violation.is_some() {
            self.out.push(Next { by, state, violation });
        }
    }

    /// Adds a step that cannot violate anything by itself.
    pub(crate) fn plain(&mut self, by: Move, change: impl FnOnce(&Setup, &mut State)) {
        self.step(by, |setup, state| {
            change(setup, state);
            None
        });
    }
}

/// Numbers the kinds of steps, and names them.
macro_rules! kinds {
    ($($kind:ident),+) => {
        /// The kinds of steps, without who and what.
        pub(crate) const KINDS: &[&str] = &[$(stringify!($kind)),+];

        #[repr(usize)]
        enum Kind {
            $($kind),+
        }

        impl Move {
            /// Which of [`KINDS`] it is.
            pub(crate) fn kind(self) -> usize {
                match self {
                    $(Move::$kind { .. } => Kind::$kind as usize),+
                }
            }
        }
    };
}

kinds!(
    Tick,
    TickAsleep,
    Crash,
    Wake,
    Detach,
    Open,
    Adopt,
    SendRenewal,
    GiveUpRenewal,
    LandRenewal,
    LandRenewalCopied,
    HearRenewal,
    SendLeave,
    LandLeave,
    LandLateRenewal,
    LandLateJoin,
    See,
    SeeRoster,
    SendFence,
    LandFence,
    SendClaim,
    SendCreate,
    AssumeClaim,
    GiveUpClaim,
    LandClaim,
    LandLateClaim,
    HearClaim,
    ForgetClaim,
    TellToStop,
    Stopped,
    SendRelease,
    LandRelease,
    Resume,
    Repair,
    Vanish,
    Hole,
    Wipe,
    NoticeWipe,
    CreateMeta,
    OpenMeta,
    LearnMeta,
    DamageMeta,
    RestoreMeta,
    ReplaceMeta,
    SendMeta,
    LandMeta
);

impl fmt::Display for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let a = |p: &usize| ["A", "B", "C"][*p];
        let r = |n: &usize| ["A", "B", "C"][*n];
        let x = |x: &usize| ["x", "y"][*x];
        let publishing = |set: u8| {
            ["", ", which publishes x", ", which publishes y", ", which publishes x and y"][usize::from(set)]
        };
        match self {
            Move::Tick => write!(f, "a tick passes"),
            Move::TickAsleep(who) => {
                write!(f, "a tick passes; paused through a deadline:")?;
                (0..3).filter(|p| who & (1 << p) != 0).try_for_each(|p| write!(f, " {}", a(&p)))
            }
            Move::Crash(p) => write!(f, "{} crashes and starts again", a(p)),
            Move::Wake(p) => write!(f, "{} wakes", a(p)),
            Move::Detach(p) => write!(f, "{} detaches", a(p)),
            Move::Open(p, set) => {
                write!(f, "{} chooses a new session and sends its first record{}", a(p), publishing(*set))
            }
            Move::Adopt(p) => write!(f, "{} adopts the session that its record names", a(p)),
            Move::SendRenewal(p, set) => write!(f, "{} sends a renewal{}", a(p), publishing(*set)),
            Move::GiveUpRenewal(p) => write!(f, "{} gives up waiting for its renewal", a(p)),
            Move::LandRenewal(p) => write!(f, "the store applies {}'s record", a(p)),
            Move::LandRenewalCopied(p) => {
                write!(f, "the store applies {}'s record; a copy is still on its way", a(p))
            }
            Move::HearRenewal(p) => write!(f, "{} hears that its record was applied", a(p)),
            Move::SendLeave(p) => write!(f, "{} swaps its record to left", a(p)),
            Move::LandLeave(n) => write!(f, "the swap of record {} to left lands", r(n)),
            Move::LandLateRenewal(n) => write!(f, "the store applies a late renewal of record {}", r(n)),
            Move::LandLateJoin(n) => write!(f, "the store applies a late first record of {}", r(n)),
            Move::See(p, n) => {
                write!(f, "{} reads record {}, for the first time at this version", a(p), r(n))
            }
            Move::SeeRoster(p) => write!(f, "{} reads the roster", a(p)),
            Move::SendFence(p, n) => {
                write!(
                    f,
                    "{} has seen record {} unchanged for long enough and swaps it to fenced",
                    a(p),
                    r(n)
                )
            }
            Move::LandFence(n) => write!(f, "the swap of record {} to fenced lands", r(n)),
            Move::SendClaim(p, s) => write!(f, "{} sends a claim of {}", a(p), x(s)),
            Move::SendCreate(p, s) => {
                write!(f, "{} sends a claim of {} from an old listing without it", a(p), x(s))
            }
            Move::AssumeClaim(p, s) => {
                write!(f, "{} assumes that its claim of {} worked, and starts", a(p), x(s))
            }
            Move::GiveUpClaim(p, s) => write!(f, "{} gives up waiting for its claim of {}", a(p), x(s)),
            Move::LandClaim(p, s) => write!(f, "the store applies {}'s claim of {}", a(p), x(s)),
            Move::LandLateClaim(p, s) => write!(f, "the store applies a late claim of {} by {}", x(s), a(p)),
            Move::HearClaim(p, s) => write!(f, "{} hears that its claim of {} was applied", a(p), x(s)),
            Move::ForgetClaim(p, s) => write!(f, "{} never hears of its claim of {}", a(p), x(s)),
            Move::TellToStop(p, s) => write!(f, "{} tells its work on {} to stop", a(p), x(s)),
            Move::Stopped(p, s) => write!(f, "{}'s work on {} has stopped", a(p), x(s)),
            Move::SendRelease(p, s) => write!(f, "{} sends the release of {}", a(p), x(s)),
            Move::LandRelease(s) => write!(f, "the store applies the release of {}", x(s)),
            Move::Resume(p, s) => {
                write!(f, "{} reads {} unchanged, takes its release for failed, and runs on", a(p), x(s))
            }
            Move::Repair(p, s) => {
                write!(f, "{} sees no record of {}, which it runs, and writes it again", a(p), x(s))
            }
            Move::Hole(s) => write!(f, "the store loses the record of {}", x(s)),
            Move::Vanish(n) => write!(f, "the store loses record {}", r(n)),
            Move::Wipe => write!(f, "the store is emptied"),
            Move::NoticeWipe(p) => write!(f, "{} sees that the incarnation is another, and detaches", a(p)),
            Move::CreateMeta(p) => write!(f, "{} begins a new incarnation, which settles", a(p)),
            Move::OpenMeta(p) => write!(f, "{} opens the new incarnation", a(p)),
            Move::LearnMeta(p) => write!(f, "{} learns of the incarnation", a(p)),
            Move::DamageMeta => write!(f, "meta is damaged"),
            Move::RestoreMeta(p) => write!(f, "{} writes meta back as it knew it", a(p)),
            Move::SendMeta(write) => write!(f, "a write of meta is sent and not applied yet: {write:?}"),
            Move::LandMeta(write) => write!(f, "a write of meta lands that was under way: {write:?}"),
            Move::ReplaceMeta(p) => {
                write!(f, "{} begins a new incarnation over the damaged meta, which settles", a(p))
            }
        }
    }
}
