//! `polity schema`: what editors need to help with definitions.

use polity_model::definition::schema as schema_of;

use crate::args::SchemaArgs;
use crate::error::CliResult;
use crate::exit::Exit;
use crate::view::print_json;

pub(crate) fn schema(args: &SchemaArgs) -> CliResult {
    print_json(&schema_of(args.kind))?;
    Ok(Exit::Done)
}
