//! The `polity` binary. The library holds everything, so that the reference can be generated from it.

use std::process::ExitCode;

fn main() -> ExitCode {
    polity::main()
}
