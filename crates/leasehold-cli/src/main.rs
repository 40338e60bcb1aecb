//! The program `leasehold`.

use std::process::ExitCode;

mod guard;

fn main() -> ExitCode {
    if let Some(code) = guard::hidden_main() {
        return code;
    }
    ExitCode::FAILURE
}
