//! The local store, with real files and real processes.

mod basics;
mod common;
