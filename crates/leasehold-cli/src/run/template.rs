//! Replaces the placeholders in the command.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use leasehold_cli_common::settings::Problem;
use leasehold_core::{Epoch, ShardId};

/// A command whose arguments may name the shard: `{shard}`, `{group}` and `{epoch}` are replaced, in any argument.
#[derive(Debug)]
pub(super) struct Template(Vec<OsString>);

impl Template {
    /// Takes a command.
    pub(super) fn new(command: Vec<OsString>) -> Self {
        Template(command)
    }

    /// The command for one shard.
    pub(super) fn fill(&self, shard: &ShardId, epoch: Epoch) -> Vec<OsString> {
        self.0.iter().map(|part| replace(part, shard, epoch)).collect()
    }

    /// The command as it is, for a child that has many shards.
    pub(super) fn plain(&self) -> Vec<OsString> {
        self.0.clone()
    }
}

/// Why a command cannot be started, if that is plain to see.
pub(super) fn problem(command: &[OsString], place: &str) -> Option<Problem> {
    let Some(program) = command.first() else {
        return Some(Problem::new(place, "the command is missing", "add it after --"));
    };
    let known = program.to_string_lossy().contains('{') || can_run(program);
    (!known).then(|| {
        let what = format!("{} is not an executable program in PATH", program.display());
        Problem::new(place, what, "use the name or path of a program")
    })
}

fn replace(part: &OsStr, shard: &ShardId, epoch: Epoch) -> OsString {
    // An argument that is not valid UTF-8 cannot contain a placeholder.
    let Some(text) = part.to_str() else { return part.to_owned() };
    let epoch = epoch.to_string();
    let known = [("{shard}", shard.name.as_str()), ("{group}", shard.group.as_str()), ("{epoch}", &epoch)];
    // One pass: what was put in is never looked at again, whatever a shard is called.
    let (mut filled, mut rest) = (String::new(), text);
    while let Some(at) = rest.find('{') {
        filled.push_str(&rest[..at]);
        rest = &rest[at..];
        let (placeholder, value) =
            known.into_iter().find(|(placeholder, _)| rest.starts_with(placeholder)).unwrap_or(("{", "{"));
        filled.push_str(value);
        rest = &rest[placeholder.len()..];
    }
    filled.push_str(rest);
    filled.into()
}

fn can_run(program: &OsStr) -> bool {
    let runnable = |path: &Path| {
        path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    if program.as_encoded_bytes().contains(&b'/') {
        return runnable(Path::new(program));
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    std::env::split_paths(&path).any(|folder| runnable(&folder.join(program)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_replaced_wherever_they_stand() {
        let template =
            Template(["sh", "-c", "x {group}/{shard}@{epoch} {other}"].map(OsString::from).to_vec());
        let filled = template.fill(&"orders/3".parse().unwrap(), Epoch(7));
        assert_eq!(filled, ["sh", "-c", "x orders/3@7 {other}"].map(OsString::from));
    }

    #[test]
    fn what_was_put_in_is_no_placeholder() {
        let template = Template(["{shard}", "{{group}", "{", "{shard}{epoch}}"].map(OsString::from).to_vec());
        let filled = template.fill(&"{shard}/{epoch}".parse().unwrap(), Epoch(7));
        assert_eq!(filled, ["{epoch}", "{{shard}", "{", "{epoch}7}"].map(OsString::from));
    }

    #[test]
    fn a_program_that_is_not_there_is_refused_before_anything_starts() {
        assert_eq!(problem(&["sh".into()], "--"), None);
        assert_eq!(problem(&["/bin/sh".into()], "--"), None);
        assert!(problem(&["no-such-program-here".into()], "--").is_some());
        assert!(problem(&["/etc/passwd".into()], "--").is_some());
        assert!(problem(&[], "--").is_some());
    }
}
