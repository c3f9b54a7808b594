//! The shim as a test binary. In production, `polity` becomes the shim by its hidden subcommand.

use std::process::ExitCode;

#[cfg(target_os = "linux")]
fn main() -> ExitCode {
    let args = std::env::args_os().skip(1);
    polity_drivers::process::supervise(
        args.skip_while(|arg| arg == polity_drivers::process::SUPERVISE_COMMAND),
    )
}

#[cfg(not(target_os = "linux"))]
fn main() -> ExitCode {
    ExitCode::FAILURE
}
