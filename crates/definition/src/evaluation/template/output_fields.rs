//! Fields of outputs: `nodes.NAME.output.FIELD` is short for `nodes.NAME.json.FIELD`.
//!
//! An output is a text, which has no fields, so nothing else can be meant.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::{Captures, Regex};

static OUTPUT_FIELD: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"\b(nodes\.[a-z][a-z0-9_]*)\.output(\.[A-Za-z_]|\[[0-9'\x22])").ok()
});

/// The template with the fields of outputs written out.
pub(super) fn with_json_fields(text: &str) -> Cow<'_, str> {
    let Some(pattern) = &*OUTPUT_FIELD else { return Cow::Borrowed(text) };
    pattern.replace_all(text, |found: &Captures<'_>| {
        let whole = found.get(0).map(|whole| (whole.start(), whole.as_str()));
        match whole {
            Some((start, _)) if is_code(&text[..start]) => {
                format!("{}.json{}", &found[1], &found[2])
            }
            Some((_, whole)) => whole.to_owned(),
            None => String::new(),
        }
    })
}

/// True if code starts in this text and does not end.
fn is_code(before: &str) -> bool {
    let last = |marks: [&str; 2]| marks.into_iter().filter_map(|mark| before.rfind(mark)).max();
    last(["{{", "{%"]) > last(["}}", "%}"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_outputs_are_read_from_their_json() {
        for (text, expected) in [
            ("{{ nodes.plan.output.items }}", "{{ nodes.plan.json.items }}"),
            ("{{ nodes.plan.output[0] }}", "{{ nodes.plan.json[0] }}"),
            ("{{ nodes.plan.output }}", "{{ nodes.plan.output }}"),
            ("{{ nodes.plan.output[:80] }}", "{{ nodes.plan.output[:80] }}"),
            ("see nodes.plan.output.items", "see nodes.plan.output.items"),
            ("{{ last }} nodes.a.output.b", "{{ last }} nodes.a.output.b"),
            ("{% if nodes.a.output.ok %}x{% endif %}", "{% if nodes.a.json.ok %}x{% endif %}"),
        ] {
            assert_eq!(with_json_fields(text), expected);
        }
    }
}
