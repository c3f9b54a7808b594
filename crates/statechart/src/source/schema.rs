//! The JSON Schema of chart files, for editors.

use serde_json::{Value as Json, json};

use crate::chart::{HISTORY_DEPTH_DEFAULT, HISTORY_DEPTH_MAX};

/// Returns the JSON Schema (draft 2020-12) of a chart file.
pub fn schema() -> Json {
    let name = "The chart's name; the same as the name of its file.";
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "chart",
        "description": "The behaviour of an agent: states and the transitions between them.",
        "type": "object",
        "additionalProperties": false,
        "required": ["name", "states", "initial"],
        "properties": {
            "name": {"description": name, "type": "string", "minLength": 1},
            "states": {
                "description": "The states of an agent.",
                "type": "array", "minItems": 1, "items": {"$ref": "#/$defs/state"}
            },
            "initial": {
                "description": "The initial state of new agents.", "type": "string", "minLength": 1
            },
            "transitions": list(
                "The transitions between states. The first eligible one is taken.", "transition"
            ),
            "timeouts": list("Transitions for agents that stay in a state for too long.", "timeout"),
            "oracle_default": text("The fallback state if the oracle has no usable answer."),
            "fields": mapping("The fields of an agent with their initial values.", "field"),
            "world": mapping("The world values with their initial values.", "value"),
            "max_history_depth": {
                "description": "The number of transitions kept per agent.",
                "type": "integer", "minimum": 1, "maximum": HISTORY_DEPTH_MAX,
                "default": HISTORY_DEPTH_DEFAULT
            }
        },
        "$defs": definitions()
    })
}

fn text(description: &str) -> Json {
    json!({"description": description, "type": "string"})
}

fn list(description: &str, item: &str) -> Json {
    let item = format!("#/$defs/{item}");
    json!({"description": description, "type": "array", "items": {"$ref": item}})
}

fn mapping(description: &str, value: &str) -> Json {
    let value = format!("#/$defs/{value}");
    json!({"description": description, "type": "object", "additionalProperties": {"$ref": value}})
}

/// Returns the schema of a mapping without other keys than these.
fn object(required: &[&str], properties: &Json) -> Json {
    json!({
        "type": "object", "additionalProperties": false, "required": required,
        "properties": properties
    })
}

fn definitions() -> Json {
    let state = json!({
        "name": {"$ref": "#/$defs/name"},
        "states": list("The child states.", "state"),
        "initial": text("The child state that is entered first."),
        "entry": {"description": "Entry actions.", "$ref": "#/$defs/texts"},
        "exit": {"description": "Exit actions.", "$ref": "#/$defs/texts"},
        "history": {
            "description": "Re-enters the child state that was last active.", "const": "shallow"
        }
    });
    let transition = json!({
        "trigger": {"$ref": "#/$defs/name"},
        "source": {"$ref": "#/$defs/states"},
        "target": {"type": "string", "minLength": 1},
        "guard": text("The condition."),
        "action": {"description": "The actions.", "$ref": "#/$defs/texts"},
        "oracle": {
            "description": "The oracle chooses between this and the other eligible oracle transitions.",
            "type": "boolean", "default": false
        }
    });
    let timeout = json!({
        "state": {"$ref": "#/$defs/states"},
        "threshold": {
            "description": "The maximum number of ticks in the state: a number or agent.FIELD.",
            "oneOf": [
                {"type": "number", "exclusiveMinimum": 0},
                {"type": "string", "pattern": "^agent\\."}
            ]
        },
        "target": {"type": "string", "minLength": 1},
        "action": {"$ref": "#/$defs/texts"}
    });
    let field = json!({
        "default": {"$ref": "#/$defs/value"}, "min": {"type": "number"}, "max": {"type": "number"}
    });
    json!({
        "value": {"type": ["number", "string", "boolean"]},
        "texts": {
            "oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]
        },
        "states": {
            "description": "A state, a list of states, or * for every state but the target.",
            "oneOf": [
                {"type": "string", "minLength": 1},
                {"type": "array", "minItems": 1, "items": {"type": "string", "minLength": 1}}
            ]
        },
        "name": {
            "description": "Lowercase letters, digits and _, starting with a letter.",
            "type": "string", "pattern": "^[a-z][a-z0-9_]*$"
        },
        "state": {"oneOf": [{"$ref": "#/$defs/name"}, object(&["name"], &state)]},
        "transition": object(&["trigger", "source", "target"], &transition),
        "timeout": object(&["state", "threshold", "target"], &timeout),
        "field": {"oneOf": [{"$ref": "#/$defs/value"}, object(&["default"], &field)]}
    })
}
