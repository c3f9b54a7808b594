//! Parses messages that are almost JSON.
//!
//! Python writes lone surrogates for file names that are not text, and other programs write invalid
//! UTF-8. Both are replaced, so that one bad character does not lose the message.

use rmcp::model::ServerJsonRpcMessage;

use super::message_limit::MessageLimit;
use crate::json_size::has_too_many_values;

/// Parses a message, repairing it if needed. Returns none if it is no message.
pub(crate) fn parse_message(line: &[u8]) -> Result<Option<ServerJsonRpcMessage>, MessageLimit> {
    if has_too_many_values(line) {
        return Err(MessageLimit::Values);
    }
    if let Ok(message) = serde_json::from_slice(line) {
        return Ok(Some(message));
    }
    // Only a line that looks like a message is repaired.
    if line.trim_ascii_start().first() != Some(&b'{') {
        return Ok(None);
    }
    Ok(serde_json::from_str(&without_lone_surrogates(&String::from_utf8_lossy(line))).ok())
}

/// The code unit of an escape such as `\ud83d` at the start of the text.
fn code_unit(text: &str) -> Option<u16> {
    u16::from_str_radix(text.strip_prefix("\\u")?.get(..4)?, 16).ok()
}

/// The length of such an escape, in bytes.
const ESCAPE_BYTES: usize = 6;

/// Replaces surrogates without a counterpart.
fn without_lone_surrogates(text: &str) -> String {
    let mut repaired = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, escape)) = rest.find('\\').map(|at| rest.split_at(at)) {
        repaired.push_str(before);
        let second = || escape.get(ESCAPE_BYTES..).and_then(code_unit);
        let kept = match code_unit(escape) {
            Some(0xd800..=0xdbff) if matches!(second(), Some(0xdc00..=0xdfff)) => 2 * ESCAPE_BYTES,
            Some(0xd800..=0xdfff) => {
                repaired.push_str("\\ufffd");
                rest = &escape[ESCAPE_BYTES..];
                continue;
            }
            Some(_) => ESCAPE_BYTES,
            // The backslash and the escaped character.
            None => escape.chars().take(2).map(char::len_utf8).sum(),
        };
        let (kept, after) = escape.split_at(kept);
        repaired.push_str(kept);
        rest = after;
    }
    repaired.push_str(rest);
    repaired
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_only_lone_surrogates() {
        for (text, expected) in [
            ("plain", "plain"),
            (r"a\ud800b", r"a\ufffdb"),
            (r"\udfff\ud83d\ude00\ud83d", r"\ufffd\ud83d\ude00\ufffd"),
            (r"\\ud800 \n \u00e4", r"\\ud800 \n \u00e4"),
            (r"ends with \", r"ends with \"),
            (r"\ud8", r"\ud8"),
        ] {
            assert_eq!(without_lone_surrogates(text), expected, "{text}");
        }
    }

    #[test]
    fn repairs_invalid_utf8_and_rejects_other_lines() {
        let odd = b"{\"jsonrpc\": \"2.0\", \"id\": 1, \"result\": {\"x\": \"\xff\"}}";
        assert!(parse_message(odd).unwrap().is_some());
        for line in [b"Welcome!".as_slice(), b"{not json}", b"\xff"] {
            assert!(parse_message(line).unwrap().is_none());
        }
        let many = format!("{{\"jsonrpc\": [{}", "0,".repeat(1_000_000));
        assert_eq!(parse_message(many.as_bytes()).unwrap_err(), MessageLimit::Values);
    }
}
