//! Tests of all output formats, split at every byte.

use polity_definition::JsonPick;
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn rules(json: serde_json::Value) -> OutputParser {
    serde_json::from_value(json).unwrap()
}

/// The shown text and the result for an output in two chunks.
fn parsed_at(rules: &OutputParser, output: &[u8], cut: usize) -> (String, ParsedOutput) {
    let mut parser = AnswerParser::new(rules);
    let mut shown = parser.push(&output[..cut]);
    shown += &parser.push(&output[cut..]);
    let parsed = parser.finish();
    shown += &parsed.remaining_text;
    (shown, parsed)
}

/// The same for all splits, which must agree.
#[track_caller]
fn parsed(rules: &OutputParser, output: &str) -> (String, ParsedOutput) {
    let unsplit = parsed_at(rules, output.as_bytes(), 0);
    for cut in 1..=output.len() {
        let (shown, parsed) = parsed_at(rules, output.as_bytes(), cut);
        assert_eq!(shown, unsplit.0, "{cut}");
        let remaining_text = unsplit.1.remaining_text.clone();
        assert_eq!(ParsedOutput { remaining_text, ..parsed }, unsplit.1, "{cut}");
    }
    unsplit
}

#[test]
fn plain_text_is_the_answer() {
    let text = OutputParser::new(OutputFormat::Text);
    for (output, expected) in [
        ("Hello.\n", Some("Hello.")),
        ("\u{feff}\r\n\n  gr\u{fc}n\r\nline\r\n\n", Some("  gr\u{fc}n\r\nline")),
        ("\x1b[31mred\x1b[0m", Some("\x1b[31mred\x1b[0m")),
        (" \n\n", None),
        ("", None),
    ] {
        assert_eq!(parsed(&text, output).1.answer.as_deref(), expected, "{output:?}");
    }
    let plain = OutputParser { strip_ansi: true, ..text };
    let (shown, found) = parsed(&plain, "\x1b[31mred\x1b[0m\n");
    assert_eq!((shown.as_str(), found.answer.as_deref()), ("red\n", Some("red")));
}

#[test]
fn answer_over_the_limit_is_cut() {
    let mut parser = AnswerParser::new(&OutputParser::new(OutputFormat::Text));
    let piece = "\u{e4}".repeat(1024 * 1024);
    for _ in 0..9 {
        assert_eq!(parser.push(piece.as_bytes()).len(), piece.len());
    }
    let parsed = parser.finish();
    assert!(parsed.answer_is_cut);
    assert_eq!(parsed.answer.unwrap().len(), ANSWER_BYTES_MAX);
}

#[test]
fn answer_may_be_in_a_dropped_line() {
    let rules = rules(json!({"format": "jsonl", "answer": "/a"}));
    let long = format!("{{\"a\": \"{}\"}}\n", "x".repeat(ANSWER_BYTES_MAX));
    let (_, found) = parsed_at(&rules, format!("{{\"a\": \"first\"}}\n{long}").as_bytes(), 30);
    assert_eq!((found.answer.as_deref(), found.answer_is_cut), (Some("first"), true));
}

