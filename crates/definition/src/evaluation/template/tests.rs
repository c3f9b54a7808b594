//! Tests of templates: the State fields read, the results, the error messages.

use proptest::prelude::*;
use serde_json::json;

use super::{Template, ValueTemplate};
use crate::evaluation::scope::tests::with_scope;

fn parse(text: &str) -> Template {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn refused(text: &str) -> String {
    text.parse::<Template>().unwrap_err().to_string()
}

#[test]
fn every_field_of_the_state_can_be_read() {
    for (text, expected) in [
        ("no braces", "no braces"),
        ("{{ input }} {{ last }}", "Write. Drip."),
        ("{{ messages | length }}: {{ messages[1].content }}", "2: Drip."),
        ("{% for m in messages %}{{ m.role }} {% endfor %}", "user assistant "),
        ("{{ current_agent }}", "writer"),
        ("{{ metadata.topic }} {{ metadata.count + 1 }}", "rain 4"),
        ("{{ metadata.colour | default('grey') }}", "grey"),
        ("{{ routing_key | default('none yet') }}", "none yet"),
        ("{% if nodes.late is defined %}late{% else %}not yet{% endif %}", "not yet"),
        ("{{ nodes.draft.output }}", "Drip."),
        ("{{ nodes['draft'].output }}", "Drip."),
        ("{{ nodes.draft.output[:2] }}", "Dr"),
        ("{{ nodes.rating.json.stars }}", "4"),
        ("{{ nodes.plan.output | steps | length }}", "2"),
        ("{{ steps(nodes.plan.output)[1] }}", "buy"),
        ("{% if not accepts(last) and accepts('Accepted.') %}yes{% endif %}", "yes"),
        ("{% filter upper %}{{ last }}{% endfilter %}", "DRIP."),
        ("{% filter replace(last, input) %}Drip.{% endfilter %}", "Write."),
        ("{{ '<b>' }}{# said to nobody #}", "<b>"),
        ("{{ metadata.deep.list | tojson }}", "[1.5, null]"),
    ] {
        let rendered = with_scope(|scope| parse(text).render(scope));
        assert_eq!(rendered.as_deref(), Ok(expected), "{text}");
    }
}

#[test]
fn undefined_values_are_errors() {
    for (text, expected) in [
        ("{{ metadata.colour }}", "reads something that is not there"),
        ("{{ nodes.late.output }}", "reads something that is not there"),
        ("{{ routing_key }}", "reads something that is not there"),
        ("{{ last + 1 }}", "invalid operation"),
        ("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "takes"),
        (
            "{% for i in range(99999) %}{{ input * 99 }}{% endfor %}",
            "gives more than 16777216 bytes, the most a template may give",
        ),
    ] {
        let error = with_scope(|scope| parse(text).render(scope)).unwrap_err().to_string();
        assert!(error.contains(&format!("\": {expected}")), "{error}");
    }
}

/// The error of a template that makes too much.
const TOO_MUCH: &str = "makes values of more than 268435456 bytes, the most of one template";

#[test]
fn forty_doublings_fail_the_template() {
    let doubled = |step: &str, count: usize| {
        format!("{{% set x = input %}}{}{{{{ x }}}}", step.repeat(count))
    };
    let raw = format!(
        "{{% set x %}}{{% for i in range(99999) %}}{}{{% endfor %}}{{% endset %}}{{{{ x }}}}",
        "y".repeat(3500)
    );
    let in_a_loop = "{% set n = namespace(x=input) %}{% for i in range(40) %}\
                     {% set n.x = n.x ~ n.x %}{% endfor %}{{ n.x }}";
    for text in [
        doubled("{% set x = x ~ x %}", 40),
        doubled("{% set x = x + x %}", 40),
        doubled("{% set x = [x, x] %}", 40),
        doubled("{% set x = {'a': x, 'b': x} %}", 40),
        doubled("{% set x = (x, x) %}", 40),
        doubled("{% set x = [x] * 9999 %}", 9),
        doubled("{% set x %}{{ x }}{{ x }}{% endset %}", 40),
        doubled("{% set x = x | replace('', x) %}", 9),
        doubled("{% set x = x | list | join(x) %}", 9),
        doubled("{% set x = [x] | map('replace', '', x) | first %}", 9),
        doubled("{% filter replace('', input * 9999) %}", 4) + &"{% endfilter %}".repeat(4),
        doubled("{% set x = '%s%s' | format(x, x) %}", 40),
        in_a_loop.to_owned(),
        raw,
        "{{ '%999999999d' | format(1) }}".to_owned(),
        "{{ '%*d' | format(999999999, 1) }}".to_owned(),
        "{{ input | indent(999999999, true) }}".to_owned(),
        "{{ [1] | batch(999999999, 0) | list }}".to_owned(),
        "{% set x = input * 9999 %}{% for i in range(9999) %}{% set y = x[:] %}{% endfor %}"
            .to_owned(),
    ] {
        let error = with_scope(|scope| parse(&text).render(scope)).unwrap_err().to_string();
        assert!(error.contains(TOO_MUCH), "{text}: {error}");
    }
    let value = ValueTemplate::compile("{{ (input * 9999) | replace('', input * 9999) }}");
    let error = with_scope(|scope| value.unwrap().unwrap().evaluate(scope)).unwrap_err();
    assert!(error.to_string().contains(TOO_MUCH), "{error}");
}

#[test]
fn values_without_end_fail_the_template() {
    let deep = "{% set n = namespace(x=[]) %}{% for i in range(9999) %}{% set n.x = [n.x] %}\
                {% endfor %}{{ n.x }}";
    for (text, expected) in [
        (deep, "nests values more than 64 levels deep"),
        ("{% set x = input * 9999 %}{{ x * 99999 }}", "repeated string is too large"),
        ("{% set n = namespace() %}{% set n.a = n %}{{ n }}", "cannot be stored in a namespace"),
        ("{% set n = namespace() %}{% set n.a = [n] %}{{ n }}", "cannot be stored in a namespace"),
    ] {
        let error = with_scope(|scope| parse(text).render(scope)).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
    for text in [
        "{{ 'x' * 99999999 }}",
        "{{ 99999 * 999 * 'x' }}",
        "{% if ['x'] * 99999999 %}{% endif %}",
        "{% for i in [] %}{{ input | default('x' * 99999999) }}{% endfor %}",
    ] {
        assert_eq!(
            refused(text),
            "has constants of more than 1048576 bytes, the most of one template",
            "{text}"
        );
        assert!(ValueTemplate::compile(text).is_none_or(|template| template.is_err()));
    }
}

#[test]
fn error_counts_the_items_of_a_list_that_is_too_long() {
    for (text, items) in [
        ("{{ range(100000) | list }}", None),
        ("{{ range(100001) }}", Some(100_001)),
        ("{{ range(9, 1000000, 3) }}", Some(333_331)),
        ("{{ range(1000000, 0, -4) }}", Some(250_000)),
        ("{{ range(-9223372036854775808, 9223372036854775807) }}", Some(usize::MAX >> 1)),
        ("{{ (range(99999) | list) * 5 }}", Some(499_995)),
        ("{{ [range(99999) | list] * 9 }}", Some(9)),
        ("{{ (range(99999) | list)[0].x.y }}", Some(0)),
    ] {
        let template = ValueTemplate::compile(text).unwrap().unwrap();
        let found = with_scope(|scope| template.evaluate(scope));
        assert_eq!(found.err().map(|error| error.items()), items, "{text}");
    }
    let template = ValueTemplate::compile("{{ range(9, 0, 0) }}").unwrap().unwrap();
    let error = with_scope(|scope| template.evaluate(scope)).unwrap_err().to_string();
    assert!(error.contains("step of 0"), "{error}");
}

#[test]
fn large_texts_pass_through_templates() {
    // Operations on all of a long text, as a workflow has them.
    let text = "{% set n = namespace(all='') %}{% for i in range(500) %}\
                {% set n.all = n.all ~ input | upper %}{% endfor %}\
                {{ (n.all ~ last) | replace('W', 'V') | length }} {{ n.all.split is defined }}";
    let rendered = with_scope(|scope| parse(text).render(scope));
    assert_eq!(rendered.as_deref(), Ok("3005 False"));
    let long = "{% set x = input * 99999 %}{{ x | lines | length }} {{ x | tojson | length }}";
    let rendered = with_scope(|scope| parse(long).render(scope));
    assert_eq!(rendered.as_deref(), Ok("1 599996"));
}

#[test]
fn rejects_invalid_text_with_a_reason() {
    for (text, expected) in [
        ("{{ input", "not a template: unexpected end of input, expected end of variable block"),
        ("a\n{% if %}", "not a template: "),
        ("{% include 'x' %}", "not a template: "),
        ("{{ inptu }}", "the State has no \"inptu\", did you mean \"input\"?"),
        ("{{ now() }}", "the State has no \"now\"; it has input, "),
        ("{{ last | uper }}", "there is no filter \"uper\""),
        ("{{ debug() }}", "the State has no \"debug\""),
        (" ", "must not be empty"),
    ] {
        let found = refused(text);
        assert!(found.starts_with(expected), "{text}: {found}");
    }
    let found = refused("{{ input }}\n{{ 1 + }}");
    assert!(found.ends_with("at line 2, character 8"), "{found}");
}

#[test]
fn templates_list_the_nodes_they_read() {
    let named = |text: &str| parse(text).nodes_named().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(named("{{ nodes.a.output }}{% if nodes.b is defined %}{% endif %}"), ["a", "b"]);
    assert_eq!(named("{{ nodes.a.output[:80] }} see nodes.txt"), ["a"]);
    assert_eq!(named("{% for nodes in messages %}{{ nodes.role }}{% endfor %}"), [""; 0]);
    assert_eq!(named("{# nodes.c[0] #}{{ 'nodes.d' }}{{ messages[0].nodes.e }}"), [""; 0]);
}

#[test]
fn one_expression_keeps_its_type() {
    for (text, expected) in [
        ("{{ metadata.count }}", json!(3)),
        ("{{ metadata.deep }}", json!({"list": [1.5, null]})),
        ("{{- last -}}", json!("Drip.")),
        ("{{ nodes.plan.output | steps }}\n", json!(["look", "buy"])),
        ("{{ 1 > 2 }}", json!(false)),
    ] {
        let value = ValueTemplate::compile(text)
            .unwrap()
            .map(|template| with_scope(|scope| template.evaluate(scope)).unwrap());
        assert_eq!(value, Ok(expected), "{text}");
    }
    for text in ["{{ input }} {{ last }}", "{{ input }}!", "{{ input", "x"] {
        assert!(ValueTemplate::compile(text).is_none(), "{text}");
    }
    let unknown = ValueTemplate::compile("{{ inptu }}").unwrap().unwrap();
    assert!(unknown.reading().check_names(&[]).is_err());
    assert!(unknown.reading().check_names(&["inptu"]).is_ok());
    let absent = ValueTemplate::compile("{{ metadata.colour }}").unwrap().unwrap();
    assert!(with_scope(|scope| absent.evaluate(scope)).is_err());
}

#[test]
fn deep_templates_do_not_overflow_the_stack() {
    let test = || {
        for (open, inner, close) in [
            ("not ", "1", ""),
            ("(", "1", ")"),
            ("[", "1", "]"),
            ("-", "1", ""),
            ("1+", "1", ""),
            ("1 if 1 else ", "1", ""),
            ("", "1", "|abs"),
            ("", "input", ".a"),
            ("1 and ", "1", ""),
            ("1~", "1", ""),
        ] {
            // Templates of ordinary depth are accepted; deeper ones may be refused, with a reason.
            for depth in [20, 100, 4000 / (open.len() + close.len())] {
                let text =
                    format!("{{{{ {}{inner}{} }}}}", open.repeat(depth), close.repeat(depth));
                match text.parse::<Template>() {
                    Ok(template) => _ = with_scope(|scope| template.render(scope)),
                    Err(error) => {
                        assert!(depth > 20, "{text}: {error}");
                        assert!(error.to_string().starts_with("not a template: "), "{error}");
                    }
                }
            }
        }
        let nested =
            |depth| format!("{}{}", "{% if 1 %}".repeat(depth), "{% endif %}".repeat(depth));
        parse(&nested(20));
        assert!(refused(&nested(180)).starts_with("not a template: "));
    };
    let thread = std::thread::Builder::new().stack_size(2 * 1024 * 1024).spawn(test).unwrap();
    thread.join().unwrap();
}

proptest! {
    #[test]
    fn any_text_parses_or_is_rejected(
        text in "\\PC{0,60}|([{}%#]|[a-z0-9()\\[\\].,:<>=+*/'\"| \\n-]|\\{\\{|\\}\\}){0,60}",
    ) {
        match text.parse::<Template>() {
            Ok(template) => {
                prop_assert_eq!(template.as_str(), text.as_str());
                let _ = with_scope(|scope| template.render(scope));
            }
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
        let _ = ValueTemplate::compile(&text);
    }

    #[test]
    fn any_words_parse_or_are_rejected(
        words in prop::collection::vec(
            prop::sample::select(vec![
                "{{", "}}", "{%", "%}", "{#", "#}", " input ", "nodes", ".x", "[", "]", "(", ")",
                ":", "1", "'a'", "|", "steps", "upper", " if ", " else ", "endif", " for ", " in ",
                "endfor", " set ", "=", " is ", "defined", "range(9)", "messages", "-", "*", "**",
                "//", "%", "~", "batch(0)", "slice(0)", "round", "indent(9)", "set", "filter ",
            ]),
            0..14,
        ),
    ) {
        let text = words.concat();
        if let Ok(template) = text.parse::<Template>() {
            let _ = with_scope(|scope| template.render(scope));
        }
        let _ = format!("{{{{ {text} }}}}").parse::<Template>();
    }
}
