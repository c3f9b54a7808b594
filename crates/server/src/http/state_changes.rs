//! The schema of changes of a State.

use schemars::{Schema, SchemaGenerator, json_schema};

/// The names of the fields that can be set.
const FIELD_PATTERN: &str = r"^(messages|next_action|routing_key|metadata(\.[A-Za-z0-9_]+)?|nodes\.[a-z][a-z0-9_]*\.output)$";

/// The schema of changes of a State, by path.
pub(crate) fn state_changes_schema(_: &mut SchemaGenerator) -> Schema {
    let message = json_schema!({
        "type": "object",
        "properties": {
            "role": {"type": "string", "enum": ["user", "system"]},
            "content": {"type": "string"},
        },
        "required": ["role", "content"],
        "additionalProperties": false,
    });
    let item = json_schema!({"anyOf": [message, {"type": "string"}]});
    json_schema!({
        "type": "object",
        "properties": {
            "messages": {
                "anyOf": [message, {"type": "string"}, {"type": "array", "items": item}],
                "description": "Messages to append.",
            },
            "next_action": {"type": ["string", "null"]},
            "routing_key": {"type": ["string", "null"]},
            "metadata": {"type": "object", "additionalProperties": true},
        },
        "propertyNames": {"pattern": FIELD_PATTERN},
        "additionalProperties": true,
    })
}
