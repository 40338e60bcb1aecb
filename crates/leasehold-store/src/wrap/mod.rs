//! Stores around other stores that inject faults or count calls: [`Faulty`], [`Slow`], [`CutOff`] and [`Counting`].
//!
//! Each takes an `Arc<dyn Store>`, so they can be stacked in any order. Randomness comes from a seed and time from
//! tokio's timers, so that a test under paused time runs the same way every time.
//!
//! They only inject faults that a real store could have: their answers are always true. A write whose caller got an
//! error may have landed, or may land later, but nothing is ever reported as applied or lost that is not.

mod around;
mod counting;
mod cut_off;
mod faulty;
mod rewatch;
mod shared_rng;
mod slow;

pub use around::Call;
pub use counting::{Counting, Counts};
pub use cut_off::{CutOff, Link};
pub use faulty::{Fault, Faulty, Rates};
pub use slow::{Latency, Slow};
