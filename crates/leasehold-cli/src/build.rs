//! What this build is.

use std::sync::LazyLock;

/// The version of the program.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The version, with how it was built.
pub(crate) static LONG_VERSION: LazyLock<String> = LazyLock::new(|| {
    let stores: Vec<&str> = leasehold_cli_common::stores::schemes().collect();
    format!(
        "{VERSION}\ncommit   {}\nrustc    {}\ntarget   {}\nprofile  {}\nstores   {}\nprotocol 1, record format 1",
        env!("LEASEHOLD_BUILD_COMMIT"),
        env!("LEASEHOLD_BUILD_RUSTC"),
        env!("LEASEHOLD_BUILD_TARGET"),
        env!("LEASEHOLD_BUILD_PROFILE"),
        stores.join(", "),
    )
});
