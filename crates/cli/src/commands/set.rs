//! `--set PATH=VALUE`: what someone changes in a State or in the arguments of a call.

use polity_model::state::StateUpdates;
use serde_json::{Map, Value};

use crate::error::CliError;

/// The path and the value of one change. A value that is no JSON is a text.
pub(super) fn change(change: &str) -> Result<(&str, Value), CliError> {
    let (path, value) =
        change.split_once('=').filter(|(path, _)| !path.is_empty()).ok_or_else(|| {
            CliError::usage(format!("\"{change}\" changes nothing"))
                .hint("write it as PATH=VALUE: --set metadata.topic=rain")
        })?;
    Ok((path, serde_json::from_str(value).unwrap_or_else(|_| Value::from(value))))
}

/// All changes of a State.
pub(super) fn updates(changes: &[String]) -> Result<StateUpdates, CliError> {
    let mut updates = Map::new();
    for text in changes {
        let (path, value) = change(text)?;
        updates.insert(path.to_owned(), value);
    }
    StateUpdates::new(updates).map_err(|error| {
        CliError::usage(&error).hint("see the State with `polity task checkpoints ID --json`")
    })
}
