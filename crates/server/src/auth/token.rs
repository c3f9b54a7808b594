//! A token: a random secret of which only the digest is kept.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use polity_engine::entropy::{EntropySource, SystemEntropy};
use polity_model::digest::Digest;
use polity_model::name::Name;
use serde::{Deserialize, Serialize};

/// The prefix of tokens, by which scanners for leaked secrets know them.
const PREFIX: &str = "polity_";

/// A right of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Read everything except secrets.
    Read,
    /// Start, cancel and continue work.
    Run,
    /// Answer reviews.
    Review,
    /// Change agents and schedules; includes all others.
    Admin,
}

impl Scope {
    /// All scopes.
    pub const ALL: [Self; 4] = [Self::Read, Self::Run, Self::Review, Self::Admin];

    /// The name, as files and messages have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Run => "run",
            Self::Review => "review",
            Self::Admin => "admin",
        }
    }
}

/// A token as it is stored: everything but the secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenRecord {
    /// The id, for people: `polity token revoke ID`.
    pub id: String,
    /// The purpose, for people.
    pub name: String,
    /// The SHA-256 digest of the secret.
    pub digest: Digest,
    /// The rights.
    pub scopes: Vec<Scope>,
    /// The agents and workflows that it may see and use; all if none are listed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agents: Option<Vec<Name>>,
    /// The time at which it was created.
    pub created_at: Timestamp,
    /// The time from which it is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

/// A token with its secret, which is shown once.
#[derive(Debug, Clone)]
pub struct NewToken {
    /// The secret.
    pub secret: String,
    /// The record to store.
    pub record: TokenRecord,
}

impl NewToken {
    /// Makes a token from random bytes.
    pub fn new(
        random: [u8; 32],
        name: &str,
        scopes: Vec<Scope>,
        agents: Option<Vec<Name>>,
        created_at: Timestamp,
        expires_at: Option<Timestamp>,
    ) -> Self {
        let secret = secret_of(random);
        let digest = Digest::of(secret.as_bytes());
        let id = digest.to_string().chars().take(8).collect();
        let name = name.to_owned();
        let record = TokenRecord { id, name, digest, scopes, agents, created_at, expires_at };
        Self { secret, record }
    }
}

/// The text of a secret.
pub(crate) fn secret_of(random: [u8; 32]) -> String {
    format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(random))
}

/// The random bytes of a new secret.
pub fn random_secret() -> [u8; 32] {
    let mut bytes = [0; 32];
    for part in bytes.chunks_mut(SystemEntropy.seed().len()) {
        part.copy_from_slice(&SystemEntropy.seed()[..part.len()]);
    }
    bytes
}
