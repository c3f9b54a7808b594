//! Canonical JSON: the file form of a definition with its defaults filled in, in one spelling.
//!
//! The same definition always gives the same text, so the text's digest names the definition. It
//! is read back by the parser of the files, so it avoids the few characters that JSON allows in a
//! string and YAML does not.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::Value;

/// Implements the canonical JSON of a definition and its digest, given `to_file`.
macro_rules! canonical_form {
    ($name:ident) => {
        impl $name {
            /// The definition as canonical JSON: with its defaults, in one spelling.
            pub fn canonical_json(&self) -> String {
                $crate::file::canonical::to_json(&self.to_file())
            }

            /// The digest of the canonical JSON.
            pub fn digest(&self) -> polity_model::digest::Digest {
                polity_model::digest::Digest::of(self.canonical_json().as_bytes())
            }
        }
    };
}
pub(crate) use canonical_form;

/// The canonical JSON of a definition in file form.
pub(crate) fn to_json<T: Serialize>(file: &T) -> String {
    let mut out = String::new();
    write_value(&to_value(file), &mut out);
    out
}

/// The canonical JSON of a definition in which the order of one field's entries means something.
pub(crate) fn to_json_with_ordered<T: Serialize>(
    file: &T,
    field: &str,
    entries: &[(String, Value)],
) -> String {
    let Value::Object(fields) = to_value(file) else { return to_json(file) };
    let mut fields: Vec<_> = fields.iter().collect();
    fields.sort_unstable_by_key(|(key, _)| *key);
    let mut out = String::from("{");
    for (place, (key, value)) in fields.into_iter().enumerate() {
        if place > 0 {
            out.push(',');
        }
        write_text(key, &mut out);
        out.push_str(": ");
        if key == field && value.is_object() {
            write_entries(entries.iter().map(|(key, value)| (key.as_str(), value)), &mut out);
        } else {
            write_value(value, &mut out);
        }
    }
    out.push('}');
    out
}

/// The JSON value of a part of a definition. File types hold only JSON values, so the conversion
/// cannot fail; `Null` would mark the impossible.
pub(crate) fn to_value<T: Serialize>(part: &T) -> Value {
    serde_json::to_value(part).unwrap_or_default()
}

fn write_value(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Value::Number(number) => {
            let _ = write!(out, "{number}");
        }
        Value::String(text) => write_text(text, out),
        Value::Array(items) => {
            out.push('[');
            for (place, item) in items.iter().enumerate() {
                if place > 0 {
                    out.push(',');
                }
                write_value(item, out);
            }
            out.push(']');
        }
        Value::Object(entries) => {
            let mut entries: Vec<_> = entries.iter().collect();
            entries.sort_unstable_by_key(|(key, _)| *key);
            write_entries(entries.into_iter().map(|(key, value)| (key.as_str(), value)), out);
        }
    }
}

/// Writes an object in this order.
fn write_entries<'a>(entries: impl Iterator<Item = (&'a str, &'a Value)>, out: &mut String) {
    out.push('{');
    for (place, (key, value)) in entries.enumerate() {
        if place > 0 {
            out.push(',');
        }
        write_text(key, out);
        // The space keeps the YAML parser from reading the colon as part of the value.
        out.push_str(": ");
        write_value(value, out);
    }
    out.push('}');
}

fn write_text(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\0'..='\u{1f}'
            | '\u{7f}'..='\u{9f}'
            | '\u{2028}'
            | '\u{2029}'
            | '\u{feff}'
            | '\u{fffe}'
            | '\u{ffff}' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}
