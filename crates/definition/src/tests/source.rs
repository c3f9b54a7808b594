//! Tests of texts that are not YAML or not a definition.

use super::{problems, report};
use crate::DEFINITION_BYTES_MAX;

fn of_file(text: &str) -> Vec<String> {
    problems("agents/writer.yaml", text, [])
}

#[test]
fn rejects_text_that_is_not_a_definition() {
    let nested = format!("kind: {}1{}", "[".repeat(100), "]".repeat(100));
    insta::assert_snapshot!(report(
        [
            "",
            "# only a comment\n",
            "---\n",
            "name: [",
            "a: b: c\n",
            "kind: llm\nname: writer\n  role: x\n",
            "name: 'x\n",
            "name: a\n---\nname: b\n",
            "- a\n",
            "just words\n",
            "~: 1\n",
            &nested,
        ],
        of_file
    ));
}

#[test]
fn rejects_alias_bombs() {
    use std::fmt::Write as _;
    let mut text = "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n".to_owned();
    for n in 1..9 {
        let inner = vec![format!("*a{}", n - 1); 10].join(", ");
        writeln!(text, "a{n}: &a{n} [{inner}]").unwrap();
    }
    assert_eq!(of_file(&text), ["6:15: the aliases (\"*name\") of the file unfold to too much"]);
}

#[test]
fn limits_the_size_of_a_file() {
    let text = format!("role: {}", "x".repeat(DEFINITION_BYTES_MAX));
    assert_eq!(
        of_file(&text),
        ["1:1: the file has more than 1048576 bytes, the most a definition may have"]
    );
}

#[test]
fn a_duplicate_field_does_not_hide_other_problems() {
    let text = "kind: cli\nname: writer\nexecutable_path: x\nname: writer\ntimeot: 3\n";
    insta::assert_snapshot!(report([text], of_file));
}

/// Messages about a JSON file use the terms of JSON.
#[test]
fn json_and_yaml_are_equivalent() {
    insta::assert_snapshot!(report(
        [
            "{\"name\": \"writer\",\n\"kind\": \"llm\",,}",
            "{\n\t\"kind\": \"cli\",\n\t\"name\":\"writer\",\n\t\"executable_path\": \"a\\/\\ud83d\\ude00\"\n}\n",
            "{\"kind\": \"cli\", \"name\": \"writer\", \"executable\": \"x\"}",
        ],
        |text| problems("agents/writer.json", text, [])
    ));
}
