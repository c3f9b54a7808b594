//! Agents on other servers, reached over A2A.

use polity_model::name::Name;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::a2a::{A2aEndpointFile, AuthenticationDefinition, AuthenticationFile};
use crate::file::checker::FileChecker;
use crate::file::path::FieldPath;
use crate::file::problem::FindingText;
use crate::value::{HttpUrl, Text};

/// An agent on another server, reached over A2A.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RemoteAgentFile {
    /// The agent's name; the same as the name of its file.
    #[schemars(required)]
    pub(crate) name: Option<Name>,
    /// The agent's role in a few words, for people and other agents.
    role: Option<Text>,
    /// The address of the agent's card.
    #[schemars(required)]
    card_url: Option<HttpUrl>,
    /// The credentials for the remote server.
    auth: Option<AuthenticationFile>,
    /// The agent's A2A endpoint on this server.
    pub(crate) a2a: Option<A2aEndpointFile>,
}

/// An agent on another server, valid and frozen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteAgent {
    /// The agent's role.
    pub role: Option<Text>,
    /// The address of the agent's card.
    pub card_url: HttpUrl,
    /// The credentials for the remote server.
    pub auth: Option<AuthenticationDefinition>,
}

impl RemoteAgentFile {
    pub(super) fn check(self, checker: &mut FileChecker) -> Option<RemoteAgent> {
        let root = FieldPath::root();
        let card_url = checker.require(&root.field("card_url"), self.card_url);
        if let Some(url) = card_url.as_ref().filter(|url| has_password(url.as_str())) {
            let place = root.field("card_url");
            let message = format!(
                "{place}: {} has a name or a password in it, which everyone sees: use auth",
                shown(url.as_str())
            );
            checker.report(&place, FindingText::new(message));
        }
        let auth = self.auth.and_then(|auth| auth.check(&root.field("auth"), checker));
        Some(RemoteAgent { role: self.role, card_url: card_url?, auth })
    }
}

/// True if an address has user info before its host.
fn has_password(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split(['/', '?', '#']).next().is_some_and(|host| host.contains('@'))
}

/// The address without user info.
fn shown(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let host = rest.split_once('@').map_or(rest, |(_, host)| host);
    format!("{scheme}://{host}")
}

impl RemoteAgent {
    pub(super) fn to_file(
        &self,
        name: Option<Name>,
        a2a: Option<A2aEndpointFile>,
    ) -> RemoteAgentFile {
        RemoteAgentFile {
            name,
            role: self.role.clone(),
            card_url: Some(self.card_url.clone()),
            auth: self.auth.as_ref().map(AuthenticationDefinition::to_file),
            a2a,
        }
    }
}
