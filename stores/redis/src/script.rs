//! The Lua scripts. Each connection loads them, and calls them by the hashes that the server returns.

use crate::resp::Command;

/// One of the scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Script {
    Read,
    Page,
    /// The records of nodes, and `meta`.
    Nodes,
    /// Swaps of records that exist: they go on when the server's memory is full.
    Swap,
    /// Swaps that make new records: they are refused when the server's memory is full.
    Create,
    Lower,
    Grant,
    Put,
    Keep,
    Remove,
    Revoke,
    Keys,
    Values,
    Rights,
    Discard,
}

/// Whether a script goes on when the server's memory is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WhenFull {
    GoOn,
    Refuse,
}

const ENTER: &str = include_str!("lua/enter.lua");
const SWAP: &str = include_str!("lua/swap.lua");

const ALL: [(Script, WhenFull, &[&str]); 15] = [
    (Script::Read, WhenFull::GoOn, &[ENTER, include_str!("lua/read.lua")]),
    (Script::Page, WhenFull::GoOn, &[ENTER, include_str!("lua/page.lua")]),
    (Script::Nodes, WhenFull::GoOn, &[ENTER, include_str!("lua/nodes.lua")]),
    (Script::Swap, WhenFull::GoOn, &[ENTER, SWAP]),
    (Script::Create, WhenFull::Refuse, &[ENTER, SWAP]),
    (Script::Lower, WhenFull::GoOn, &[include_str!("lua/lower.lua")]),
    (Script::Grant, WhenFull::Refuse, &[include_str!("lua/grant.lua")]),
    (Script::Put, WhenFull::Refuse, &[include_str!("lua/put.lua")]),
    (Script::Keep, WhenFull::GoOn, &[include_str!("lua/keep.lua")]),
    (Script::Remove, WhenFull::GoOn, &[include_str!("lua/remove.lua")]),
    (Script::Revoke, WhenFull::GoOn, &[include_str!("lua/revoke.lua")]),
    (Script::Keys, WhenFull::GoOn, &[include_str!("lua/keys.lua")]),
    (Script::Values, WhenFull::GoOn, &[include_str!("lua/values.lua")]),
    (Script::Rights, WhenFull::GoOn, &[include_str!("lua/rights.lua")]),
    (Script::Discard, WhenFull::GoOn, &[include_str!("lua/discard.lua")]),
];

/// The commands that load them all.
pub(crate) fn load_all() -> Vec<Command> {
    let load = |(_, when_full, parts): &(Script, WhenFull, &[&str])| {
        // A script that may write is refused by replicas, so no answer is ever stale.
        let head = match when_full {
            WhenFull::GoOn => "#!lua flags=allow-oom\n",
            WhenFull::Refuse => "#!lua\n",
        };
        Command::new(["SCRIPT", "LOAD", &format!("{head}{}", parts.concat())])
    };
    ALL.iter().map(load).collect()
}

/// A script to be called, with its keys and arguments.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    script: Script,
    keys: Vec<String>,
    args: Vec<Vec<u8>>,
}

impl Call {
    pub(crate) fn new(script: Script, keys: Vec<String>) -> Self {
        Call { script, keys, args: Vec::new() }
    }

    pub(crate) fn arg(mut self, arg: impl AsRef<[u8]>) -> Self {
        self.push(arg);
        self
    }

    pub(crate) fn push(&mut self, arg: impl AsRef<[u8]>) {
        self.args.push(arg.as_ref().to_vec());
    }

    /// The command, for a server that gave the scripts these names.
    pub(crate) fn command(&self, names: &[String]) -> Command {
        let options = ALL.iter().position(|(script, ..)| *script == self.script);
        let name = options.and_then(|options| names.get(options)).map_or("", String::as_str);
        let mut command = Command::new(["EVALSHA", name, &self.keys.len().to_string()]);
        self.keys.iter().for_each(|key| command.push(key));
        self.args.iter().for_each(|arg| command.push(arg));
        command
    }
}
