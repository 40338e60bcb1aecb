//! Tests of the program `leasehold` as people and machines use it: real processes, real signals, the real clock.

mod guard;
mod process;
