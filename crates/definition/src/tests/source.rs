//! Texts that are no YAML, or no definition at all.

use super::check;
use crate::DEFINITION_BYTES_MAX;

#[test]
fn rejects_text_that_is_not_a_definition() {
    let nested = format!("kind: {}1{}", "[".repeat(100), "]".repeat(100));
    for (text, expected) in [
        ("", "1:1: the file is empty"),
        ("# only a comment\n", "1:1: the file is empty"),
        ("---\n", "1:1: the file is empty"),
        ("name: [", "1:7: this is not valid YAML: unclosed bracket '['"),
        (
            "a: b: c\n",
            "1:5: this is not valid YAML: mapping values are not allowed in this context",
        ),
        (
            "kind: llm\nname: writer\n  role: x\n",
            "3:7: this is not valid YAML: mapping values are not allowed in this context",
        ),
        (
            "name: 'x\n",
            "2:1: this is not valid YAML: invalid indentation in multiline quoted scalar",
        ),
        (
            "name: a\n---\nname: b\n",
            "3:1: the file holds several documents (\"---\"), a definition is one",
        ),
        ("- a\n", "1:1: the file must be a mapping, found a list"),
        ("just words\n", "1:1: the file must be a mapping, found the text \"just words\""),
        ("~: 1\n", "1:1: a field without a name"),
        (nested.as_str(), "1:70: values are nested more than 64 deep"),
    ] {
        check("agents/writer.yaml", text, &[expected]);
    }
    // Messages about a JSON file use the terms of JSON.
    check(
        "agents/writer.json",
        "{\"name\": \"writer\",\n\"kind\": \"llm\",,}",
        &["2:15: this is not valid JSON: key must be a string"],
    );
}

#[test]
fn rejects_alias_bombs() {
    use std::fmt::Write as _;
    let mut text = "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n".to_owned();
    for n in 1..9 {
        let inner = vec![format!("*a{}", n - 1); 10].join(", ");
        writeln!(text, "a{n}: &a{n} [{inner}]").unwrap();
    }
    check(
        "agents/writer.yaml",
        &text,
        &["6:15: the aliases (\"*name\") of the file unfold to too much"],
    );
}

#[test]
fn limits_the_size_of_a_file() {
    let text = format!("role: {}", "x".repeat(DEFINITION_BYTES_MAX));
    check(
        "agents/writer.yaml",
        &text,
        &["1:1: the file has more than 1048576 bytes, the most a definition may have"],
    );
}

#[test]
fn a_duplicate_field_does_not_hide_other_problems() {
    check(
        "agents/writer.yaml",
        "kind: cli\nname: writer\nexecutable_path: x\nname: writer\ntimeot: 3\n",
        &[
            "4:1: the field \"name\" appears twice",
            "5:1: unknown field \"timeot\", did you mean \"timeout\"?",
        ],
    );
}

#[test]
fn json_and_yaml_are_equivalent() {
    check(
        "agents/writer.json",
        "{\n\t\"kind\": \"cli\",\n\t\"name\":\"writer\",\n\t\"executable_path\": \"a\\/\\ud83d\\ude00\"\n}\n",
        &[],
    );
    check(
        "agents/writer.json",
        "{\"kind\": \"cli\", \"name\": \"writer\", \"executable\": \"x\"}",
        &[
            "1:1: missing field \"executable_path\", which is needed without a preset",
            "1:35: unknown field \"executable\", did you mean \"executable_path\"?",
        ],
    );
}
