//! Checks the settings against each other and reports all problems at once.

use std::fmt;

use super::relations;
use super::{Config, GroupConfig};
use crate::store::Facts;

/// One problem with the settings. Nothing was started, so ownership is not affected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{setting}: {message}; {advice}")]
#[non_exhaustive]
pub struct ConfigError {
    /// A fixed word for the violated relation, such as `three_tries`.
    pub rule: &'static str,
    /// Which setting it is about: `margin`, or `groups[orders].policy.balance_permille`.
    pub setting: String,
    /// The relation with its numbers, and why it must hold.
    pub message: String,
    /// What to change.
    pub advice: String,
}

/// All problems with the settings, in the order of the fields. Never empty. The node was not started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors(pub(super) Vec<ConfigError>);

impl ConfigError {
    /// A problem with a setting.
    pub fn new(
        rule: &'static str,
        setting: impl Into<String>,
        message: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        ConfigError { rule, setting: setting.into(), message: message.into(), advice: advice.into() }
    }
}

impl From<ConfigError> for ConfigErrors {
    fn from(error: ConfigError) -> Self {
        ConfigErrors(vec![error])
    }
}

impl ConfigErrors {
    /// Fails with all the problems that were found, if there are any.
    pub fn none_in(found: Vec<ConfigError>) -> Result<(), ConfigErrors> {
        if found.is_empty() { Ok(()) } else { Err(ConfigErrors(found)) }
    }
}

impl std::ops::Deref for ConfigErrors {
    type Target = [ConfigError];
    fn deref(&self) -> &[ConfigError] {
        &self.0
    }
}

impl<'a> IntoIterator for &'a ConfigErrors {
    type Item = &'a ConfigError;
    type IntoIter = std::slice::Iter<'a, ConfigError>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl std::error::Error for ConfigErrors {}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.0.len() == 1 { "problem" } else { "problems" };
        write!(f, "{} {what} in the settings; nothing was started:", self.0.len())?;
        for error in &self.0 {
            write!(f, "\n  {error}")?;
        }
        Ok(())
    }
}

impl GroupConfig {
    /// Checks the settings of one group, as [`Config::check`] does for all.
    pub fn check(&self) -> Result<(), ConfigErrors> {
        let mut found = Vec::new();
        relations::check_group(self, &mut found);
        ConfigErrors::none_in(found)
    }
}

impl Config {
    /// Checks every relation that does not depend on the store, and reports all violations.
    pub fn check(&self) -> Result<(), ConfigErrors> {
        let mut found = Vec::new();
        relations::check(self, &mut found);
        ConfigErrors::none_in(found)
    }

    /// Checks the same, and the requirements of this store.
    pub fn check_on(&self, facts: &Facts) -> Result<(), ConfigErrors> {
        let mut found = self.check().err().map(|errors| errors.0).unwrap_or_default();
        relations::check_on(self, facts, &mut found);
        ConfigErrors::none_in(found)
    }
}
