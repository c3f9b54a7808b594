//! Tests of all kinds of secrets, of plain text, and of chunking.

mod rule_cases;
mod secret_cases;
mod settings;
mod streams;

use serde_json::json;

use super::*;

/// Text without secrets, some of which looks similar.
const PLAIN_TEXT: &str = include_str!("tests/plain_text.txt");

fn mask() -> SecretMask {
    with_values(&[])
}

fn with_values(values: &[&str]) -> SecretMask {
    SecretMask::new(values.iter().copied(), &RedactionSettings::default()).unwrap()
}

#[test]
fn masks_secrets_of_every_kind() {
    let mask = mask();
    for (text, expected) in secret_cases::CASES {
        assert_eq!(mask.mask_text(text), *expected, "{text}");
    }
}

#[test]
fn leaves_plain_text_unchanged() {
    let mask = mask();
    for line in PLAIN_TEXT.lines() {
        assert_eq!(mask.mask_text(line), line);
    }
    assert!(matches!(mask.mask_text(PLAIN_TEXT), Cow::Borrowed(_)));
}

#[test]
fn masking_is_idempotent() {
    let mask = mask();
    for (_, masked) in secret_cases::CASES {
        assert_eq!(mask.mask_text(masked), *masked);
    }
}

#[test]
fn masks_known_values_in_html_and_in_escapes_of_single_bytes() {
    let secret = "Zq9\"x7&Kp4é<m2Nn8";
    let mask = SecretMask::new([secret], &RedactionSettings::default()).unwrap();
    let bytes = |before: &str, between: &str| {
        let pairs: Vec<_> = secret.bytes().map(|byte| format!("{before}{byte:02x}")).collect();
        pairs.join(between)
    };
    for spelling in [
        r#"Zq9\"x7&Kp4\u00e9<m2Nn8"#.to_owned(),
        "Zq9&quot;x7&amp;Kp4é&lt;m2Nn8".to_owned(),
        bytes("%", ""),
        bytes("\\x", ""),
        bytes("", ":"),
        bytes("", " "),
    ] {
        let text = format!("is {spelling} it");
        let masked = mask.mask_text(&text);
        assert!(masked.starts_with("is ***") && masked.len() < 16, "{spelling}: {masked}");
    }
}

