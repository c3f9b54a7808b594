//! The page with the fields of every definition file, from the JSON Schemas.

use std::fmt::Write;

use serde_json::{Map, Value};

/// The fields that a table lists before it refers to the schema file. Only recursive parts reach it.
const MAX_DEPTH: usize = 5;

/// Returns the page: a section per kind, with a table of its fields.
pub(super) fn page<'a>(schemas: impl Iterator<Item = (&'a str, &'a Value)>) -> String {
    let mut text = format!("# Fields of definition files\n\n{}\n{INTRODUCTION}", super::GENERATED);
    for (kind, schema) in schemas {
        let tables = FieldTables { definitions: &schema["$defs"] };
        // Writing to a String cannot fail.
        let _ = write!(text, "\n## {kind}\n\n{}\n", description(schema));
        match schema["oneOf"].as_array() {
            None => tables.write_table(&mut text, schema),
            Some(variants) => {
                for variant in variants {
                    let name = discriminator(variant).unwrap_or_default();
                    let _ = write!(text, "\n### {kind}, {name}\n\n{}\n", description(variant));
                    tables.write_table(&mut text, variant);
                }
            }
        }
    }
    text
}

const INTRODUCTION: &str = "\
`polity schema KIND` prints the JSON Schema of a kind, for editors. In the tables:

- `a.b` is the field `b` of `a`, `a[].b` the field `b` of each item of a list, and `a.NAME.b` the field \
`b` of each named entry.
- A field without a default is optional unless it is marked as required.
";

/// Writes tables of fields. References are looked up among the definitions of one schema.
struct FieldTables<'a> {
    definitions: &'a Value,
}

/// A row of a table.
struct FieldRow<'a> {
    path: String,
    schema: &'a Value,
    required: bool,
}

impl<'a> FieldTables<'a> {
    fn write_table(&self, text: &mut String, schema: &'a Value) {
        text.push_str("\n| field | type | default | description |\n|---|---|---|---|\n");
        self.write_rows(text, schema, "", 0);
    }

    fn write_rows(&self, text: &mut String, schema: &'a Value, prefix: &str, depth: usize) {
        let Some(fields) = schema["properties"].as_object() else { return };
        for (name, field) in fields {
            let required = schema["required"]
                .as_array()
                .is_some_and(|all| all.contains(&name.as_str().into()));
            self.write_row(
                text,
                &FieldRow { path: format!("{prefix}{name}"), schema: field, required },
                depth,
            );
        }
    }

    fn write_row(&self, text: &mut String, row: &FieldRow<'a>, depth: usize) {
        let target = self.resolve(row.schema);
        let default = match (row.required, &row.schema["default"]) {
            (true, _) => "required".to_owned(),
            (false, Value::Null) => String::new(),
            (false, value) => format!("`{value}`"),
        };
        let described = if row.schema["description"].is_string() { row.schema } else { target };
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "| `{}` | {} | {default} | {} |",
            row.path,
            self.type_name(target),
            description(described).replace('\n', " ").replace('|', "\\|"),
        );
        if depth < MAX_DEPTH {
            self.write_parts(text, target, &row.path, depth + 1);
        }
    }

    /// Writes the fields below a field: of an object, of the items of a list, or of named entries.
    fn write_parts(&self, text: &mut String, schema: &'a Value, path: &str, depth: usize) {
        for variant in schema["oneOf"].as_array().into_iter().flatten() {
            let variant = self.resolve(variant);
            match discriminator(variant) {
                Some(name) => {
                    let _ = writeln!(text, "| `{path}` of {name} | | | {} |", description(variant));
                    self.write_rows(text, variant, &format!("{path}."), depth);
                }
                None => self.write_rows(text, variant, &format!("{path}."), depth),
            }
        }
        self.write_rows(text, schema, &format!("{path}."), depth);
        let items = self.resolve(&schema["items"]);
        if items.is_object() && path.matches("[]").count() < 2 {
            self.write_parts(text, items, &format!("{path}[]"), depth);
        }
        let entries = self.resolve(&schema["additionalProperties"]);
        if entries.is_object() {
            self.write_parts(text, entries, &format!("{path}.NAME"), depth);
        }
    }

    /// The schema behind a reference, or behind a choice between one and `null`.
    fn resolve(&self, schema: &'a Value) -> &'a Value {
        if let Some(name) = schema["$ref"].as_str().and_then(|path| path.strip_prefix("#/$defs/")) {
            return self.resolve(&self.definitions[name]);
        }
        let choices = schema["anyOf"].as_array();
        let mut others = choices.into_iter().flatten().filter(|choice| choice["type"] != "null");
        match (others.next(), others.next()) {
            (Some(only), None) => self.resolve(only),
            (Some(_), Some(_)) | (None, _) => schema,
        }
    }

    fn type_name(&self, schema: &'a Value) -> String {
        let choices = ["oneOf", "anyOf"].iter().find_map(|name| schema[*name].as_array());
        if let Some(choices) = choices {
            let mut names: Vec<String> =
                choices.iter().map(|choice| self.type_name(self.resolve(choice))).collect();
            names.dedup();
            return names.join(", ");
        }
        if let Some(value) = schema.get("const") {
            return format!(
                "`{}`",
                value.as_str().map_or_else(|| value.to_string(), str::to_owned)
            );
        }
        if let Some(values) = schema["enum"].as_array() {
            let names: Vec<String> =
                values.iter().filter_map(Value::as_str).map(|name| format!("`{name}`")).collect();
            return names.join(", ");
        }
        let types: Vec<&str> = match &schema["type"] {
            Value::String(name) => vec![name],
            Value::Array(names) => {
                names.iter().filter_map(Value::as_str).filter(|name| *name != "null").collect()
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => vec!["any"],
        };
        let mut name = types.join(" or ");
        if name == "array" {
            let items = self.resolve(&schema["items"]);
            name = if items["type"].is_string() && items.get("oneOf").is_none() {
                format!("list of {}", plural(&self.type_name(items)))
            } else {
                "list".to_owned()
            };
        }
        name + &bounds(schema.as_object())
    }
}

fn plural(name: &str) -> String {
    let (word, rest) = name
        .split_once(',')
        .map_or((name, String::new()), |(word, rest)| (word, format!(",{rest}")));
    format!("{word}s{rest}")
}

/// The range of a number, such as `, from 1 to 10`.
fn bounds(schema: Option<&Map<String, Value>>) -> String {
    let bound = |name: &str| schema.and_then(|fields| fields.get(name)).map(Value::to_string);
    let above = bound("exclusiveMinimum").map(|number| format!(", above {number}"));
    let from =
        bound("minimum").filter(|number| number != "0").map(|number| format!(", from {number}"));
    let to = bound("maximum").map(|number| format!(", at most {number}"));
    [above, from, to].into_iter().flatten().collect()
}

fn description(schema: &Value) -> &str {
    schema["description"].as_str().unwrap_or_default()
}

/// The field and value that select a variant, such as `type: agent`.
fn discriminator(variant: &Value) -> Option<String> {
    variant["properties"].as_object()?.iter().find_map(|(name, field)| {
        let value = field["const"].as_str()?;
        Some(format!("`{name}: {value}`"))
    })
}
