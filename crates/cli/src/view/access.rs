//! The commands, endpoints and variables of pinned definitions as text.

use polity_host::PinnedAccess;

/// The access of each definition, one field per line.
pub(crate) fn pinned_access(access: &[PinnedAccess]) -> String {
    let mut lines = Vec::new();
    for one in access {
        lines.push(format!("  {}", one.name));
        let mut field = |name: &str, value: &str| lines.push(format!("    {name:10} {value}"));
        if !one.command.is_empty() {
            field(
                "command",
                &one.command.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "),
            );
        }
        if let Some(folder) = &one.working_directory {
            field("folder", folder);
        }
        if let Some(endpoint) = &one.endpoint {
            field("endpoint", endpoint);
        }
        for variable in &one.variables {
            field("variable", variable);
        }
        if !one.tools.is_empty() {
            field("tools", &one.tools.join(", "));
        }
    }
    lines.join("\n")
}

/// A word of a command, in quotes where a shell would need them.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,{}".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_is_listed_line_by_line_with_quoted_words() {
        let access = PinnedAccess {
            name: "coder".parse().unwrap(),
            command: ["sh", "-c", "it's {input}", ""].map(str::to_owned).into(),
            working_directory: Some("/srv".to_owned()),
            endpoint: Some("https://models.example/v1".to_owned()),
            variables: vec!["PATH=/opt".to_owned(), "API_KEY".to_owned()],
            tools: vec!["files/*".to_owned(), "web/get".to_owned()],
        };
        insta::assert_snapshot!(pinned_access(&[access]), @r"
          coder
            command    sh -c 'it'\''s {input}' ''
            folder     /srv
            endpoint   https://models.example/v1
            variable   PATH=/opt
            variable   API_KEY
            tools      files/*, web/get
        ");
    }
}
