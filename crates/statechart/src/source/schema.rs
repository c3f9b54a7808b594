//! The JSON Schema of chart files, for editors.

use serde_json::{Value as Json, json};

use crate::chart::{HISTORY_DEPTH_DEFAULT, HISTORY_DEPTH_MAX};

/// Returns the JSON Schema (draft 2020-12) of a chart file.
pub fn schema() -> Json {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "chart",
        "description": "How an agent behaves: states, and what leads from one to another.",
        "type": "object",
        "additionalProperties": false,
        "required": ["name", "states", "initial"],
        "properties": {
            "name": {
                "description": "The chart's name; the same as the name of its file.",
                "type": "string", "minLength": 1
            },
            "states": {
                "description": "The states that an agent can be in.",
                "type": "array", "minItems": 1, "items": {"$ref": "#/$defs/state"}
            },
            "initial": {
                "description": "The state that new agents are in.", "type": "string", "minLength": 1
            },
            "transitions": {
                "description": "What leads from where to where. The first that fits is taken.",
                "type": "array", "items": {"$ref": "#/$defs/transition"}
            },
            "timeouts": {
                "description": "Where agents go that stay in a state for too long.",
                "type": "array", "items": {"$ref": "#/$defs/timeout"}
            },
            "oracle_default": {
                "description": "Where to go when the oracle has no usable answer.", "type": "string"
            },
            "fields": {
                "description": "The fields of an agent, each with what it is at first.",
                "type": "object", "additionalProperties": {"$ref": "#/$defs/field"}
            },
            "world": {
                "description": "The values of the world, each with what it is at first.",
                "type": "object", "additionalProperties": {"$ref": "#/$defs/value"}
            },
            "max_history_depth": {
                "description": "How many transitions of an agent are history_updates.",
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
            "description": "A state, a list of them, or * for every state but the target.",
            "oneOf": [
                {"type": "string", "minLength": 1},
                {"type": "array", "minItems": 1, "items": {"type": "string", "minLength": 1}}
            ]
        },
        "name": {
            "description": "Small letters, digits and _, a letter first.",
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
                            "description": "The states inside it.",
                            "type": "array", "items": {"$ref": "#/$defs/state"}
                        },
                        "initial": {
                            "description": "The one of them that is entered first.",
                            "type": "string"
                        },
                        "entry": {"description": "Actions when it is entered.",
                            "$ref": "#/$defs/texts"},
                        "exit": {"description": "Actions when it is left.", "$ref": "#/$defs/texts"},
                        "history": {
                            "description": "The one inside that was left last is entered again.",
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
                "guard": {"description": "What must hold for it.", "type": "string"},
                "action": {"description": "What happens with it.", "$ref": "#/$defs/texts"},
                "oracle": {
                    "description": "The oracle decides between this and others like it.",
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
                    "description": "How many ticks a state may last: a number or agent.FIELD.",
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
