//! Tests of the program `leasehold` as people and machines use it: real processes, real signals, the real clock.

mod build;
mod check;
mod demo;
mod deploy;
mod freezer;
mod golden;
mod groups;
mod guard;
mod hooks;
mod inspect;
mod isolate;
mod kubernetes;
mod listen;
mod log;
mod monitoring;
mod one;
mod process;
mod register;
mod run;
mod sim;
mod stage;
mod store;
mod supervisor;
