//! Tests of expressions: the State fields read, the values, the error messages.

use proptest::prelude::*;
use serde_json::json;

use super::guard::{NESTING_MAX, OPERATORS_MAX};
use super::reader::FUNCTIONS;
use super::{ConditionExpression, ENVIRONMENT};
use crate::evaluation::scope::tests::with_scope;

fn parse(text: &str) -> ConditionExpression {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn refused(text: &str) -> String {
    text.parse::<ConditionExpression>().unwrap_err().to_string()
}

#[test]
fn every_field_of_the_state_can_be_read() {
    for (text, expected) in [
        ("input + last", json!("Write.Drip.")),
        ("size(messages)", json!(2)),
        ("messages[1].role + messages[1].content", json!("assistantDrip.")),
        ("messages.filter(m, m.role == 'user').map(m, m.content)", json!(["Write."])),
        ("next_action == null && routing_key == null", json!(true)),
        ("current_agent", json!("writer")),
        ("metadata.topic", json!("rain")),
        ("metadata.count + 1 == 4", json!(true)),
        ("metadata.deep", json!({"list": [1.5, null]})),
        ("has(metadata.colour) ? metadata.colour : 'grey'", json!("grey")),
        ("nodes.draft.output", json!("Drip.")),
        ("nodes['draft']['output']", json!("Drip.")),
        ("nodes.rating.json.stars >= 4", json!(true)),
        ("has(nodes.draft.json)", json!(false)),
        ("has(nodes.other) || has(nodes.rating.json)", json!(true)),
        ("nodes.map(name, size(nodes[name].output)).size()", json!(3)),
        ("steps(nodes.plan.output)", json!(["look", "buy"])),
        ("size(steps(nodes.plan.output)) >= 2", json!(true)),
        ("!accepts(last) && accepts('Accepted.')", json!(true)),
        ("last.lowerAscii().contains('drip')", json!(true)),
        ("last.matches('(?i)^drip')", json!(true)),
        ("{'a': [1, 2u, 3.5], true: null}", json!({"a": [1, 2, 3.5], "true": null})),
        ("type(input) == string", json!(true)),
    ] {
        let value = with_scope(|scope| parse(text).evaluate(scope));
        assert_eq!(value, Ok(expected), "{text}");
    }
}

#[test]
fn evaluation_errors_have_reasons() {
    for (text, expected) in [
        ("metadata.colour == 1", "there is no \"colour\"; ask has(...) first if it may be absent"),
        ("nodes.late.output", "there is no \"late\"; ask has(...) first if it may be absent"),
        ("input > 3", "\">\" does not work with string and int"),
        ("1 / 0", "divides by zero"),
        ("b'x'", "gives bytes, which have no JSON form"),
        ("0.0 / 0.0", "gives NaN, which is not a number that can be kept"),
        ("messages[9]", "reads beyond the end of a list"),
    ] {
        let error = with_scope(|scope| parse(text).evaluate(scope)).unwrap_err();
        assert_eq!(error.to_string(), format!("\"{text}\": {expected}"));
    }
    let error = with_scope(|scope| parse("last").holds(scope)).unwrap_err();
    assert_eq!(error.to_string(), "\"last\": gives a text, but true or false is needed");
    assert_eq!(with_scope(|scope| parse("size(last) > 3").holds(scope)), Ok(true));
}

#[test]
fn forty_doublings_fail_the_condition() {
    for (start, step, count) in [
        ("[input]", ".map(a, a + a)", 40),
        ("[[input]]", ".map(a, a + a)", 40),
        ("[input]", ".map(a, [a, a])", 40),
        ("[input]", ".map(a, {'x': a, 'y': a})", 40),
        ("[input]", ".map(a, a.replace('', a))", 9),
        ("[input]", ".map(a, a.split('').join(a))", 9),
        ("[input]", ".map(a, '%s%s'.format([a, a]))", 30),
        ("[input, last]", ".filter(a, true).map(a, a + a + a + a)", 20),
    ] {
        let text = format!("{start}{} == []", step.repeat(count));
        let error = with_scope(|scope| parse(&text).evaluate(scope)).unwrap_err().to_string();
        let expected = "makes values of more than 268435456 bytes, the most of one template or \
                        condition";
        let is_expected = error.contains(expected) || error.contains("nests values more than 64");
        assert!(is_expected, "{text}: {error}");
    }
    for (text, expected) in [
        ("[1, 2, 3].map(x, x * 2).filter(x, x > 2) == [4, 6]", true),
        ("['a', 'b'].map(x, x + '!').join(', ') == 'a!, b!'", true),
        ("'a-b-c'.replace('-', '+') + 'x' == 'a+b+cx'", true),
        ("'a-b-c'.replace('-', '+', 1) == 'a+b-c'", true),
        ("'a-b'.split('-').size() == 2 && ['a'].join() == 'a'", true),
        ("[1, 2].exists_one(x, x == 2) && {'a': [1]}.a[0] == 1", true),
    ] {
        assert_eq!(with_scope(|scope| parse(text).holds(scope)), Ok(expected), "{text}");
    }
}

#[test]
fn rejects_invalid_text_with_a_reason() {
    for (text, expected) in [
        ("size(last) >", "not an expression: unexpected end at character 13"),
        ("last = 'x'", "not an expression: cannot read \"=\", write == to compare, at character 6"),
        ("last\n== 'x' )", "not an expression: unexpected \")\" at line 2, character 8"),
        ("inptu == 'x'", "the State has no \"inptu\", did you mean \"input\"?"),
        (
            "weather == 'x'",
            "the State has no \"weather\"; it has input, last, messages, next_action, \
             current_agent, routing_key, metadata, nodes, error",
        ),
        ("sise(last) > 1", "there is no function \"sise\", did you mean \"size\"?"),
        ("last.contain('x')", "there is no function \"contain\", did you mean \"contains\"?"),
        ("has(last)", "not an expression: invalid argument to has() macro at character 5"),
        ("timestamp('2026-01-02T03:04:05Z') > 1", "there is no function \"timestamp\""),
        ("optional.of(1)", "there is no function \"of\""),
        ("[1].all(x, [1].all(y, [1].all(z, true)))", "has more than 2 loops inside each other"),
        ("Point{x: 1}", "there is no type \"Point\""),
        (" ", "must not be empty"),
    ] {
        let found = refused(text);
        assert!(found.starts_with(expected), "{text}: {found}");
    }
    // Loop variables are not fields.
    parse("messages.exists(m, m.role == 'tool') && [1].all(nodes, nodes == 1)");
    assert_eq!(refused("[1].all(x, x > 0) && x"), refused("x"));
}

#[test]
fn every_listed_function_exists() {
    for function in FUNCTIONS {
        let text = format!("null.{function}()");
        let program = cel::parser::Parser::new().parse(&text).unwrap();
        let context = cel::Context::with_env(std::sync::Arc::clone(&ENVIRONMENT));
        let error = cel::Value::resolve(&program, &context).unwrap_err();
        let text = format!("{function}()");
        let program = cel::parser::Parser::new().parse(&text).unwrap();
        let other = cel::Value::resolve(&program, &context).unwrap_err();
        let is_missing = |error| matches!(error, cel::ExecutionError::UndeclaredReference(_));
        assert!(!is_missing(error) || !is_missing(other), "{function}");
    }
}

#[test]
fn expressions_list_the_fields_they_read() {
    let expression = parse("routing_key == 'a' && nodes.x.output == nodes['y'].output");
    assert!(expression.mentions("routing_key") && expression.mentions("nodes"));
    assert!(!expression.mentions("messages") && !expression.mentions("banana"));
    assert_eq!(expression.nodes_named().collect::<Vec<_>>(), ["x", "y"]);
    assert_eq!(parse("nodes[routing_key].output == ''").nodes_named().count(), 0);
    assert_eq!(parse("'publish'"), parse("'publish'"));
    assert_eq!(serde_json::to_value(parse("last == ''")).unwrap(), json!("last == ''"));
}

/// Runs a test on the smallest stack of any thread of the program.
fn on_a_small_stack(test: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(1024 * 1024).spawn(test).unwrap();
    thread.join().unwrap();
}

#[test]
fn rejects_deep_and_long_expressions() {
    on_a_small_stack(|| {
        for (open, inner, close) in
            [("(", "1", ")"), ("[", "1", "]"), ("{1: ", "1", "}"), ("size([", "1", "])")]
        {
            let nested =
                |depth: usize| format!("{}{inner}{}", open.repeat(depth), close.repeat(depth));
            let brackets = open.matches(['(', '[', '{']).count();
            parse(&nested(NESTING_MAX / brackets));
            assert!(refused(&nested(NESTING_MAX + 1)).contains("brackets inside each other"));
        }
        for (part, count) in [
            ("1 + ", OPERATORS_MAX),
            ("!", OPERATORS_MAX),
            ("-", OPERATORS_MAX),
            ("true && ", OPERATORS_MAX / 2),
            ("true ? 1 : ", OPERATORS_MAX),
            ("1 in ", OPERATORS_MAX),
            ("1 < ", OPERATORS_MAX),
        ] {
            let end = if part == "!" { "true" } else { "1" };
            let long = |count: usize| format!("{}{end}", part.repeat(count));
            let expression = long(count).parse::<ConditionExpression>();
            if let Ok(expression) = expression {
                let _ = with_scope(|scope| expression.evaluate(scope));
            }
            let found = refused(&long(count + 1));
            assert!(found.contains("operators and brackets"), "{part}: {found}");
        }
        let members = format!("metadata{}", ".a".repeat(OPERATORS_MAX));
        assert!(with_scope(|scope| parse(&members).evaluate(scope)).is_err());
        let items = format!("metadata{}", "[0]".repeat(OPERATORS_MAX));
        assert!(with_scope(|scope| parse(&items).evaluate(scope)).is_err());
        // Brackets and dots in string literals do not count.
        parse(&format!("last == '{}'", "(.".repeat(500)));
        parse(&format!("last == r\"{}\\\"", "(.".repeat(500)));
        refused(&format!("last == '\n{}'", "(".repeat(500)));
    });
}

proptest! {
    #[test]
    fn any_text_is_an_expression_or_is_refused(
        text in "\\PC{0,60}|[a-z0-9()\\[\\]{}.,:?!<>=&|+*/%'\"\\\\ \\n-]{0,60}",
    ) {
        if let Ok(expression) = text.parse::<ConditionExpression>() {
            prop_assert_eq!(expression.as_str(), text.as_str());
            let _ = with_scope(|scope| expression.evaluate(scope));
        }
    }

    /// Keywords and operators in any order.
    #[test]
    fn any_words_are_an_expression_or_are_refused(
        words in prop::collection::vec(
            prop::sample::select(vec![
                "input", "nodes", ".x", ".output", "(", ")", "[", "]", "{", "}", "1", "2u", "1.5",
                "'a'", "b'a'", "r'\\'", "==", "&&", "||", "!", "-", "?", ":", ",", "in", "has(",
                ".map(x, ", ".all(x, ", "size(", "steps(", "null", "true", "messages", "string(",
                ".format([", "last", ".substring(", "9223372036854775807", "%", "int(", "uint(",
            ]),
            0..14,
        ),
    ) {
        if let Ok(expression) = words.concat().parse::<ConditionExpression>() {
            let _ = with_scope(|scope| expression.evaluate(scope));
        }
    }
}
