//! Which faults a run may have, and how often: each kind has its own rate.

use std::collections::BTreeMap;
use std::str::FromStr;

use super::kind::{FaultKind, TABLE};
use crate::runner::options::{OptionError, quoted};

/// Which faults a run may have, and how often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    rates: BTreeMap<FaultKind, u32>,
    swarm: Swarm,
}

/// Whether each seed has only some of the kinds. Runs that have a few kinds, but much of those, find more than runs
/// that have a little of everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Swarm {
    /// Each seed draws which kinds it has, and how much of them.
    Drawn,
    /// Every seed has all kinds of the profile.
    Whole,
}

impl Profile {
    /// Every kind of fault.
    pub fn all() -> Self {
        Profile { rates: TABLE.iter().map(|row| (row.0, row.3)).collect(), swarm: Swarm::Drawn }
    }

    /// No faults.
    pub fn none() -> Self {
        Profile { rates: BTreeMap::new(), swarm: Swarm::Whole }
    }

    /// These kinds, in every seed.
    pub fn only(kinds: impl IntoIterator<Item = (FaultKind, u32)>) -> Self {
        Profile { rates: kinds.into_iter().collect(), swarm: Swarm::Whole }
    }

    /// The same without this kind of fault.
    pub(crate) fn without(mut self, kind: FaultKind) -> Self {
        self.rates.remove(&kind);
        self
    }

    /// The expected number of faults of this kind in two minutes, in thousandths.
    pub(crate) fn rate(&self, kind: FaultKind) -> u32 {
        self.rates.get(&kind).copied().unwrap_or(0)
    }

    pub(crate) fn swarm(&self) -> Swarm {
        self.swarm
    }
}

impl Default for Profile {
    fn default() -> Self {
        Profile::all()
    }
}

impl std::fmt::Display for Profile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if *self == Profile::all() {
            return f.write_str("all");
        }
        if self.rates.is_empty() {
            return f.write_str("none");
        }
        let mut words: Vec<String> = Vec::new();
        if self.swarm == Swarm::Drawn {
            words.push("swarm".to_owned());
        }
        for (kind, rate) in &self.rates {
            words.push(format!("{}={}.{:03}", kind.as_str(), rate / 1000, rate % 1000));
        }
        f.write_str(&words.join(","))
    }
}

/// The most faults of one kind that can be asked for in two minutes.
const RATE_MAX: u32 = 1000;

impl Profile {
    /// Reads `all`, `none`, or a list of kinds and classes, each optionally with the expected number in two minutes:
    /// `crash=3,network,pause=0.5`. If the list begins with `-`, it says what to remove from `all`: `-loss,-twin`.
    /// The word `swarm` lets each seed draw which of them it has, as it does with `all`.
    pub fn parse(text: &str) -> Result<Self, Vec<OptionError>> {
        match text.trim() {
            "all" => return Ok(Profile::all()),
            "none" => return Ok(Profile::none()),
            _ => {}
        }
        let subtracts = text.trim().starts_with('-');
        let mut profile = if subtracts { Profile::all() } else { Profile::none() };
        let (mut errors, mut unknown) = (Vec::new(), Vec::new());
        let mut named = false;
        for word in text.split(',').map(str::trim) {
            if word == "swarm" {
                profile.swarm = Swarm::Drawn;
                continue;
            }
            named |= !word.is_empty();
            let (word, away) = word.strip_prefix('-').map_or((word, false), |word| (word, true));
            let (word, wished) = word.split_once('=').map_or((word, None), |(word, rate)| (word, Some(rate)));
            let rate = wished.map(parse_rate).transpose().map_err(|error| errors.push(error));
            if away && let Some(rate) = wished {
                let what = format!("\"-{word}={rate}\" both removes a fault and gives a number");
                errors.push(OptionError::new(what, format!("use -{word} or {word}={rate}")));
            }
            let rows: Vec<_> = TABLE.iter().filter(|row| row.1 == word || row.2 == word).collect();
            if rows.is_empty() {
                unknown.push(word);
            }
            for row in rows {
                match away {
                    true => profile.rates.remove(&row.0),
                    false => profile.rates.insert(row.0, rate.ok().flatten().unwrap_or(row.3)),
                };
            }
        }
        if !named {
            errors.push(OptionError::new("the list names no fault", "use none or all"));
        } else if !unknown.is_empty() {
            errors.push(unknown_faults(&unknown));
        }
        if errors.is_empty() { Ok(profile) } else { Err(errors) }
    }
}

impl FromStr for Profile {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let tell = |errors: Vec<OptionError>| errors.iter().map(OptionError::to_string).collect::<Vec<_>>();
        Profile::parse(text).map_err(|errors| tell(errors).join("; "))
    }
}

/// How many to expect in two minutes, in thousandths.
fn parse_rate(text: &str) -> Result<u32, OptionError> {
    let rate = text.parse::<f64>().ok().filter(|rate| (0.0..=f64::from(RATE_MAX)).contains(rate));
    let thousandths = rate.map(|rate| ((rate * 1000.0).round() as u32, rate > 0.0));
    match thousandths {
        Some((thousandths, some)) if thousandths > 0 || !some => Ok(thousandths),
        _ => {
            let what = format!("invalid number of faults in two minutes: {text:?}");
            Err(OptionError::new(what, format!("use 0 or a number from 0.001 to {RATE_MAX}")))
        }
    }
}

fn unknown_faults(words: &[&str]) -> OptionError {
    let kinds: Vec<_> = TABLE.iter().map(|row| row.1).collect();
    let mut classes: Vec<_> = TABLE.iter().map(|row| row.2).collect();
    classes.sort_unstable();
    classes.dedup();
    let there_are = format!("use the kinds {} or the classes {}", kinds.join(", "), classes.join(", "));
    OptionError::new(format!("unknown fault {}", quoted(words)), there_are)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_lists() {
        let profile: Profile = "crash=3,network".parse().unwrap();
        assert_eq!(profile.rate(FaultKind::Crash), 3000);
        assert_eq!(profile.rate(FaultKind::Cut), 1600);
        assert_eq!(profile.rate(FaultKind::Pause), 0);
        let profile: Profile = "-loss,-twin".parse().unwrap();
        assert_eq!((profile.rate(FaultKind::Emptied), profile.rate(FaultKind::Twin)), (0, 0));
        assert_eq!(profile.rate(FaultKind::Crash), 1600);
        let again: Profile = profile.to_string().parse().unwrap();
        assert_eq!(again, profile);
        assert!("crush".parse::<Profile>().unwrap_err().contains("crash"));
    }

    #[test]
    fn every_invalid_word_is_reported() {
        let wrong = [
            "",
            ",",
            " ",
            "swarm",
            "crash,",
            "crash=-1",
            "crash=NaN",
            "crash=inf",
            "crash=",
            "crash=1e9",
            "crash=0.0001",
            "-crash=3",
            "-",
        ];
        for wrong in wrong {
            assert!(Profile::parse(wrong).is_err(), "{wrong:?}");
        }
        let errors = Profile::parse("crush,crash=-1,pause=x,cat").unwrap_err();
        assert_eq!(errors.len(), 3, "{errors:?}");
        assert!(errors[2].what.contains("\"crush\", \"cat\""), "{errors:?}");
        assert_eq!(Profile::parse("crash=0").unwrap().rate(FaultKind::Crash), 0);
        assert_eq!(Profile::parse("crash=0.29").unwrap().rate(FaultKind::Crash), 290);
    }
}
