//! The local store, with real files and real processes.

mod basics;
mod child;
mod common;
mod conformance;
mod files;
mod locked;
mod processes;
mod registered;
mod sandbox;
