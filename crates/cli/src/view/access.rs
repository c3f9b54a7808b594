//! The commands, endpoints and variables of pinned definitions as text.

use polity_host::PinnedAccess;

/// The most lines of a script that are shown.
const SCRIPT_LINES_MAX: usize = 40;

/// The access of each definition, one field per line.
pub(crate) fn pinned_access(access: &[PinnedAccess]) -> String {
    let mut lines = Vec::new();
    for one in access {
        lines.push(format!("  {}", one.name));
        let mut field = |name: &str, value: &str| {
            lines.push(format!("    {name:10} {}", on_one_line(value)));
        };
        if !one.command.is_empty() {
            field(
                "command",
                &one.command.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "),
            );
        }
        if let Some(script) = &one.script {
            for line in script.lines().take(SCRIPT_LINES_MAX) {
                field("script", line);
            }
            let more = script.lines().count().saturating_sub(SCRIPT_LINES_MAX);
            if more > 0 {
                field("", &format!("({more} more lines, which --json shows)"));
            }
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

/// The text with its line ends and other control characters as escapes, so that a value cannot pass
/// for another line of the list.
fn on_one_line(text: &str) -> String {
    let escape = |c: char| {
        if c.is_control() { c.escape_default().to_string() } else { c.to_string() }
    };
    text.chars().map(escape).collect()
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
    fn argument_cannot_forge_a_line_of_the_list() {
        let command = ["sh", "-c", "x\n    command    true\r"].map(str::to_owned).into();
        let name = "coder".parse().unwrap();
        let access = PinnedAccess {
            name,
            command,
            script: None,
            working_directory: None,
            endpoint: None,
            variables: Vec::new(),
            tools: Vec::new(),
        };
        let list = pinned_access(&[access]);
        assert_eq!(list, "  coder\n    command    sh -c 'x\\n    command    true\\r'");
    }

    #[test]
    fn access_is_listed_line_by_line_with_quoted_words() {
        let access = PinnedAccess {
            name: "coder".parse().unwrap(),
            command: ["sh", "-c", "it's {input}", ""].map(str::to_owned).into(),
            script: Some("set -e\nmake\n".to_owned()),
            working_directory: Some("/srv".to_owned()),
            endpoint: Some("https://models.example/v1".to_owned()),
            variables: vec!["PATH=/opt".to_owned(), "API_KEY".to_owned()],
            tools: vec!["files/*".to_owned(), "web/get".to_owned()],
        };
        insta::assert_snapshot!(pinned_access(&[access]), @r"
          coder
            command    sh -c 'it'\''s {input}' ''
            script     set -e
            script     make
            folder     /srv
            endpoint   https://models.example/v1
            variable   PATH=/opt
            variable   API_KEY
            tools      files/*, web/get
        ");
    }
}
