//! Validated types for the values of fields, with their error messages and JSON Schemas.

pub(crate) mod command_line;
pub(crate) mod suggest;

use std::fmt;

use polity_model::text_type;
use polity_model::value::excerpt;

/// The longest template or expression, in bytes.
pub const TEMPLATE_BYTES_MAX: usize = 4096;

/// Implements a type that is compiled from a text and identified by it.
macro_rules! compiled_text {
    ($name:ident, $schema:tt) => {
        impl $name {
            /// The value as text.
            pub fn as_str(&self) -> &str {
                &self.0.text
            }
        }

        impl std::str::FromStr for $name {
            type Err = polity_model::value::InvalidValue;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match compile(text) {
                    Ok(compiled) => Ok(Self(std::sync::Arc::new(compiled))),
                    Err(message) => Err(polity_model::value::InvalidValue::new(message)),
                }
            }
        }

        impl PartialEq for $name {
            fn eq(&self, other: &Self) -> bool {
                self.as_str() == other.as_str()
            }
        }

        impl Eq for $name {}

        polity_model::text_form!($name, $schema);
    };
}

pub(crate) use compiled_text;

/// Implements reading of a text over the State from a file. The names that it reads and the State
/// does not have are checked with the file, which knows the items of its maps.
macro_rules! scoped_text {
    ($name:ident) => {
        impl $name {
            pub(crate) fn compile(text: &str) -> Result<Self, String> {
                compile_any(text).map(|compiled| Self(std::sync::Arc::new(compiled)))
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <String as serde::Deserialize>::deserialize(deserializer)?;
                Self::compile(&text).map_err(serde::de::Error::custom)
            }
        }
    };
}

pub(crate) use scoped_text;

text_type!(
    /// A text that is not empty.
    Text,
    check_text,
    { "type": "string", "pattern": "\\S" }
);
text_type!(
    /// A well-formed regular expression, compiled at its use.
    Pattern,
    check_pattern,
    { "type": "string", "format": "regex", "minLength": 1 }
);
text_type!(
    /// An address that starts with `http://` or `https://`.
    HttpUrl,
    check_literal_url,
    { "type": "string", "format": "uri", "pattern": "^https?://[^\\s/]" }
);
text_type!(
    /// An address that starts with `http://` or `https://`. `${NAME}` is replaced by an environment
    /// variable, which may hold the whole address.
    UrlTemplate,
    check_url_template,
    { "type": "string", "pattern": "^(https?://[^\\s/]|\\$\\{)\\S*$" }
);
text_type!(
    /// The name of an environment variable.
    EnvName,
    check_env_name,
    { "type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$" }
);
text_type!(
    /// A JSON Pointer such as `/result/text`; the empty one is the whole document.
    JsonPointer,
    check_json_pointer,
    { "type": "string", "pattern": "^(/.*)?$" }
);

fn check_text(text: &str) -> Result<(), String> {
    if text.trim().is_empty() { Err("must not be empty".to_owned()) } else { Ok(()) }
}

/// The rules of templates and expressions alike.
pub(super) fn check_template(text: &str) -> Result<(), String> {
    check_text(text)?;
    if text.len() > TEMPLATE_BYTES_MAX {
        return Err(format!("has {} bytes, {TEMPLATE_BYTES_MAX} are the most", text.len()));
    }
    Ok(())
}

fn check_pattern(text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Err("must not be empty; write \".*\" for anything".to_owned());
    }
    match regex_syntax::parse(text) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("not a regular expression: {}", regex_reason(&error))),
    }
}

/// The reason in an error of a regular expression; the rest draws the pattern.
pub(crate) fn regex_reason(error: &dyn fmt::Display) -> String {
    let text = error.to_string();
    let last = text.lines().last().unwrap_or_default();
    last.trim_start_matches("error: ").to_owned()
}

fn check_http_url(text: &str) -> Result<(), String> {
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    match rest {
        Some(rest)
            if !rest.is_empty()
                && !rest.starts_with('/')
                && !text.contains(char::is_whitespace) =>
        {
            Ok(())
        }
        Some(_) | None => Err(format!(
            "\"{}\" is not an address that starts with http:// or https://",
            excerpt(text)
        )),
    }
}

/// A variable that nobody fills in would be sent as it is.
fn check_literal_url(text: &str) -> Result<(), String> {
    if text.contains("${") {
        return Err("must be the address itself: ${NAME} is not filled in here".to_owned());
    }
    check_http_url(text)
}

fn check_url_template(text: &str) -> Result<(), String> {
    let is_filled_in = text.starts_with("${") && !text.contains(char::is_whitespace);
    if is_filled_in || check_http_url(text).is_ok() {
        Ok(())
    } else {
        // The value is not repeated: such an address is a credential.
        Err("must be an address that starts with http:// or https://, or with ${NAME} for what an \
             environment variable holds"
            .to_owned())
    }
}

fn check_env_name(text: &str) -> Result<(), String> {
    let starts_well = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if starts_well && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        Ok(())
    } else {
        // The value is not repeated: it may be the secret itself.
        Err("must be the name of an environment variable: letters, digits and underscores, not \
             starting with a digit"
            .to_owned())
    }
}

fn check_json_pointer(text: &str) -> Result<(), String> {
    if text.is_empty() || text.starts_with('/') {
        Ok(())
    } else {
        Err(format!("\"{}\" is not a JSON Pointer: it starts with \"/\"", excerpt(text)))
    }
}

impl JsonPointer {
    /// The pointer that takes these steps, from the whole document on.
    pub fn to(steps: &[&str]) -> Self {
        let written = steps.iter().map(|step| step.replace('~', "~0").replace('/', "~1"));
        let whole = written.fold(String::new(), |whole, step| whole + "/" + &step);
        Self(whole.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_templates_of_addresses_have_variables() {
        for (text, is_literal, is_template) in [
            ("https://h/mcp", true, true),
            ("https://h/${KEY}/mcp", false, true),
            ("${MCP_URL}", false, true),
            ("ftp://h", false, false),
            ("https://h /${KEY}", false, false),
        ] {
            assert_eq!(text.parse::<HttpUrl>().is_ok(), is_literal, "{text}");
            assert_eq!(text.parse::<UrlTemplate>().is_ok(), is_template, "{text}");
        }
    }
}
