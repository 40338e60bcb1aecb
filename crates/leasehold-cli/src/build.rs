//! What this build is.

/// The version of the program.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The version, with how it was built.
pub(crate) const LONG_VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    "\ncommit   ",
    env!("LEASEHOLD_BUILD_COMMIT"),
    "\nrustc    ",
    env!("LEASEHOLD_BUILD_RUSTC"),
    "\ntarget   ",
    env!("LEASEHOLD_BUILD_TARGET"),
    "\nprofile  ",
    env!("LEASEHOLD_BUILD_PROFILE"),
    "\nstores   local, memory",
    "\nprotocol 1, record format 1",
);
