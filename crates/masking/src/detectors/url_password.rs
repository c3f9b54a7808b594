//! Passwords in URLs: `scheme://user:password@host`.

use super::heuristics::{is_placeholder, run_end};
use super::{TriggerSpan, TriggerVerdict};

pub(crate) fn detect(line: &[u8], trigger: TriggerSpan) -> TriggerVerdict {
    let start = trigger.end;
    let end = run_end(line, start, is_part_of_authority);
    let authority = &line[start..end];
    let open = end == line.len();
    let user_end = memchr::memrchr(b'@', authority).unwrap_or(0);
    let password_start = memchr::memchr(b':', &authority[..user_end]).map_or(user_end, |at| at + 1);
    let password = &authority[password_start..user_end];
    if password.is_empty() || is_placeholder(password) {
        return TriggerVerdict::of_value(false, start..end, open);
    }
    // If the URL continues, a later `@` may show that this one belongs to the password.
    TriggerVerdict::of_value(true, start + password_start..start + user_end, open)
}

/// True for bytes before the path; quotes, brackets and escapes end the URL.
fn is_part_of_authority(byte: u8) -> bool {
    byte > b' ' && !b"/?#\"'`<>\\|".contains(&byte)
}