#[test]
fn masks_known_values_in_all_encodings() {
    let mask = with_values(&["s3cret", "s3cret-and-more!", "abc", "a\"b\\c d/e\n", "one1\ntwo2\n"]);
    for (text, expected) in [
        ("no one knows", "no one knows"),
        ("s3cret, xs3cretx", "***, x***x"),
        ("s3cret-and-more!", "***"),
        ("abc is too short", "abc is too short"),
        ("the key a\"b\\c d/e", "the key ***"),
        (r#"{"key": "a\"b\\c d/e"}"#, r#"{"key": "***"}"#),
        (r#"{"text": "{\"key\": \"a\\\"b\\\\c d/e\"}"}"#, r#"{"text": "{\"key\": \"***\"}"}"#),
        ("?q=a%22b%5Cc%20d%2Fe&r=1", "?q=***&r=1"),
        ("one1 and two2\nbut not one2", "*** and ***\nbut not one2"),
        ("base64 czNjcmV0LWFuZC1tb3JlIQ==", "base64 ***3JlIQ=="),
        ("hex 7333637265742d616e642d6d6f726521", "hex ***6521"),
        ("HEX 7333637265742D616E642D6D6F726521.", "HEX ***6521."),
        ("q=a%22b%5Cc+d%2Fe", "q=***"),
        ("q=a%22b%5cc%20d%2fe", "q=***"),
        ("base64 dTpzM2NyZXQtYW5kLW1vcmUhCg==", "base64 dTp***cmUhCg=="),
        ("base32 OMZWG4TFOQWWC3TEFVWW64TFEE======", "base32 ***4TFEE======"),
        ("base32 ou5hgm3dojsxillbnzsc23lpojssc===", "base32 ou5h***ojssc==="),
        ("base32 NM6XGM3DOJSXILLBNZSC23LPOJSSCCQ=", "base32 NM6X***OJSSCCQ="),
    ] {
        assert_eq!(mask.mask_text(text), expected, "{text}");
    }
    assert_eq!(format!("{mask:?}"), "***");
}

#[test]
fn masks_overlapping_secrets_as_one() {
    let mask = with_values(&["abcdefgh", "efghijkl", "0123456789abcdef"]);
    for (text, expected) in [
        ("abcdefghijkl", "***"),
        ("0123456789abcdefgh", "***"),
        ("token=xabcdefghijkl1234567890", "token=***7890"),
        ("abcdefghefghijkl", "***"),
        ("0123456789abcdef", "***cdef"),
    ] {
        assert_eq!(mask.mask_text(text), expected, "{text}");
    }
}

#[test]
fn masks_values_of_any_length() {
    let long: String =
        (0..20_000).map(|number: u32| format!("{number:x}-")).collect::<Vec<_>>().concat();
    let mask = with_values(&[&long]);
    // A value longer than a line is masked in pieces.
    let masked = mask.mask_text(&format!("the key {long} is long")).into_owned();
    assert_eq!(masked, "the key ******e1f- is long");
}

#[test]
fn masks_whole_private_keys() {
    let body = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj";
    let key =
        format!("-----BEGIN PRIVATE KEY-----\n{body}\n{body}\nabcd\n-----END PRIVATE KEY-----");
    let in_json = key.replace('\n', "\\n");
    let windows = key.replace('\n', "\r\n");
    let logged = key.replace('\n', "\n12:00:01 INFO ");
    let encrypted = key.replacen('\n', "\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES,AB\n\n", 1);
    let mask = mask();
    for (text, expected) in [
        (format!("key:\n{key}\nnext\n"), "key:\n***\nnext\n".to_owned()),
        (format!("key: {key}; next"), "key: ***\n; next".to_owned()),
        (format!("{{\"key\": \"{in_json}\\n\"}}"), "{\"key\": \"***\\n\"}".to_owned()),
        (format!("{windows}\r\nnext"), "***\r\nnext".to_owned()),
        (format!("12:00:01 INFO {logged}\nnext"), "12:00:01 INFO ***\nnext".to_owned()),
        (format!("{encrypted}\nnext"), "***\nnext".to_owned()),
        (key.replace("PRIVATE", "RSA PRIVATE"), "***\n".to_owned()),
        // A truncated key: other lines stay.
        (
            format!("-----BEGIN PRIVATE KEY-----\n{body}\nIt was cut."),
            "***\nIt was cut.".to_owned(),
        ),
        (format!("-----BEGIN PRIVATE KEY-----\n{body}"), "***\n".to_owned()),
        (
            "if text == \"-----BEGIN PRIVATE KEY-----\" {\n    read(it);\n}".to_owned(),
            "if text == \"***\" {\n    read(it);\n}".to_owned(),
        ),
    ] {
        assert_eq!(mask.mask_text(&text), expected, "{text}");
    }
    let public = key.replace("PRIVATE", "PUBLIC");
    assert_eq!(mask.mask_text(&public), public);
}

#[test]
fn recognizes_names_of_secret_variables() {
    for name in ["GITHUB_TOKEN", "DB_PASSWORD", "OPENAI_API_KEY", "SIGNING_KEY", "clientSecret"] {
        assert!(is_secret_name(name), "{name}");
    }
    for name in ["PWD", "OLDPWD", "PATH", "MAX_TOKENS", "KEYBOARD", "SECRETARY"] {
        assert!(!is_secret_name(name), "{name}");
    }
}

#[test]
fn masks_json_texts_field_names_and_secret_fields() {
    let mask = with_values(&["s3cret"]);
    let json = json!({
        "a s3cret": ["s3cret!", 1, null],
        "password": "correct horse",
        "clientSecret": "0123456789abcdefghij",
        "headers": {"Authorization": "Basic dXNlcjpwYXNz", "accept": "text/plain"},
        "tokens": 12,
        "token": "the",
        "text": "{\"password\": \"hunter2\"}",
    });
    let expected = json!({
        "a ***": ["***!", 1, null],
        "password": "***",
        "clientSecret": "***ghij",
        "headers": {"Authorization": "Basic ***", "accept": "text/plain"},
        "tokens": 12,
        "token": "the",
        "text": "{\"password\": \"***\"}",
    });
    assert_eq!(mask.mask_json(json), expected);
}

#[test]
fn masked_json_stays_valid() {
    let mask = with_values(&["quo\"te\\d-and-long-enough"]);
    for text in [
        r#"{"password": "a\"b\\", "n": 1}"#,
        r#"{"password": 12345678, "secret": null, "token": true}"#,
        r#"{"text": "export API_KEY=abc123def\nTOKEN='x\"y1234567890123\\'\n"}"#,
        r#"{"text": "{\"password\": \"hunter2\\\"\", \"n\": 1}"}"#,
        r#"{"text": "quo\"te\\d-and-long-enough"}"#,
        r#"{"url": "https:\/\/user:pass@host\/path", "b": "Bearer abcdef1234567890\\"}"#,
    ] {
        let masked = mask.mask_text(text);
        assert!(serde_json::from_str::<Value>(&masked).is_ok(), "{masked}");
        // Values that are not text are never masked.
        assert_eq!(masked.contains("***"), !text.contains("12345678,"), "{masked}");
    }
}
