//! The tokens that a server accepts, read again when their file changes.

use std::os::unix::fs::MetadataExt as _;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;

use jiff::Timestamp;
use polity_model::digest::Digest;
use polity_model::name::Name;
use subtle::ConstantTimeEq;

use super::token::{Scope, TokenRecord};
use super::token_file::{TokenFile, TokenFileError};

/// The fewest characters of a token that is not made by Polity.
pub(crate) const TOKEN_CHARACTERS_MIN: usize = 32;

/// The id of the local token's grant. Ids of other tokens are random.
pub(crate) const LOCAL_GRANT: &str = "local";

/// The rights behind a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TokenGrant {
    /// The id of the token.
    pub(crate) id: Arc<str>,
    /// The name of the token.
    pub(crate) name: Arc<str>,
    digest: Digest,
    scopes: Vec<Scope>,
    agents: Option<Vec<Name>>,
    expires_at: Option<Timestamp>,
}

impl TokenGrant {
    /// The grant of a token with all rights.
    pub(crate) fn of_all(id: &str, secret: &str) -> Self {
        Self {
            id: id.into(),
            name: id.into(),
            digest: Digest::of(secret.as_bytes()),
            scopes: Scope::ALL.to_vec(),
            agents: None,
            expires_at: None,
        }
    }

    fn of(record: TokenRecord) -> Self {
        Self {
            id: record.id.into(),
            name: record.name.into(),
            digest: record.digest,
            scopes: record.scopes,
            agents: record.agents,
            expires_at: record.expires_at,
        }
    }

    /// True if the token has a right.
    pub(crate) fn has(&self, scope: Scope) -> bool {
        self.scopes.contains(&scope) || self.scopes.contains(&Scope::Admin)
    }

    /// True if the token may see and use an agent or workflow.
    pub(crate) fn may_use(&self, name: &Name) -> bool {
        self.agents.as_ref().is_none_or(|agents| agents.contains(name))
    }

    /// The only agents and workflows that the token may see and use, if it is limited.
    pub(crate) fn agents(&self) -> Option<&[Name]> {
        self.agents.as_deref()
    }
}

/// The version of the token file that was read last: its time, size and inode.
type TokenFileVersion = Option<(SystemTime, u64, u64)>;

/// The tokens that are accepted.
#[derive(Debug)]
pub(crate) struct TokenSet {
    file: TokenFile,
    fixed: Vec<Arc<TokenGrant>>,
    listed: RwLock<(TokenFileVersion, Vec<Arc<TokenGrant>>)>,
}

impl TokenSet {
    /// Reads the tokens of a file; `fixed` ones are accepted besides.
    pub(crate) fn open(file: TokenFile, fixed: Vec<TokenGrant>) -> Result<Self, TokenFileError> {
        let version = version_of(&file);
        let listed = file.read()?.into_iter().map(TokenGrant::of).map(Arc::new).collect();
        let fixed = fixed.into_iter().map(Arc::new).collect();
        Ok(Self { file, fixed, listed: RwLock::new((version, listed)) })
    }

    /// True if no token is accepted but fixed ones.
    pub(crate) fn is_empty(&self) -> bool {
        self.listed.read().unwrap_or_else(PoisonError::into_inner).1.is_empty()
    }

    /// The grant of a secret, if it is accepted at this time.
    pub(crate) fn find(&self, secret: &str, now: Timestamp) -> Option<Arc<TokenGrant>> {
        self.refresh();
        let digest = Digest::of(secret.as_bytes());
        let listed = self.listed.read().unwrap_or_else(PoisonError::into_inner);
        // Every token is compared, so that the time reveals nothing.
        let mut found = None;
        for grant in self.fixed.iter().chain(&listed.1) {
            if bool::from(grant.digest.as_bytes().ct_eq(digest.as_bytes())) {
                found = Some(Arc::clone(grant));
            }
        }
        found.filter(|grant| grant.expires_at.is_none_or(|end| now < end))
    }

    /// True if a grant is still accepted.
    pub(crate) fn still_holds(&self, grant: &TokenGrant, now: Timestamp) -> bool {
        self.refresh();
        let listed = self.listed.read().unwrap_or_else(PoisonError::into_inner);
        let is_known = self.fixed.iter().chain(&listed.1).any(|other| **other == *grant);
        is_known && grant.expires_at.is_none_or(|end| now < end)
    }

    /// Reads the file again if it has changed. A file that cannot be read keeps the tokens.
    fn refresh(&self) {
        let version = version_of(&self.file);
        if self.listed.read().unwrap_or_else(PoisonError::into_inner).0 == version {
            return;
        }
        match self.file.read() {
            Ok(records) => {
                let grants = records.into_iter().map(TokenGrant::of).map(Arc::new).collect();
                *self.listed.write().unwrap_or_else(PoisonError::into_inner) = (version, grants);
            }
            Err(error) => {
                tracing::error!(%error, "the tokens stay as they were");
                // It is read again when it changes, not for each request.
                self.listed.write().unwrap_or_else(PoisonError::into_inner).0 = version;
            }
        }
    }
}

fn version_of(file: &TokenFile) -> TokenFileVersion {
    let metadata = std::fs::metadata(file.path()).ok()?;
    Some((metadata.modified().ok()?, metadata.len(), metadata.ino()))
}
