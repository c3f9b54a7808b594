//! The JSON Schema of chart files, for editors.

use serde_json::{Value as Json, json};

use crate::chart::{HISTORY_DEPTH_DEFAULT, HISTORY_DEPTH_MAX};

/// Returns the JSON Schema (draft 2020-12) of a chart file.
pub fn schema() -> Json {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "chart",
        "description": "The behaviour of an agent: states and the transitions between them.",
        "type": "object",
        "additionalProperties": false,
        "required": ["name", "states", "initial"],
        "properties": {
            "name": {
                "description": "The chart's name; the same as the name of its file.",
                "type": "string", "minLength": 1
            },
            "states": {
                "description": "The states of an agent.",
                "type": "array", "minItems": 1, "items": {"$ref": "#/$defs/state"}
            },
            "initial": {
                "description": "The initial state of new agents.", "type": "string", "minLength": 1
            },
            "transitions": {
                "description": "The transitions between states. The first eligible one is taken.",
                "type": "array", "items": {"$ref": "#/$defs/transition"}
            },
            "timeouts": {
                "description": "Transitions for agents that stay in a state for too long.",
                "type": "array", "items": {"$ref": "#/$defs/timeout"}
            },
            "oracle_default": {
                "description": "The fallback state if the oracle has no usable answer.", "type": "string"
            },
            "fields": {
                "description": "The fields of an agent with their initial values.",
                "type": "object", "additionalProperties": {"$ref": "#/$defs/field"}
            },
            "world": {
                "description": "The world values with their initial values.",
                "type": "object", "additionalProperties": {"$ref": "#/$defs/value"}
            },
            "max_history_depth": {
                "description": "The number of transitions kept per agent.",
                "type": "integer", "minimum": 1, "maximum": HISTORY_DEPTH_MAX,
                "default": HISTORY_DEPTH_DEFAULT
            }
        },
        "$defs": definitions()
    })
}

fn definitions() -> Json {
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
        "state": {
            "oneOf": [
                {"$ref": "#/$defs/name"},
                {
                    "type": "object", "additionalProperties": false, "required": ["name"],
                    "properties": {
                        "name": {"$ref": "#/$defs/name"},
                        "states": {
                            "description": "The child states.",
                            "type": "array", "items": {"$ref": "#/$defs/state"}
                        },
                        "initial": {
                            "description": "The child state that is entered first.",
                            "type": "string"
                        },
                        "entry": {"description": "Entry actions.",
                            "$ref": "#/$defs/texts"},
                        "exit": {"description": "Exit actions.", "$ref": "#/$defs/texts"},
                        "history": {
                            "description": "Re-enters the child state that was last active.",
                            "const": "shallow"
                        }
                    }
                }
            ]
        },
        "transition": {
            "type": "object", "additionalProperties": false,
            "required": ["trigger", "source", "target"],
            "properties": {
                "trigger": {"$ref": "#/$defs/name"},
                "source": {"$ref": "#/$defs/states"},
                "target": {"type": "string", "minLength": 1},
                "guard": {"description": "The condition.", "type": "string"},
                "action": {"description": "The actions.", "$ref": "#/$defs/texts"},
                "oracle": {
                    "description": "The oracle chooses between this and the other eligible oracle transitions.",
                    "type": "boolean", "default": false
                }
            }
        },
        "timeout": {
            "type": "object", "additionalProperties": false,
            "required": ["state", "threshold", "target"],
            "properties": {
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
            }
        },
        "field": {
            "oneOf": [
                {"$ref": "#/$defs/value"},
                {
                    "type": "object", "additionalProperties": false, "required": ["default"],
                    "properties": {
                        "default": {"$ref": "#/$defs/value"},
                        "min": {"type": "number"},
                        "max": {"type": "number"}
                    }
                }
            ]
        }
    })
}
