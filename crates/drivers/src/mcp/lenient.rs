//! Messages that are not quite JSON. Python writes half of a surrogate pair where a file's name is
//! no text, and other programs write bytes that are no UTF-8. What cannot be read in them is
//! replaced, so that one odd character does not cost the whole answer.

use rmcp::model::ServerJsonRpcMessage;

/// The message in a line, if one can be made out.
pub(super) fn message(line: &[u8]) -> Option<ServerJsonRpcMessage> {
    if let Ok(message) = serde_json::from_slice(line) {
        return Some(message);
    }
    // Only what looks like a message is worth the trouble.
    if line.trim_ascii_start().first() != Some(&b'{') {
        return None;
    }
    serde_json::from_str(&without_lone_surrogates(&String::from_utf8_lossy(line))).ok()
}

/// The number of an escape such as `\ud83d`, if the text begins with one.
fn code_unit(text: &str) -> Option<u16> {
    u16::from_str_radix(text.strip_prefix("\\u")?.get(..4)?, 16).ok()
}

/// How long such an escape is, in bytes.
const ESCAPE_BYTES: usize = 6;

/// Replaces each half of a surrogate pair that has lost the other.
fn without_lone_surrogates(text: &str) -> String {
    let mut mended = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, escape)) = rest.find('\\').map(|at| rest.split_at(at)) {
        mended.push_str(before);
        let second = || escape.get(ESCAPE_BYTES..).and_then(code_unit);
        let kept = match code_unit(escape) {
            Some(0xd800..=0xdbff) if matches!(second(), Some(0xdc00..=0xdfff)) => 2 * ESCAPE_BYTES,
            Some(0xd800..=0xdfff) => {
                mended.push_str("\\ufffd");
                rest = &escape[ESCAPE_BYTES..];
                continue;
            }
            Some(_) => ESCAPE_BYTES,
            // The backslash, and what it escapes.
            None => escape.chars().take(2).map(char::len_utf8).sum(),
        };
        let (kept, after) = escape.split_at(kept);
        mended.push_str(kept);
        rest = after;
    }
    mended.push_str(rest);
    mended
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_halves_of_pairs_are_replaced() {
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
    fn a_message_with_odd_bytes_is_read_and_other_lines_are_none() {
        let odd = b"{\"jsonrpc\": \"2.0\", \"id\": 1, \"result\": {\"x\": \"\xff\"}}";
        assert!(message(odd).is_some());
        for line in [b"Welcome!".as_slice(), b"{not json}", b"\xff"] {
            assert!(message(line).is_none());
        }
    }
}
