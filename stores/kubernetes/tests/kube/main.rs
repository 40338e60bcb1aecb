//! The Kubernetes store on a real API server.

mod common;
mod conformance;
mod deploy;
mod failures;
mod nodes;
mod proxy;
mod registered;
