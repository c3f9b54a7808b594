//! Tokens that can be told by what they begin with.

use super::judgement::{is_name_byte, run_end, starts_word};
use super::triggers::{Hit, Verdict};

/// What a web token begins with: the first letters of a JSON object in base64.
pub(super) const WEB_TOKEN: &str = "eyJ";

/// Fewer bytes are no part of a web token.
const WEB_TOKEN_PART_BYTES_MIN: usize = 10;

/// The bytes of which a token is made.
#[derive(Debug, Clone, Copy)]
enum Alphabet {
    Capitals,
    Letters,
    LettersAndUnderscore,
    Base64Url,
    Base64UrlAndDot,
}

impl Alphabet {
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

/// How the tokens of a provider look.
#[derive(Debug)]
pub(super) struct Shape {
    /// What is searched for.
    pub(super) literal: &'static str,
    /// What stands before it, one of these.
    before: &'static [&'static str],
    alphabet: Alphabet,
    /// How many bytes follow, at least.
    least: usize,
    /// Whether words of a text could look the same, so that more is asked of it.
    like_words: bool,
}

const fn shape(literal: &'static str, alphabet: Alphabet, least: usize) -> Shape {
    Shape { literal, before: &[""], alphabet, least, like_words: false }
}

/// AWS, Stripe, Google, GitHub, GitLab, Slack, Hugging Face, npm, PyPI; and `sk-`, which OpenAI,
/// Anthropic and others have.
pub(super) static SHAPES: [Shape; 25] = [
    Shape { like_words: true, ..shape("sk-", Alphabet::Base64Url, 20) },
    shape("AKIA", Alphabet::Capitals, 16),
    shape("ASIA", Alphabet::Capitals, 16),
    Shape { before: &["s", "r"], ..shape("k_live_", Alphabet::Letters, 16) },
    Shape { before: &["s", "r"], ..shape("k_test_", Alphabet::Letters, 16) },
    shape("whsec_", Alphabet::Letters, 24),
    shape("AIza", Alphabet::Base64Url, 30),
    shape("ya29.", Alphabet::Base64Url, 20),
    shape("ghp_", Alphabet::Letters, 30),
    shape("gho_", Alphabet::Letters, 30),
    shape("ghs_", Alphabet::Letters, 30),
    shape("ghu_", Alphabet::Letters, 30),
    shape("ghr_", Alphabet::Letters, 30),
    Shape { before: &["git"], ..shape("hub_pat_", Alphabet::LettersAndUnderscore, 22) },
    shape("glpat-", Alphabet::Base64UrlAndDot, 20),
    shape("xoxa-", Alphabet::Base64Url, 10),
    shape("xoxb-", Alphabet::Base64Url, 10),
    shape("xoxe-", Alphabet::Base64Url, 10),
    shape("xoxp-", Alphabet::Base64Url, 10),
    shape("xoxr-", Alphabet::Base64Url, 10),
    shape("xoxs-", Alphabet::Base64Url, 10),
    shape("xapp-", Alphabet::Base64Url, 20),
    shape("hf_", Alphabet::Letters, 30),
    shape("npm_", Alphabet::Letters, 36),
    shape("pypi-", Alphabet::Base64Url, 50),
];

pub(super) fn look(line: &[u8], hit: Hit, shape: &Shape) -> Verdict {
    let before = &line[..hit.start];
    let Some(beginning) = shape.before.iter().find(|text| before.ends_with(text.as_bytes())) else {
        return Verdict::Ordinary;
    };
    let start = hit.start - beginning.len();
    if !starts_word(line, start) {
        return Verdict::Ordinary;
    }
    let end = run_end(line, hit.end, |byte| shape.alphabet.has(byte));
    let open = end == line.len();
    let is_long = end - hit.end >= shape.least;
    // An AWS key id has one length, and other words of capitals may begin like it.
    let is_longer_than_all = matches!(shape.alphabet, Alphabet::Capitals)
        && (end - hit.end > shape.least || line.get(end).is_some_and(|next| is_name_byte(*next)));
    let is_word = shape.like_words && !looks_random(&line[hit.end..end]);
    if is_long && !is_longer_than_all && !is_word {
        Verdict::Secret { start, end, open }
    } else if open {
        Verdict::Open { from: start }
    } else {
        Verdict::Ordinary
    }
}

/// Three parts in base64 with dots between them, of which the last may be empty.
pub(super) fn look_for_web_token(line: &[u8], hit: Hit) -> Verdict {
    if !starts_word(line, hit.start) {
        return Verdict::Ordinary;
    }
    let mut end = hit.start;
    for part in 0..3 {
        let part_end = run_end(line, end, is_name_byte);
        if part_end == line.len() && part < 2 {
            return Verdict::Open { from: hit.start };
        }
        let is_last = part == 2;
        let is_short = part_end - end < WEB_TOKEN_PART_BYTES_MIN;
        if !is_last && (is_short || line.get(part_end) != Some(&b'.')) {
            return Verdict::Ordinary;
        }
        end = if is_last { part_end } else { part_end + 1 };
    }
    Verdict::Secret { start: hit.start, end, open: end == line.len() }
}

/// Whether these are no words with dashes between them: they have digits, and capitals or one long
/// stretch without a dash.
fn looks_random(bytes: &[u8]) -> bool {
    const STRETCH_BYTES: usize = 16;
    let has_digit = bytes.iter().any(u8::is_ascii_digit);
    let has_letter = bytes.iter().any(u8::is_ascii_alphabetic);
    let has_capital = bytes.iter().any(u8::is_ascii_uppercase);
    let has_stretch =
        bytes.split(|byte| b"-_".contains(byte)).any(|stretch| stretch.len() >= STRETCH_BYTES);
    has_digit && has_letter && (has_capital || has_stretch)
}
