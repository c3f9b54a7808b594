use proptest::prelude::*;

use super::rule_cases::{self, RuleCase};
use super::{PLAIN_TEXT, mask, secret_cases, with_values};
use crate::plan::PIECE_BYTES;
use crate::{LINE_BYTES_MAX, RedactionSettings, SecretMask};

const KEY: &str = "-----BEGIN PRIVATE KEY-----\n\
    MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj\n\
    abcd\n-----END PRIVATE KEY-----\n";

/// The masked stream for these chunks. If `rests`, the stream is idle after each.
fn streamed<'b>(
    mask: &SecretMask,
    pieces: impl IntoIterator<Item = &'b [u8]>,
    rests: bool,
) -> Vec<u8> {
    let mut stream = mask.stream();
    let mut out = Vec::new();
    for piece in pieces {
        stream.push(piece, &mut out);
        if rests {
            stream.idle(&mut out);
        }
    }
    stream.finish(&mut out);
    out
}

#[track_caller]
fn assert_same(mask: &SecretMask, text: &[u8], pieces: &[&[u8]]) {
    let expected = mask.mask_bytes(text);
    for rests in [false, true] {
        let out = streamed(mask, pieces.iter().copied(), rests);
        assert_eq!(String::from_utf8_lossy(&out), String::from_utf8_lossy(&expected), "{rests}");
        assert!(out == *expected);
    }
}

#[test]
fn masks_secrets_split_at_any_byte() {
    let mask = with_values(&["known secret", "gr\u{fc}n-gr\u{fc}n"]);
    let cases = secret_cases::CASES.iter().map(|(text, _)| *text);
    let others = [KEY, "a known secret b", "gr\u{fc}n-gr\u{fc}n \u{1f642}"];
    let of_rules: Vec<_> = rule_cases::rule_cases().iter().map(RuleCase::text).collect();
    for case in cases.chain(others).chain(of_rules.iter().map(String::as_str)) {
        for text in [
            format!("before\nand {case}"),
            format!("{case} and\nbehind {case}\n"),
            format!("{case}\r\n"),
        ] {
            let text = text.as_bytes();
            for at in 0..=text.len() {
                let (left, right) = text.split_at(at);
                assert_same(&mask, text, &[left, right]);
            }
            if case.len() < 64 {
                let single: Vec<_> = text.chunks(1).collect();
                assert_same(&mask, text, &single);
            }
        }
    }
}

