//! The files of tokens: `data/tokens.json` with digests, and the local token of this user.

use std::io;
use std::path::{Path, PathBuf};

use polity_files::{FileAccess, read_named_file, write_bytes};

use super::token::{TokenRecord, secret_of};
use super::token_set::TOKEN_CHARACTERS_MIN;

/// The name of the file with the local token, in the data folder.
pub const LOCAL_TOKEN_FILE: &str = "server.token";

/// The name of the file with the digests of tokens, in the data folder.
const TOKENS_FILE: &str = "tokens.json";

/// The largest file of tokens.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// An error of a token file.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum TokenFileError {
    /// The file cannot be read or written.
    #[error("cannot {doing} {}: {source}", path.display())]
    Io { doing: &'static str, path: PathBuf, source: io::Error },
    /// The file is not a list of tokens.
    #[error("{} is not a file of tokens: {reason}", path.display())]
    Invalid { path: PathBuf, reason: String },
}

/// The file with the digests of tokens.
#[derive(Debug, Clone)]
pub struct TokenFile {
    path: PathBuf,
}

impl TokenFile {
    /// The file of a home: `server.auth.tokens_file` relative to the home, else in its data folder.
    pub fn of(home: &Path, data: &Path, configured: Option<&str>) -> Self {
        Self { path: configured.map_or_else(|| data.join(TOKENS_FILE), |file| home.join(file)) }
    }

    /// The path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the tokens. A missing file has none.
    pub fn read(&self) -> Result<Vec<TokenRecord>, TokenFileError> {
        let Some(bytes) = read(&self.path)? else { return Ok(Vec::new()) };
        serde_json::from_slice(&bytes).map_err(|error| TokenFileError::Invalid {
            path: self.path.clone(),
            reason: error.to_string(),
        })
    }

    /// Replaces the tokens.
    pub fn write(&self, tokens: &[TokenRecord]) -> Result<(), TokenFileError> {
        let invalid = |error: serde_json::Error| TokenFileError::Invalid {
            path: self.path.clone(),
            reason: error.to_string(),
        };
        let mut bytes = serde_json::to_vec_pretty(tokens).map_err(invalid)?;
        bytes.push(b'\n');
        write(&self.path, &bytes)
    }
}

/// The local token of a home, if its server has made one.
pub fn read_local_token(data: &Path) -> Result<Option<String>, TokenFileError> {
    let bytes = read(&data.join(LOCAL_TOKEN_FILE))?;
    Ok(bytes.and_then(|bytes| String::from_utf8(bytes).ok()).map(|text| text.trim().to_owned()))
}

/// Returns the local token of a home, and makes one if there is none or a short one.
pub(crate) fn make_local_token(data: &Path, random: [u8; 32]) -> Result<String, TokenFileError> {
    let is_strong = |token: &String| token.chars().count() >= TOKEN_CHARACTERS_MIN;
    if let Some(token) = read_local_token(data)?.filter(is_strong) {
        return Ok(token);
    }
    let token = secret_of(random);
    write(&data.join(LOCAL_TOKEN_FILE), format!("{token}\n").as_bytes())?;
    Ok(token)
}

fn read(path: &Path) -> Result<Option<Vec<u8>>, TokenFileError> {
    if let Ok(false) = path.try_exists() {
        return Ok(None);
    }
    let read = read_named_file(path, FILE_BYTES_MAX);
    read.map(Some).map_err(|error| TokenFileError::Io {
        doing: "read",
        path: path.to_owned(),
        source: error.into(),
    })
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), TokenFileError> {
    write_bytes(path, FileAccess::Private, bytes).map_err(|source| TokenFileError::Io {
        doing: "write",
        path: path.to_owned(),
        source,
    })
}
