//! The program. Everything is in the library, so that the reference can be written from it.

use std::process::ExitCode;

fn main() -> ExitCode {
    polity::main()
}
