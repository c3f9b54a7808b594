//! Scripts of the scripted model.

use super::{check, home};
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
    for (text, expected) in [
        ("{}\n", "1:1: the script says nothing: give it \"rules\", a \"default\", or both"),
        ("rules: [{reply: x}]\n", "1:9: missing field \"rules[0].when\""),
        (
            "rules:\n  - when: \"(\"\n    reply: x\n",
            "2:11: rules[0].when: not a regular expression: unclosed group",
        ),
        (
            "rules: [{when: \"\", reply: x}]\n",
            "1:16: rules[0].when must not be empty; write \".*\" for anything",
        ),
        (
            "rules: [{when: \"\\\\w{9999}{9999}\", reply: x}]\n",
            "1:16: rules[0].when: not a regular expression: Compiled regex exceeds size limit of 10485760 bytes.",
        ),
        (
            "rules: [{when: x}]\n",
            "1:9: rules[0] must have a reply, tool_calls or an error; allowed: reply, tool_calls, \
             error",
        ),
        (
            "rules: [{when: x, tool_calls: []}]\n",
            "1:9: rules[0] must have a reply, tool_calls or an error; allowed: reply, tool_calls, \
             error",
        ),
        (
            "default: {}\n",
            "1:10: default must have a reply, tool_calls or an error; allowed: reply, tool_calls, \
             error",
        ),
        (
            "rules: [{when: x, reply: y, role: usr}]\n",
            "1:35: rules[0].role: unknown value \"usr\", did you mean \"user\"?",
        ),
        (
            "rules: [{when: x, reply: y, times: 0}]\n",
            "1:36: rules[0].times must be a whole number from 1 to 4294967295, found the number 0",
        ),
        (
            "rules: [{when: x, tool_calls: [{tool: files}]}]\n",
            "1:39: rules[0].tool_calls[0].tool: \"files\" is not a tool: write server/tool",
        ),
        (
            "default: {reply: x, when: y}\n",
            "1:21: unknown field \"when\" in default; allowed: reply, tool_calls, error, usage, \
             delay_ms",
        ),
        (
            "default: {error: {status: 200}}\n",
            "1:27: default.error.status must be from 400 to 599, found 200",
        ),
        (
            "default: {error: {status: 500}, reply: x}\n",
            "1:18: default fails, so it cannot also have a reply or tool_calls",
        ),
        (
            "default: {reply: 5}\n",
            "1:18: default.reply must be a text, found the number 5; put it in quotes",
        ),
    ] {
        check("scripts/s.yaml", text, &[expected]);
    }
    check(
        "scripts/Bad-Name.yaml",
        "default: {reply: x}\n",
        &["1:1: the file name: \"Bad-Name\" is not a valid name: a name starts with a lower-case \
           letter and holds only lower-case letters, digits and underscores (^[a-z][a-z0-9_]*$), \
           100 characters at most"],
    );
}
