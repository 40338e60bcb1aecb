use std::time::Duration;

/// How a [`crate::Local`] behaves. The defaults suit almost all uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whether a missing file is created.
    pub create: Create,
    /// How long a call waits while another process writes, before it fails as busy. Keep it below the node's
    /// `try_timeout`, so that the error can say what is wrong.
    pub busy_for: Duration,
    /// How long a file that was deleted under a running node stays missing before an empty one is made in its place.
    /// Until then calls fail; from then on the generation differs, so nodes detach and begin a new incarnation.
    pub recreate_after: Duration,
    /// How often a watch looks by itself, in case the kernel's notice did not come.
    pub look_every: Duration,
}

/// Whether a missing file is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Create {
    /// It is.
    IfMissing,
    /// Never: for programs that only read.
    Never,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            create: Create::IfMissing,
            busy_for: Duration::from_millis(500),
            recreate_after: Duration::from_secs(3),
            look_every: Duration::from_millis(250),
        }
    }
}
