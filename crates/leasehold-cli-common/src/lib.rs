//! What all commands of the program `leasehold` share: settings, opening a store, signals, the log, and how to fail. It is
//! part of the program, not of the library: nothing here is stable.

#![cfg_attr(docsrs, feature(doc_cfg))]

/// Prints to standard output. A closed reader (`| head`) is not a failure; any other error ends the program.
#[macro_export]
macro_rules! print {
    ($($text:tt)*) => { $crate::failure::print(format_args!($($text)*)) };
}

/// The same, with the end of a line.
#[macro_export]
macro_rules! println {
    ($($text:tt)*) => { $crate::print!("{}\n", format_args!($($text)*)) };
}

pub mod failure;
pub mod log;
pub mod plural;
pub mod sanitize;
pub mod settings;
pub mod signals;
pub mod stores;
