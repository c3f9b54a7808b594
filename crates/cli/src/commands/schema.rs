//! `polity schema`: prints a JSON Schema for editors.

use crate::args::SchemaArgs;
use crate::error::CliResult;
use crate::exit::ExitStatus;
use crate::terminal::print_json;

pub(crate) fn schema(args: &SchemaArgs) -> CliResult {
    print_json(&args.kind.schema())?;
    Ok(ExitStatus::Done)
}