#[test]
fn passes_binary_data_unchanged() {
    let mask = mask();
    let bytes: Vec<u8> =
        (0..200_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    assert_eq!(*mask.mask_bytes(&bytes), bytes);
    let around = b"\xff\xfe password=hunter2\xc3\n\xe6\xbc";
    assert_same(&mask, around, &[&around[..20], &around[20..]]);
    assert!(mask.mask_bytes(around).starts_with(b"\xff\xfe password=***"));
    assert!(mask.mask_bytes(around).ends_with(b"\n\xe6\xbc"));
}

#[test]
fn masks_long_lines_in_bounded_memory() {
    let mask = with_values(&["a known secret"]);
    let secrets = ["password=hunter2 ", "sk-abcdefghijklmnopqrstuvwxyz012345 ", "a known secret "];
    let mut line = String::new();
    while line.len() < 1 << 20 {
        line.push_str("nothing of note ");
        line.push_str(secrets[line.len() % secrets.len()]);
    }
    let masked = mask.mask_text(&line);
    for secret in ["hunter2", "abcdefgh", "known"] {
        assert!(!masked.contains(secret), "{secret}");
    }
    assert_eq!(
        masked.replace("***2345", "***").matches("nothing of note").count(),
        line.matches("nothing of note").count()
    );
    let (mut stream, mut out, mut pushed) = (mask.stream(), Vec::new(), 0);
    for piece in line.as_bytes().chunks(1000) {
        stream.push(piece, &mut out);
        pushed += piece.len();
        // Masks shorten the text, but by less than half.
        assert!(out.len() + LINE_BYTES_MAX >= pushed / 2);
        assert!(
            stream.held.len() <= LINE_BYTES_MAX && stream.held.capacity() <= 2 * LINE_BYTES_MAX
        );
    }
    stream.finish(&mut out);
    assert_eq!(out, masked.as_bytes());
}

#[test]
fn masks_secrets_anywhere_on_a_long_line() {
    let mask = with_values(&["a known one"]);
    let secrets = [
        "--password hidden-11 ",
        "password=\"hidden 11\" ",
        "token=hidden-11 ",
        "Bearer hidden-11 ",
        "sk-hidden-11-ABCDEFGHIJKLMNOPQRSTUVWX ",
        "see https://ada:hidden-11@host ",
        "a known one ",
    ];
    for secret in secrets {
        // Pieces end in the last eighth of the longest line.
        for at in (PIECE_BYTES - secret.len()..PIECE_BYTES + 2)
            .chain(LINE_BYTES_MAX - secret.len()..LINE_BYTES_MAX + 2)
        {
            let line = format!("{}{secret}{}", " ".repeat(at), " ".repeat(LINE_BYTES_MAX));
            let masked = mask.mask_text(&line);
            let is_shown = ["hidden", "known"].iter().any(|part| masked.contains(part));
            assert!(!is_shown && masked.contains("***"), "{secret} at {at}: {}", masked.trim());
        }
    }
}

#[test]
fn masks_secrets_longer_than_the_buffer() {
    let mask = mask();
    let token = "a1".repeat(LINE_BYTES_MAX);
    let text = format!("{} token={token} and more\nnext\n", "word ".repeat(10_000));
    let expected = format!("{} token=*** and more\nnext\n", "word ".repeat(10_000));
    assert_eq!(mask.mask_text(&text), expected);
    assert_same(&mask, text.as_bytes(), &text.as_bytes().chunks(777).collect::<Vec<_>>());
    let body = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj";
    for end in ["\n", "\\n"] {
        let lines = format!("{body}{end}").repeat(4_000);
        let text = format!(
            "{}a -----BEGIN PRIVATE KEY-----{end}{lines}-----END PRIVATE KEY----- b\n",
            "word ".repeat(10_000)
        );
        let masked = mask.mask_text(&text);
        assert!(masked.ends_with(" b\n") && !masked.contains("MII"), "{end}");
        assert!(masked.len() < 50_100, "{end}");
        assert_same(&mask, text.as_bytes(), &text.as_bytes().chunks(999).collect::<Vec<_>>());
    }
}

#[test]
fn shows_harmless_text_before_the_line_ends() {
    let mask = with_values(&["two words"]);
    for (text, shown) in [
        ("Continue? [y/n] ", "Continue? [y/n] "),
        ("Enter password: ", "Enter password: "),
        ("Accept all cookies? [y/n] ", "Accept all cookies? [y/n] "),
        ("Run curl in a task-list? ", "Run "),
        ("a task-list, a risk-free login: ", "a task-list, a risk-free login: "),
        ("[sudo] password for ada: ", "[sudo] password for ada: "),
        ("a word and a ha", "a word and a "),
        ("password=\"correct horse ", "password=\""),
        ("the password: correct horse", "the password: correct "),
        ("password: correct ", "password: "),
        ("say two ", "say "),
        ("see sk-abcdefghijklmnopqrstuvwxyz012345 ", "see ***2345 "),
        ("see sk-abcdefghijklmnopqrstuvwxyz012345", "see "),
        ("a -----BEGIN PRIVATE KEY----- ", "a "),
    ] {
        let (mut stream, mut out) = (mask.stream(), Vec::new());
        stream.push(text.as_bytes(), &mut out);
        assert!(out.is_empty());
        stream.idle(&mut out);
        assert_eq!(String::from_utf8_lossy(&out), shown, "{text}");
        stream.idle(&mut out);
        stream.finish(&mut out);
        assert_eq!(String::from_utf8_lossy(&out), mask.mask_text(text), "{text}");
    }
}

#[test]
fn rules_take_linear_time_on_hostile_lines() {
    // A quadratic search of these lines would take minutes.
    let mask = mask();
    for part in [
        "sk-",
        "sk-.",
        " sk-a",
        "curl ",
        "curl -u a",
        "login ",
        "login a ",
        "ookie:a",
        ":AA",
        "eyJ.",
    ] {
        let line = part.repeat((1 << 20) / part.len());
        assert!(mask.mask_text(&line).len() <= line.len());
    }
}

#[test]
fn holds_back_lines_with_configured_patterns() {
    let patterns = vec![regex::Regex::new("b.*d").unwrap()];
    let mask = SecretMask::new(
        [],
        &RedactionSettings { emails: true, patterns, ..RedactionSettings::default() },
    )
    .unwrap();
    let text = b"a b c d\nada@example.org b";
    assert_same(&mask, text, &[&text[..5], &text[5..12], &text[12..]]);
}

#[test]
fn line_end_that_arrives_in_two_chunks_shows_no_password() {
    let text = b"\n  password correct7horse\r\n";
    assert_same(&with_values(&[]), text, &[&text[..25], &text[25..]]);
    assert_same(&with_values(&[]), text, &[&text[..26], &text[26..]]);
}

fn snippets() -> impl Strategy<Value = Vec<u8>> {
    let secrets: Vec<Vec<u8>> =
        secret_cases::CASES.iter().map(|(text, _)| text.as_bytes().to_vec()).collect();
    let of_rules = rule_cases::rule_cases();
    let secrets: Vec<Vec<u8>> =
        secrets.into_iter().chain(of_rules.iter().map(|case| case.text().into_bytes())).collect();
    let lines: Vec<Vec<u8>> = PLAIN_TEXT.lines().map(|line| line.as_bytes().to_vec()).collect();
    let pieces =
        ["\n", " ", "\r\n", "\"", "\\", "\\n", "-", "=", ": ", "known secret", KEY, "@", "'"];
    let pieces = pieces.map(|piece| piece.as_bytes().to_vec()).to_vec();
    // A truncated secret is the hardest to detect.
    let cut = (proptest::sample::select(secrets.clone()), any::<proptest::sample::Index>())
        .prop_map(|(text, at)| text[..at.index(text.len())].to_vec());
    prop_oneof![
        4 => proptest::sample::select(secrets),
        2 => proptest::sample::select(lines),
        5 => proptest::sample::select(pieces),
        2 => cut,
        1 => proptest::collection::vec(any::<u8>(), 0..8),
        1 => (1_usize..70_000, any::<bool>()).prop_map(|(length, blank)| {
            if blank { b"word ".repeat(length / 5) } else { vec![b'a'; length] }
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn result_is_independent_of_chunks(
        snippets in proptest::collection::vec(snippets(), 1..12),
        cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..12),
    ) {
        let mask = with_values(&["known secret", "secret and"]);
        let text = snippets.concat();
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
        cuts.sort_unstable();
        let ends = cuts.iter().copied().chain([text.len()]);
        let starts = [0].into_iter().chain(cuts.iter().copied());
        let pieces: Vec<&[u8]> = starts.zip(ends).map(|(start, end)| &text[start..end]).collect();
        let expected = mask.mask_bytes(&text);
        for rests in [false, true] {
            let out = streamed(&mask, pieces.iter().copied(), rests);
            prop_assert!(out == *expected, "{rests}\n{}\n{}",
                String::from_utf8_lossy(&out), String::from_utf8_lossy(&expected));
        }
    }
}
