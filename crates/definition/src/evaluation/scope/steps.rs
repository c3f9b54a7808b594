//! The steps of a plan that a model wrote.

/// The steps in a text: the items of a JSON array, which may be fenced; else the lines that begin
/// with `1.`, `1)`, `-` or `*`, without the mark; else the non-empty lines.
pub(crate) fn steps(text: &str) -> Vec<String> {
    if let Some(steps) = listed(text.trim()).or_else(|| listed(fenced(text)?)) {
        return steps;
    }
    let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
    let marked: Vec<String> = lines().filter_map(without_mark).map(str::to_owned).collect();
    if marked.is_empty() { lines().map(str::to_owned).collect() } else { marked }
}

/// The texts of a JSON array of texts.
fn listed(text: &str) -> Option<Vec<String>> {
    text.starts_with('[').then(|| serde_json::from_str(text).ok()).flatten()
}

/// The content of the first code fence, without its language.
fn fenced(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("```")?;
    let (inside, _) = rest.split_once("```")?;
    let inside = inside.trim_start_matches(|c: char| c.is_ascii_alphanumeric());
    Some(inside.trim())
}

/// A line without the mark that it begins with; none if it has no mark or nothing after it.
fn without_mark(line: &str) -> Option<&str> {
    let rest = line.strip_prefix(['-', '*']).or_else(|| {
        let rest = line.trim_start_matches(|c: char| c.is_ascii_digit());
        (rest.len() < line.len()).then(|| rest.strip_prefix(['.', ')'])).flatten()
    })?;
    // `-1 degree`, `**bold**` and `3.5 metres` are no items of a list.
    let step = rest.strip_prefix(char::is_whitespace)?.trim();
    (!step.is_empty()).then_some(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_steps_in_all_list_styles() {
        for (text, expected) in [
            (r#"["look", "buy"]"#, vec!["look", "buy"]),
            ("Here it is:\n```json\n[\"look\",\n \"buy\"]\n```\nGood luck!", vec!["look", "buy"]),
            ("```\n[\"look\"]\n```", vec!["look"]),
            ("[]", vec![]),
            ("My plan:\n1. look\n 2) buy\n10. pay\n", vec!["look", "buy", "pay"]),
            ("- look\n\n* buy\nThat is all.", vec!["look", "buy"]),
            ("look\n\n  buy  \n", vec!["look", "buy"]),
            ("-1 degree\n3.5 metres\n**bold**", vec!["-1 degree", "3.5 metres", "**bold**"]),
            ("[1, 2]", vec!["[1, 2]"]),
            ("1.\n2. buy", vec!["buy"]),
            ("", vec![]),
            ("  \n ", vec![]),
        ] {
            assert_eq!(steps(text), expected, "{text:?}");
        }
    }
}
