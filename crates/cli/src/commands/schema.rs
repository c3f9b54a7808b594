//! `polity schema`: what editors need to help with definitions.

use polity_model::definition::{Kind, UnknownKind, schema as schema_of};

use crate::args::SchemaArgs;
use crate::error::{CliError, CliResult};
use crate::exit::Exit;
use crate::view::print_json;

pub(crate) fn schema(args: &SchemaArgs) -> CliResult {
    let kind: Kind = args.kind.parse().map_err(|error: UnknownKind| CliError::usage(error))?;
    print_json(&schema_of(kind))?;
    Ok(Exit::Done)
}
