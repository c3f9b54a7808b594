//! Searches files for a secret, as it is or encoded.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

/// The files below a folder that contain the secret: as it is, in hexadecimal or in Base64.
pub fn files_with_secret(folder: &Path, secret: &str) -> Vec<PathBuf> {
    let forms = encoded_forms(secret);
    let contains = |path: &PathBuf| {
        let bytes = fs::read(path).unwrap_or_default();
        forms.iter().any(|form| memchr::memmem::find(&bytes, form.as_bytes()).is_some())
    };
    all_files(folder).into_iter().filter(contains).collect()
}

/// All files below a folder.
pub fn all_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => files.extend(all_files(&entry.path())),
            Ok(_) => files.push(entry.path()),
            // Another process has removed it.
            Err(_) => {}
        }
    }
    files
}

fn hexadecimal(text: &str) -> String {
    text.bytes().fold(String::new(), |mut digits, byte| {
        write!(digits, "{byte:02x}").unwrap();
        digits
    })
}

fn encoded_forms(secret: &str) -> Vec<String> {
    let lower = hexadecimal(secret);
    let mut forms = vec![secret.to_owned(), lower.to_uppercase(), lower];
    for engine in [STANDARD_NO_PAD, URL_SAFE_NO_PAD] {
        // The digits depend on the position of the secret in the encoded text. The first and the
        // last digit may be shared with its neighbours.
        for before in 0..3 {
            let text = engine.encode([&vec![0; before], secret.as_bytes()].concat());
            let first = (before * 8).div_ceil(6);
            forms.push(text[first..text.len() - 1].to_owned());
        }
    }
    forms
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_secret_is_found_at_every_offset() {
        let folder = tempfile::tempdir().unwrap();
        let secret = "Zk3Jd8sQ1mP0vX7y";
        for before in ["", "a", "ab", "abc"] {
            let text = format!("{before}{secret} and more");
            let hex = hexadecimal(&text).to_uppercase();
            for encoded in [STANDARD_NO_PAD.encode(&text), hex, text] {
                fs::write(folder.path().join("file"), encoded).unwrap();
                assert_eq!(files_with_secret(folder.path(), secret).len(), 1, "{before:?}");
            }
        }
        fs::write(folder.path().join("file"), "nothing").unwrap();
        assert!(files_with_secret(folder.path(), secret).is_empty());
    }
}
