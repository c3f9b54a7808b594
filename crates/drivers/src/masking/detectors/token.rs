//! Tokens with a known prefix.

use super::heuristics::{is_name_byte, run_end, starts_word};
use super::{TriggerSpan, TriggerVerdict};

/// The prefix of a JSON web token: the start of a JSON object in base64.
pub(crate) const WEB_TOKEN: &str = "eyJ";

/// The minimum length of a part of a web token.
const WEB_TOKEN_PART_BYTES_MIN: usize = 10;

#[derive(Debug, Clone, Copy)]
enum TokenAlphabet {
    Capitals,
    Letters,
    LettersAndUnderscore,
    Base64Url,
    Base64UrlAndDot,
}

impl TokenAlphabet {
    fn has(self, byte: u8) -> bool {
        match self {
            Self::Capitals => byte.is_ascii_uppercase() || byte.is_ascii_digit(),
            Self::Letters => byte.is_ascii_alphanumeric(),
            Self::LettersAndUnderscore => byte.is_ascii_alphanumeric() || byte == b'_',
            Self::Base64Url => is_name_byte(byte),
            Self::Base64UrlAndDot => is_name_byte(byte) || byte == b'.',
        }
    }
}

/// The format of a provider's tokens.
#[derive(Debug)]
pub(crate) struct TokenShape {
    pub(crate) literals: &'static [&'static str],
    /// The allowed texts before a literal.
    before: &'static [&'static str],
    alphabet: TokenAlphabet,
    /// The minimum number of bytes after a literal.
    least: usize,
    /// True if ordinary words may look the same, so that the token must look random.
    like_words: bool,
}

const fn shape(
    literals: &'static [&'static str],
    alphabet: TokenAlphabet,
    least: usize,
) -> TokenShape {
    TokenShape { literals, before: &[""], alphabet, least, like_words: false }
}

/// Tokens of AWS, Stripe, Google, GitHub, GitLab, Slack, Hugging Face, npm, PyPI, OpenAI and
/// others.
pub(crate) static TOKEN_SHAPES: [TokenShape; 12] = [
    TokenShape { like_words: true, ..shape(&["sk-"], TokenAlphabet::Base64Url, 20) },
    shape(&["AKIA", "ASIA"], TokenAlphabet::Capitals, 16),
    TokenShape {
        before: &["s", "r"],
        ..shape(&["k_live_", "k_test_"], TokenAlphabet::Letters, 16)
    },
    shape(&["whsec_"], TokenAlphabet::Letters, 24),
    shape(&["AIza"], TokenAlphabet::Base64Url, 30),
    shape(&["ya29.", "xapp-"], TokenAlphabet::Base64Url, 20),
    shape(&["ghp_", "gho_", "ghs_", "ghu_", "ghr_", "hf_"], TokenAlphabet::Letters, 30),
    TokenShape {
        before: &["git"],
        ..shape(&["hub_pat_"], TokenAlphabet::LettersAndUnderscore, 22)
    },
    shape(&["glpat-"], TokenAlphabet::Base64UrlAndDot, 20),
    shape(&["xoxa-", "xoxb-", "xoxe-", "xoxp-", "xoxr-", "xoxs-"], TokenAlphabet::Base64Url, 10),
    shape(&["npm_"], TokenAlphabet::Letters, 36),
    shape(&["pypi-"], TokenAlphabet::Base64Url, 50),
];

pub(crate) fn detect(line: &[u8], trigger: TriggerSpan, shape: &TokenShape) -> TriggerVerdict {
    let before = &line[..trigger.start];
    let Some(beginning) = shape.before.iter().find(|text| before.ends_with(text.as_bytes())) else {
        return TriggerVerdict::NotSecret;
    };
    let start = trigger.start - beginning.len();
    if !starts_word(line, start) {
        return TriggerVerdict::NotSecret;
    }
    let end = run_end(line, trigger.end, |byte| shape.alphabet.has(byte));
    let open = end == line.len();
    let is_long = end - trigger.end >= shape.least;
    // AWS key ids have a fixed length; longer words may start the same way.
    let is_longer_than_all = matches!(shape.alphabet, TokenAlphabet::Capitals)
        && (end - trigger.end > shape.least
            || line.get(end).is_some_and(|next| is_name_byte(*next)));
    let is_word = shape.like_words && !looks_random(&line[trigger.end..end]);
    let is_secret = is_long && !is_longer_than_all && !is_word;
    TriggerVerdict::of_value(is_secret, start..end, open)
}

/// Checks for three base64 parts joined by dots; the last may be empty.
pub(crate) fn detect_web_token(line: &[u8], trigger: TriggerSpan) -> TriggerVerdict {
    if !starts_word(line, trigger.start) {
        return TriggerVerdict::NotSecret;
    }
    let mut end = trigger.start;
    for part in 0..3 {
        let part_end = run_end(line, end, is_name_byte);
        if part_end == line.len() && part < 2 {
            return TriggerVerdict::Undecided { from: trigger.start };
        }
        let is_last = part == 2;
        let is_short = part_end - end < WEB_TOKEN_PART_BYTES_MIN;
        if !is_last && (is_short || line.get(part_end) != Some(&b'.')) {
            return TriggerVerdict::NotSecret;
        }
        end = if is_last { part_end } else { part_end + 1 };
    }
    TriggerVerdict::Secret { start: trigger.start, end, open: end == line.len() }
}

/// True if there are digits, and capitals or a long part: more than words joined by dashes.
fn looks_random(bytes: &[u8]) -> bool {
    const STRETCH_BYTES: usize = 16;
    let has_digit = bytes.iter().any(u8::is_ascii_digit);
    let has_letter = bytes.iter().any(u8::is_ascii_alphabetic);
    let has_capital = bytes.iter().any(u8::is_ascii_uppercase);
    let has_stretch =
        bytes.split(|byte| b"-_".contains(byte)).any(|stretch| stretch.len() >= STRETCH_BYTES);
    has_digit && has_letter && (has_capital || has_stretch)
}
