//! The rate of false positives on ordinary text: code, prose, logs, JSON, output of Git and build
//! tools, lock files, hashes, UUIDs and images in base64.
//!
//! The texts in `corpus/` are templates: each `{…}` becomes new random text in each round. The
//! sources, documents and lock file of this repository are a second corpus.
#![allow(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use polity_masking::{RedactionSettings, SecretMask};

/// The most lines of 10,000 that may be masked without need.
const FALSE_POSITIVES_MAX: usize = 1;

const TEMPLATES: [(&str, &str); 5] = [
    ("build_log", include_str!("corpus/build_log.txt")),
    ("service_log", include_str!("corpus/service_log.txt")),
    ("code", include_str!("corpus/code.txt")),
    ("prose", include_str!("corpus/prose.txt")),
    ("data", include_str!("corpus/data.txt")),
];

const ROUNDS: usize = 400;

/// A deterministic pseudo-random sequence.
struct RandomText(u64);

impl RandomText {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 11
    }

    fn letters(&mut self, alphabet: &str, length: usize) -> String {
        let alphabet = alphabet.as_bytes();
        let count = alphabet.len() as u64;
        let letter = |number: u64| char::from(alphabet[usize::try_from(number % count).unwrap()]);
        (0..length).map(|_| letter(self.next())).collect()
    }

    /// The text of a field such as `hex40`.
    fn field(&mut self, name: &str) -> String {
        const LETTERS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
        const HEX: &str = "0123456789abcdef";
        let length = |prefix: &str| name.strip_prefix(prefix).and_then(|rest| rest.parse().ok());
        if let Some(length) = length("hex") {
            return self.letters(HEX, length);
        }
        if let Some(length) = length("base64url_") {
            return self.letters(&format!("{LETTERS}-_"), length);
        }
        if let Some(length) = length("base64_") {
            return self.letters(&format!("{LETTERS}+/"), length);
        }
        match name {
            "n" => (self.next() % 1000).to_string(),
            "d2" => format!("{:02}", 1 + self.next() % 28),
            "uuid" => [8, 4, 4, 4, 12].map(|length| self.letters(HEX, length)).join("-"),
            _ => panic!("unknown field {name}"),
        }
    }

    /// Fills in the fields of a template; `{{` is a brace.
    fn fill(&mut self, template: &str) -> String {
        let mut text = String::new();
        let mut rest = template;
        while let Some(at) = rest.find(['{', '}']) {
            let (before, after) = rest.split_at(at);
            text.push_str(before);
            if after.starts_with("{{") || after.starts_with("}}") {
                text.push_str(&after[..1]);
                rest = &after[2..];
                continue;
            }
            let (name, behind) = after[1..].split_once('}').unwrap();
            text.push_str(&self.field(name));
            rest = behind;
        }
        text + rest
    }
}

/// Counts the lines and the masked ones, and lists a few of those.
fn count(mask: &SecretMask, text: &str, shown: &mut String) -> (usize, usize) {
    let (mut lines, mut masked_lines) = (0, 0);
    for line in text.lines() {
        lines += 1;
        let masked = mask.mask_text(line);
        if masked != line {
            masked_lines += 1;
            if shown.len() < 4000 {
                writeln!(shown, "{line}\n  -> {masked}").unwrap();
            }
        }
    }
    (lines, masked_lines)
}

#[track_caller]
fn assert_rate(name: &str, (lines, masked): (usize, usize), shown: &str) {
    println!("{name}: {masked} of {lines} lines are masked");
    assert!(lines > 1000, "{name}: only {lines} lines");
    assert!(masked * 10_000 <= FALSE_POSITIVES_MAX * lines, "{name}: {masked} of {lines}\n{shown}");
}

#[test]
fn ordinary_text_is_rarely_masked() {
    let mask = SecretMask::new([], &RedactionSettings::default()).unwrap();
    let mut random = RandomText(0x9e37_79b9_7f4a_7c15);
    for (name, template) in TEMPLATES {
        let mut shown = String::new();
        let (mut lines, mut masked) = (0, 0);
        for _ in 0..ROUNDS {
            let (more, hidden) = count(&mask, &random.fill(template), &mut shown);
            (lines, masked) = (lines + more, masked + hidden);
        }
        assert_rate(name, (lines, masked), &shown);
    }
}

/// The files of this repository below a folder, without tests, which contain secrets on purpose.
fn files_below(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let is_excluded =
            name.contains("test") || ["masking", "target", "schemas"].contains(&&*name);
        if path.is_dir() && !is_excluded {
            files_below(&path, files);
        } else if !is_excluded && [".rs", ".md", ".yaml"].iter().any(|end| name.ends_with(end)) {
            files.push(path);
        }
    }
}

#[test]
fn sources_and_documents_are_rarely_masked() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = vec![root.join("Cargo.lock"), root.join("ARCHITECTURE.md")];
    for folder in ["model", "store", "engine", "statechart", "simulator", "diagram"] {
        files_below(&root.join("crates").join(folder).join("src"), &mut files);
    }
    files_below(&root.join("docs"), &mut files);
    let mask = SecretMask::new([], &RedactionSettings::default()).unwrap();
    let mut shown = String::new();
    let (mut lines, mut masked) = (0, 0);
    for file in files {
        let (more, hidden) = count(&mask, &fs::read_to_string(file).unwrap(), &mut shown);
        (lines, masked) = (lines + more, masked + hidden);
    }
    assert_rate("repository", (lines, masked), &shown);
}
