//! The Kubernetes store on a real API server.

mod common;
mod conformance;
