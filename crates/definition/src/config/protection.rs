//! The protection of a server: rate limits and TLS.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::agent::RateLimit;
use crate::file::checker::FileChecker;
use crate::file::path::FieldPath;
use crate::value::Text;

/// The rate limits of a server. Without them, callers are not limited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RateLimits {
    /// The requests of each token.
    pub per_token: Option<RateLimit>,
    /// The starts of work of each agent or workflow, by all tokens together.
    pub per_agent: Option<RateLimit>,
}

/// TLS with a certificate of files.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Tls")]
pub(super) struct TlsFile {
    /// The PEM file of the certificate and its chain, relative to the home. It is read again when
    /// it changes.
    #[schemars(with = "Text")]
    certificate: Option<Text>,
    /// The PEM file of the private key, relative to the home.
    #[schemars(with = "Text")]
    key: Option<Text>,
}

/// TLS with a certificate of files, both relative to the home.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsSettings {
    /// The PEM file of the certificate and its chain.
    pub certificate: Text,
    /// The PEM file of the private key.
    pub key: Text,
}

impl TlsFile {
    pub(super) fn check(self, path: &FieldPath, checker: &mut FileChecker) -> Option<TlsSettings> {
        let certificate = checker.require(&path.field("certificate"), self.certificate);
        let key = checker.require(&path.field("key"), self.key);
        Some(TlsSettings { certificate: certificate?, key: key? })
    }
}
