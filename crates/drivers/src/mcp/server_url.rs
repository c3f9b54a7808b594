//! The address of an HTTP server, with its variables filled in.

use polity_definition::UrlTemplate;
use polity_model::failure::AttemptFailure;
use reqwest::Url;

use super::permanent;
use crate::environment::EnvSource;
use crate::secrets::SecretSet;

/// An address and the secrets in it.
pub(super) struct ServerAddress {
    pub(super) url: Url,
    pub(super) secrets: SecretSet,
}

/// Fills in the variables of a server's `url`.
pub(super) fn resolve(
    server: &str,
    url: &UrlTemplate,
    environment: &EnvSource,
) -> Result<ServerAddress, AttemptFailure> {
    let mut filled_in = Vec::new();
    let filled = environment.fill(url.as_str(), &mut filled_in).map_err(|missing| {
        permanent(format!(
            "MCP server \"{server}\" needs the environment variable {missing}, which is not set (it \
             is named in its url)"
        ))
    })?;
    let url = Url::parse(filled.trim())
        .ok()
        .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    let url = url.ok_or_else(|| {
        // The address is not repeated: it may contain a secret.
        permanent(format!(
            "the url of MCP server \"{server}\" is not an address that starts with http:// or \
             https:// once its variables are filled in"
        ))
    })?;
    Ok(ServerAddress { url, secrets: secrets_in(&filled_in) })
}

/// The values of the variables that a server's address references.
pub(super) fn secret_values(url: &UrlTemplate, environment: &EnvSource) -> Vec<String> {
    let mut filled_in = Vec::new();
    // A server with an unset variable is never connected to.
    let _ = environment.fill(url.as_str(), &mut filled_in);
    filled_in
}

/// The values as written and as encoded in an address.
fn secrets_in(filled_in: &[String]) -> SecretSet {
    let encoded: Vec<String> = filled_in
        .iter()
        .filter_map(|value| {
            let mut url = Url::parse("http://x/").ok()?;
            url.set_path(value);
            Some(url.path().trim_start_matches('/').to_owned())
        })
        .collect();
    SecretSet::new(filled_in.iter().chain(&encoded).map(String::as_str))
}
