//! `polity completions`: shell completions.

use clap::CommandFactory;

use crate::args::{CompletionsArgs, PolityArgs};
use crate::error::CliResult;
use crate::exit::ExitStatus;
use crate::terminal::print_exact;

pub(crate) fn completions(args: &CompletionsArgs) -> CliResult {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut PolityArgs::command(), "polity", &mut script);
    print_exact(&String::from_utf8_lossy(&script))?;
    Ok(ExitStatus::Done)
}