#[test]
fn finds_a_document_among_other_lines() {
    let rules = rules(json!({"format": "json", "answer": "/result", "error": "/error/message"}));
    for (output, answer) in [
        (r#"{"result": "yes"}"#, Some("yes")),
        ("\u{feff}{\"result\": \"yes\"}\r\n", Some("yes")),
        ("Loaded keys.\n{\n  \"result\": \"yes\"\n}\nbye {\n", Some("yes")),
        (r#"[{"result": "no"}, {"type": "x"}, {"result": "yes"}]"#, Some("yes")),
        ("[warning] no {\n{\"result\": \"yes\"}", Some("yes")),
        (r#"{"result": ["a", {"text": "b"}, {"image": 1}]}"#, Some("ab")),
        (r#"{"result": {"a": 1}}"#, Some(r#"{"a":1}"#)),
        (r#"{"result": null}"#, None),
        (r#"{"result": "ye"#, None),
        ("nothing", None),
    ] {
        assert_eq!(parsed(&rules, output).1.answer.as_deref(), answer, "{output}");
    }
    for (output, error) in [
        (r#"{"error": {"message": "bad key"}}"#, Some("bad key")),
        (r#"{"error": null}"#, None),
        (r#"{"error": {"message": ""}}"#, None),
        (r#"{"error": {"message": false}}"#, None),
    ] {
        assert_eq!(parsed(&rules, output).1.error.as_deref(), error, "{output}");
    }
}

#[test]
fn later_lines_replace_earlier_values() {
    let rules = rules(json!({
        "format": "jsonl", "answer": "/text", "session_id": "/session", "status": "/status",
        "input_tokens": "/tokens/in", "output_tokens": "/tokens/out", "cost": "/usd"
    }));
    let output = "{\"text\": \"one\", \"session\": \"s1\"}\r\nnot JSON\n\n5\n\
                  {\"text\": \"two\", \"tokens\": {\"in\": 12, \"out\": 7.0}, \"usd\": 0.25}\n\
                  {\"status\": true, \"usd\": -1}";
    let (shown, found) = parsed(&rules, output);
    assert_eq!(found.answer.as_deref(), Some("two"));
    assert_eq!(found.session_id.as_deref(), Some("s1"));
    assert_eq!(found.status.as_deref(), Some("true"));
    assert_eq!((found.input_tokens, found.output_tokens), (Some(12), Some(7)));
    assert_eq!((found.cost_usd, found.documents), (Some(0.25), 3));
    assert_eq!(found.usage().total_tokens(), 19);
    assert!(
        shown.starts_with("{\"text\": \"one\", \"session\": \"s1\"}\nnot JSON\n5\n"),
        "{shown}"
    );
}

#[test]
fn shows_the_text_of_events() {
    let mut rules = rules(json!({
        "format": "stream-json",
        "answer": {"at": "/text", "when": {"/type": "message", "/final": true}},
        "shown": {"at": "/text", "when": {"/type": "message"}},
        "terminal": {"at": "/type", "when": {"/type": "done"}}
    }));
    let output = "starting\n{\"type\": \"message\", \"text\": \"I look.\"}\n\
                  {\"type\": \"tool\", \"text\": \"ls\"}\n\
                  {\"type\": \"message\", \"text\": \"Done.\", \"final\": true}\n";
    let (shown, found) = parsed(&rules, output);
    assert_eq!(shown, "starting\nI look.\nDone.\n");
    assert_eq!((found.answer.as_deref(), found.terminal_event_seen), (Some("Done."), false));
    assert!(parsed(&rules, &format!("{output}{{\"type\": \"done\"}}")).1.terminal_event_seen);

    rules.join_answers = true;
    rules.shown = None;
    let at: JsonPick = serde_json::from_value(json!("/d")).unwrap();
    rules.answer = Some(at);
    let (shown, found) = parsed(&rules, "{\"d\": \"Hello \"}\n{\"d\": \"you.\"}\n");
    assert_eq!((shown.as_str(), found.answer.as_deref()), ("Hello you.", Some("Hello you.")));
}

#[test]
fn drops_only_the_line_that_is_too_long() {
    let rules = rules(json!({"format": "stream-json", "answer": "/a"}));
    let mut parser = AnswerParser::new(&rules);
    let piece = vec![b'x'; ANSWER_BYTES_MAX / 2];
    parser.push(b"{\"a\": \"");
    for _ in 0..3 {
        parser.push(&piece);
    }
    parser.push(b"\"}\n{\"a\": \"short\"}\n");
    let found = parser.finish();
    assert_eq!((found.answer.as_deref(), found.lines_dropped), (Some("short"), 1));
}

proptest! {
    /// Any output can be parsed, and chunk boundaries do not matter.
    #[test]
    fn parses_any_output(
        format in prop::sample::select(vec!["text", "json", "jsonl", "stream-json"]),
        strip_ansi in any::<bool>(),
        output in prop::collection::vec(
            prop_oneof![
                any::<u8>(),
                prop::sample::select(b"{}[]\":,\n\r \x1b[;mae1".to_vec()),
            ],
            0..200,
        ),
        cut in 0_usize..200,
    ) {
        let answer = if format == "text" { json!(null) } else { json!("/a") };
        let rules = rules(json!({"format": format, "strip_ansi": strip_ansi, "answer": answer}));
        let cut = cut.min(output.len());
        let (shown, parsed) = parsed_at(&rules, &output, cut);
        let (unsplit_shown, unsplit) = parsed_at(&rules, &output, 0);
        prop_assert_eq!(shown, unsplit_shown);
        prop_assert_eq!(parsed.answer, unsplit.answer);
    }
}
