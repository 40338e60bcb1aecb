//! What a build without the feature `prove` says when it is asked for a command of that feature.

use leasehold_cli_common::failure::{Code, Failure};

/// The commands of `leasehold-prove`.
const COMMANDS: [&str; 4] = ["demo", "check", "bench", "sim"];

/// The failure, if these arguments ask for a command that this build lacks.
pub(crate) fn missing(mut arguments: impl Iterator<Item = String>) -> Option<Failure> {
    let command = arguments.find(|argument| argument != "help")?;
    COMMANDS.contains(&command.as_str()).then(|| {
        let what = format!("this build does not have the command `{command}`");
        let advice = "build leasehold-cli with the feature `prove`, which is on by default";
        Failure::new(Code::Usage, format!("{what}\n  {advice}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_was_left_out_names_the_feature_to_build_with() {
        let missing = |line: &str| missing(line.split(' ').map(str::to_owned));
        for line in ["check", "demo --for 5s", "bench --store local:x", "help sim"] {
            let failure = missing(line).unwrap();
            assert_eq!(failure.code, Code::Usage);
            assert!(failure.message.contains("the feature `prove`"), "{}", failure.message);
        }
        for line in ["chekc", "config check", "run -- check", ""] {
            assert!(missing(line).is_none(), "{line}");
        }
    }

    /// The list above is the list of commands that the feature adds.
    #[cfg(feature = "prove")]
    #[test]
    fn the_feature_adds_these_commands() {
        let all = <crate::args::Arguments as clap::CommandFactory>::command();
        assert!(COMMANDS.iter().all(|name| all.find_subcommand(name).is_some()));
    }
}
