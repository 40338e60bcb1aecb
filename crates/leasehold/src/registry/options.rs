use std::time::Duration;

use leasehold_core::config::{Backoff, ConfigError, ConfigErrors};

use crate::error::Error;

/// Stores count the ttl of a key in seconds. With a shorter one, a single slow call would lose all keys.
const TTL_MIN: Duration = Duration::from_secs(1);
/// Keys of a process that is gone should not stay readable for longer.
const TTL_MAX: Duration = Duration::from_secs(86_400);
/// A shorter pause or limit would only load the store.
const SHORTEST: Duration = Duration::from_millis(10);

/// How registered keys are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegistryOptions {
    /// How long the store keeps the keys after this process went silent: from a second to a day. They are renewed
    /// three times in that time.
    pub ttl: Duration,
    /// The pauses between tries while the store is away; they restart after each success. None is below 10 ms.
    pub retry: Backoff,
    /// How long one call to the store may take. It must be less than two thirds of the ttl: otherwise a call that
    /// hangs loses the keys.
    pub call_timeout: Duration,
    /// How long closing may take; keys that are not removed by then expire.
    pub close_within: Duration,
}

impl Default for RegistryOptions {
    fn default() -> Self {
        let steps = [1, 2, 4, 8].map(Duration::from_secs).to_vec();
        RegistryOptions {
            ttl: Duration::from_secs(15),
            retry: Backoff::Steps(steps),
            call_timeout: Duration::from_secs(2),
            close_within: Duration::from_secs(3),
        }
    }
}

impl RegistryOptions {
    /// Checks the options, and reports all problems.
    pub fn check(&self) -> Result<(), Error> {
        Ok(ConfigErrors::none_in(self.problems())?)
    }

    pub(crate) fn problems(&self) -> Vec<ConfigError> {
        let RegistryOptions { ttl, retry, call_timeout, .. } = self;
        let mut problems = Vec::new();
        if !(TTL_MIN..=TTL_MAX).contains(ttl) {
            let message = format!(
                "{ttl:?} is not from {TTL_MIN:?} to {TTL_MAX:?}, and the store itself expires the keys"
            );
            problems.push(problem("ttl", message, "choose one in that range"));
        }
        if *call_timeout < SHORTEST {
            let message = format!("{call_timeout:?} is below {SHORTEST:?}: no call would ever be answered");
            problems.push(problem("call_timeout", message, "raise it"));
        }
        // Renewed a third of the ttl after the last time, which leaves two thirds.
        let left = *ttl - *ttl / 3;
        if *call_timeout >= left {
            let message = format!(
                "{call_timeout:?} is not less than 2/3 of the registry's ttl ({left:?}): a call that hangs would lose the keys"
            );
            problems.push(problem("call_timeout", message, "lower it or raise the ttl"));
        }
        if retry.shortest() < SHORTEST {
            let message = format!(
                "the shortest pause ({:?}) is below {SHORTEST:?}: an unreachable store would be called in a busy loop",
                retry.shortest()
            );
            problems.push(problem("retry", message, "raise it"));
        }
        problems
    }
}

fn problem(setting: &str, message: String, advice: &str) -> ConfigError {
    ConfigError::new("registry", format!("registry.{setting}"), message, advice)
}
