//! The shim as a program of its own, for tests. Polity itself becomes the shim when it is called
//! with the hidden command.

use std::process::ExitCode;

#[cfg(target_os = "linux")]
fn main() -> ExitCode {
    let args = std::env::args_os().skip(1);
    polity_drivers::process::supervise(
        args.skip_while(|arg| arg == polity_drivers::process::SUPERVISE),
    )
}

#[cfg(not(target_os = "linux"))]
fn main() -> ExitCode {
    ExitCode::FAILURE
}
