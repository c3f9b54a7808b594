//! Definitions as YAML, as `add` commands write them.

use serde_json::Value;

/// Words with a special meaning in some YAML parsers.
const RESERVED: [&str; 9] = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];

/// Fields as a YAML file, one per line.
pub fn yaml_file(fields: &[(String, Value)]) -> String {
    let lines = fields.iter().map(|(name, value)| format!("{}: {}", text(name), flow(value)));
    let mut lines: Vec<String> = lines.collect();
    lines.push(String::new());
    lines.join("\n")
}

fn flow(value: &Value) -> String {
    match value {
        Value::String(words) => text(words),
        Value::Array(items) => {
            format!("[{}]", items.iter().map(flow).collect::<Vec<_>>().join(", "))
        }
        Value::Object(fields) => {
            let fields =
                fields.iter().map(|(name, value)| format!("{}: {}", text(name), flow(value)));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(", "))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

/// A string, quoted if it could be parsed as something else.
fn text(words: &str) -> String {
    let begins_well = words.starts_with(|c: char| c.is_ascii_alphabetic());
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./ ".contains(c);
    let is_safe = begins_well
        && words.chars().all(is_plain)
        && !words.ends_with(' ')
        && !RESERVED.iter().any(|reserved| reserved.eq_ignore_ascii_case(words));
    // A JSON string is also a YAML string.
    if is_safe { words.to_owned() } else { Value::from(words).to_string() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ambiguous_scalars_are_quoted() {
        let fields = [
            ("name".to_owned(), json!("words")),
            ("cli_args".to_owned(), json!(["-w", "no", "a: b", "", "two words", "3", "x\ny"])),
            ("envs".to_owned(), json!({"KEY": "${MY_KEY}"})),
            ("timeout".to_owned(), json!(5)),
        ];
        assert_eq!(
            yaml_file(&fields),
            "name: words\n\
             cli_args: [\"-w\", \"no\", \"a: b\", \"\", two words, \"3\", \"x\\ny\"]\n\
             envs: {KEY: \"${MY_KEY}\"}\n\
             timeout: 5\n"
        );
    }
}
