//! All tests of this crate in one binary, since linking takes longer than running them.

mod conformance;
mod memory;
mod support;
mod wrap;
