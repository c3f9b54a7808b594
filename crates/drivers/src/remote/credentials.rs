//! The credentials for calls to an agent on another server.

use polity_definition::{AgentDefinition, AuthenticationType, RemoteAgent};
use polity_engine::driver::NotReady;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use crate::environment::EnvSource;
use crate::keys;
use crate::secrets::SecretSet;

/// The credentials of one agent.
#[derive(Debug, Default)]
pub(super) struct RemoteCredentials {
    pub(super) headers: HeaderMap,
    /// The variable with the token, if there is one.
    pub(super) variable: Option<String>,
    /// The token, to be redacted in responses.
    pub(super) secrets: SecretSet,
}

/// The agent's token, if the environment has it.
pub(crate) fn secret_values(remote: &RemoteAgent, environment: &EnvSource) -> Vec<String> {
    let variable = remote.auth.as_ref().and_then(|auth| auth.token_env.as_ref());
    // An unusable token is never sent.
    let key =
        variable.and_then(|variable| keys::load_key(environment, variable.as_str()).ok().flatten());
    key.map(|key| key.expose().to_owned()).into_iter().collect()
}

impl RemoteCredentials {
    /// Loads the credentials that the agent's definition names.
    pub(super) fn load(
        agent: &AgentDefinition,
        remote: &RemoteAgent,
        environment: &EnvSource,
    ) -> Result<Self, NotReady> {
        let Some(auth) = &remote.auth else { return Ok(Self::default()) };
        let prefix = match auth.r#type {
            AuthenticationType::BearerToken => "Bearer ",
            AuthenticationType::ApiKey => "",
            AuthenticationType::None => return Ok(Self::default()),
        };
        let (Some(variable), Some(header)) = (&auth.token_env, &auth.header_name) else {
            return Ok(Self::default());
        };
        let variable = variable.as_str();
        let not_ready = |message: String, hint: String| NotReady {
            message: format!("agent \"{}\": {message}", agent.name),
            hint,
        };
        let hint = || {
            let file = keys::file_variable(variable);
            format!("`export {variable}=...`, or set {file} to the path of a file that holds it")
        };
        let key = match keys::load_key(environment, variable) {
            Ok(Some(key)) => key,
            Ok(None) if !auth.required => return Ok(Self::default()),
            Ok(None) => {
                let message = format!("{variable} is not set, which holds its token");
                return Err(not_ready(message, hint()));
            }
            Err(unusable) => return Err(not_ready(unusable.message, hint())),
        };
        let name = HeaderName::from_bytes(header.as_str().as_bytes()).map_err(|_| {
            let message = format!("auth.header_name: \"{header}\" is no name of an HTTP header");
            not_ready(message, "give it one, such as X-API-Key".to_owned())
        })?;
        let value = HeaderValue::from_str(&format!("{prefix}{}", key.expose()));
        let mut value = value.map_err(|_| {
            not_ready(format!("the token in {variable} cannot be sent in a header"), hint())
        })?;
        value.set_sensitive(true);
        Ok(Self {
            headers: HeaderMap::from_iter([(name, value)]),
            variable: Some(variable.to_owned()),
            secrets: SecretSet::new([key.expose()]),
        })
    }
}
