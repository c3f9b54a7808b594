//! Passwords in addresses: `scheme://user:password@host`.

use super::judgement::{is_placeholder, run_end};
use super::triggers::{Hit, Verdict};

pub(super) fn look(line: &[u8], hit: Hit) -> Verdict {
    let start = hit.end;
    let end = run_end(line, start, is_part_of_authority);
    let authority = &line[start..end];
    let open = end == line.len();
    let Some(user_end) = memchr::memrchr(b'@', authority) else {
        return if open { Verdict::Open { from: start } } else { Verdict::Ordinary };
    };
    let password_start = memchr::memchr(b':', &authority[..user_end]).map_or(user_end, |at| at + 1);
    let password = &authority[password_start..user_end];
    if !password.is_empty() && !is_placeholder(password) {
        // When the address goes on, another `@` may show that this one is part of the password.
        return Verdict::Secret { start: start + password_start, end: start + user_end, open };
    }
    if open { Verdict::Open { from: start } } else { Verdict::Ordinary }
}

/// Everything up to the path; quotes, brackets and escapes end the whole address.
fn is_part_of_authority(byte: u8) -> bool {
    byte > b' ' && !b"/?#\"'`<>\\|".contains(&byte)
}
