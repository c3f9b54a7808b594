//! `--set PATH=VALUE`: changes of a State or of a tool call's arguments.

use polity_model::state::StateUpdates;
use serde_json::{Map, Value};

use crate::error::CliError;

/// Parses one change; `example` is for the hint. A value that is not JSON is a
/// string.
pub(super) fn change<'c>(change: &'c str, example: &str) -> Result<(&'c str, Value), CliError> {
    let (path, value) =
        change.split_once('=').filter(|(path, _)| !path.is_empty()).ok_or_else(|| {
            CliError::usage(format!("\"{change}\" is not PATH=VALUE"))
                .hint(format!("for example --set {example}"))
        })?;
    Ok((path, serde_json::from_str(value).unwrap_or_else(|_| Value::from(value))))
}

/// Parses all changes of a State.
pub(super) fn updates(changes: &[String]) -> Result<StateUpdates, CliError> {
    let mut updates = Map::new();
    for text in changes {
        let (path, value) = change(text, "metadata.topic=rain")?;
        match (updates.get_mut(path), path) {
            (None, _) => {
                updates.insert(path.to_owned(), value);
            }
            // Messages are appended, so the option may be repeated.
            (Some(before), "messages") => {
                let all = [before.take(), value].into_iter().flat_map(|value| match value {
                    Value::Array(all) => all,
                    one => vec![one],
                });
                *before = all.collect();
            }
            (Some(_), _) => return Err(CliError::usage(format!("\"{path}\" is set twice"))),
        }
    }
    if updates.contains_key("metadata") && updates.keys().any(|path| path.starts_with("metadata."))
    {
        let message = "metadata is set as a whole and in parts";
        return Err(CliError::usage(message).hint("set either metadata, or metadata.NAME"));
    }
    StateUpdates::new(updates).map_err(|error| {
        CliError::usage(&error).hint("see the State with `polity task checkpoints ID --json`")
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn given(changes: &[&str]) -> Result<Value, CliError> {
        let changes: Vec<String> = changes.iter().map(|&change| change.to_owned()).collect();
        updates(&changes).map(|updates| Value::Object(updates.as_map().clone()))
    }

    #[test]
    fn messages_are_appended_and_other_fields_set_once() {
        let all =
            given(&["messages=hey", r#"messages=["you", {"role": "system", "content": "!"}]"#]);
        let expected = json!({"messages": ["hey", "you", {"role": "system", "content": "!"}]});
        assert_eq!(all.ok(), Some(expected));
        assert!(given(&["metadata.a=1", "metadata.a=2"]).is_err());
        assert!(given(&["metadata={}", "metadata.a=2"]).is_err());
        assert!(given(&["metadata.a=1", "metadata.b=2"]).is_ok());
    }
}
