//! The State fields that a template reads.

use std::collections::HashSet;

use crate::evaluation::scope::{NODE_OUTPUT, ScopeField, ScopeReads, check_node_field};

/// The functions of templates.
const FUNCTIONS: [&str; 5] = ["accepts", "dict", "namespace", "range", "steps"];

/// Returns the State fields that a template reads, from its undeclared variables and their members,
/// such as `nodes.draft.output`.
pub(super) fn read(text: &str, names: &HashSet<String>) -> Result<ScopeReads, String> {
    let mut reading = ScopeReads::default();
    let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
    // Reports one of several errors, always the same one.
    names.sort_unstable();
    for name in names {
        let mut path = name.split('.');
        let Some(first) = path.next().filter(|first| !FUNCTIONS.contains(first)) else { continue };
        if reading.read(first) == Some(ScopeField::Nodes) {
            let (node, field) = (path.next(), path.next());
            match node {
                Some(node) => _ = reading.nodes.insert(node.to_owned()),
                None => reading.any_node = true,
            }
            if let (Some(node), Some(field)) = (node, field) {
                check_node_field(node, field)?;
            }
            reading.json |= field != Some(NODE_OUTPUT);
        }
    }
    // The list of names misses sliced variables, such as `last[:80]`.
    if text.contains('[') || text.contains("filter") {
        read_pieces(text, &mut reading);
    }
    Ok(reading)
}

/// Notes everything between the braces that looks like a field or a node.
fn read_pieces(text: &str, reading: &mut ScopeReads) {
    for code in codes(text) {
        for field in ScopeField::ALL {
            for (place, name) in code.match_indices(field.as_str()) {
                let before = code[..place].chars().next_back();
                if before.is_some_and(|c| is_word(c) || matches!(c, '.' | '"' | '\'')) {
                    continue;
                }
                reading.fields.insert(field);
                if field == ScopeField::Nodes {
                    (reading.any_node, reading.json) = (true, true);
                    let after = code[place + name.len()..].strip_prefix('.').unwrap_or_default();
                    let end = after.find(|c| !is_word(c)).unwrap_or(after.len());
                    if end > 0 {
                        reading.nodes.insert(after[..end].to_owned());
                    }
                }
            }
        }
    }
}

/// The parts of a template that are code.
pub(super) fn codes(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        loop {
            let start = rest.find('{')?;
            rest = &rest[start + 1..];
            let end = match rest.chars().next()? {
                '{' => "}}",
                '%' => "%}",
                '#' => {
                    rest = rest.find("#}").map_or("", |end| &rest[end..]);
                    continue;
                }
                _ => continue,
            };
            let length = rest.find(end).unwrap_or(rest.len());
            let code = &rest[..length];
            rest = &rest[length..];
            return Some(code);
        }
    })
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}
