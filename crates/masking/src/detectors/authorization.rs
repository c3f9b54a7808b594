//! Credentials: the `Authorization` header, and tokens after `Bearer`.

use std::ops::Range;

use super::assignment::is_bare;
use super::heuristics::{is_placeholder, is_too_long_for_words, run_end, skip_blanks};
use super::{TriggerSpan, TriggerVerdict};

/// Schemes whose credentials are secret. Other schemes have lists of values that are not.
const SCHEMES: [&[u8]; 6] = [b"basic", b"bearer", b"token", b"apikey", b"key", b"negotiate"];

const CREDENTIALS_BYTES_MIN: usize = 8;

/// Checks the header's value, without quotes.
pub(crate) fn detect(line: &[u8], from: usize) -> TriggerVerdict {
    let scheme_end = run_end(line, from, |byte| byte.is_ascii_alphanumeric() || byte == b'-');
    let scheme = &line[from..scheme_end];
    let has_scheme = SCHEMES.iter().any(|known| known.eq_ignore_ascii_case(scheme));
    let start = if has_scheme { skip_blanks(line, scheme_end) } else { from };
    let end = run_end(line, start, is_bare);
    let open = end == line.len();
    let is_secret = is_secret(&line[start..end], has_scheme);
    // Without a secret, the scheme may continue, too.
    let start = if is_secret { start } else { from };
    TriggerVerdict::of_value(is_secret, start..end, open)
}

/// The secret part of a header's value.
pub(crate) fn secret_in(value: &[u8]) -> Option<Range<usize>> {
    match detect(value, 0) {
        TriggerVerdict::Secret { start, end, .. } | TriggerVerdict::Key { start, end, .. } => {
            Some(start..end)
        }
        TriggerVerdict::NotSecret | TriggerVerdict::Undecided { .. } => None,
    }
}

fn is_secret(value: &[u8], has_scheme: bool) -> bool {
    let has_digit = value.iter().any(u8::is_ascii_digit);
    let is_odd = value.iter().skip(1).any(|byte| byte.is_ascii_uppercase() || *byte == b'=');
    let is_long = value.len() >= CREDENTIALS_BYTES_MIN;
    is_too_long_for_words(value)
        || (is_long && !is_placeholder(value) && (has_digit || (has_scheme && is_odd)))
}

/// Checks for a token after `Bearer`.
pub(crate) fn detect_bearer(line: &[u8], trigger: TriggerSpan) -> TriggerVerdict {
    let is_named = line[..trigger.start].last().is_some_and(|first| b"bB".contains(first));
    let start = skip_blanks(line, trigger.end);
    if !is_named || (start == trigger.end && start < line.len()) {
        return TriggerVerdict::NotSecret;
    }
    let in_token = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte);
    let end = run_end(line, start, in_token);
    let open = end == line.len();
    TriggerVerdict::of_value(is_secret(&line[start..end], true), start..end, open)
}
