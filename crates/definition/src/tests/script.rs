//! Tests of scripts for the scripted model.

use super::{home, problems, report};
use crate::{ScriptOutcome, ScriptRole};

#[test]
fn rules_are_compiled_in_order() {
    let text = "rules:\n  - {when: \"a(b)\", role: tool, reply: x, times: 2}\n  - {when: c, error: {status: 500}}\ndefault: {reply: y}\n";
    let home = home([("scripts/s.yaml", text)]);
    let script = &home.scripts["s"];
    assert!(script.rules[0].when.is_match("xaby"));
    assert_eq!(script.rules[0].role, Some(ScriptRole::Tool));
    assert_eq!(script.rules[0].times.map(std::num::NonZero::get), Some(2));
    assert_eq!(
        script.rules[1].answer.outcome,
        ScriptOutcome::Error { status: 500, retry_after_seconds: None }
    );
    assert!(script.default.is_some());
}

#[test]
fn fields_list_their_allowed_values() {
    insta::assert_snapshot!(report(
        [
            "{}",
            "rules: [{reply: x}]",
            "rules:\n  - when: \"(\"\n    reply: x",
            "rules: [{when: \"\", reply: x}]",
            "rules: [{when: \"\\\\w{9999}{9999}\", reply: x}]",
            "rules: [{when: x}]",
            "rules: [{when: x, tool_calls: []}]",
            "default: {}",
            "rules: [{when: x, reply: y, role: usr}]",
            "rules: [{when: x, reply: y, times: 0}]",
            "rules: [{when: x, tool_calls: [{tool: files}]}]",
            "default: {reply: x, when: y}",
            "default: {error: {status: 200}}",
            "default: {error: {status: 500}, reply: x}",
            "default: {reply: 5}",
        ],
        |text| problems("scripts/s.yaml", text, [])
    ));
    let named = |_: &str| problems("scripts/Bad-Name.yaml", "default: {reply: x}\n", []);
    insta::assert_snapshot!("file_names_are_names", report(["scripts/Bad-Name.yaml"], named));
}
