//! All tests of this crate in one binary, since linking takes longer than running them.

mod broken;
mod conformance;
mod flaw;
mod memory;
mod support;
mod wrap;
