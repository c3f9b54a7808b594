//! An agent's A2A endpoint.

use std::num::{NonZeroU32, NonZeroU64};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::file::checker::FileChecker;
use crate::file::path::FieldPath;
use crate::file::problem::FindingText;
use crate::value::{EnvName, Text};

const CONTENT_TYPE_DEFAULT: &str = "text/plain";

/// An agent's A2A endpoint.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "A2aFile")]
pub(crate) struct A2aEndpointFile {
    /// The path of the endpoint; default `/agents/NAME/v1`.
    #[schemars(regex(pattern = "^/"))]
    base_path: Option<Text>,
    /// The transports; default all.
    #[schemars(extend("default" = ["json_rpc", "http_json", "grpc"], "uniqueItems" = true))]
    transport_protocols: Option<Vec<A2aTransport>>,
    /// The authentication of callers; default the server's own.
    authentication: Option<AuthenticationFile>,
    /// The rate limit.
    rate_limiting: Option<RateLimit>,
    /// The capabilities on the agent card.
    capabilities: Option<A2aCapabilitiesFile>,
}

/// A transport of the A2A protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum A2aTransport {
    /// JSON-RPC 2.0 over HTTP.
    JsonRpc,
    /// Plain HTTP with JSON bodies.
    HttpJson,
    /// gRPC.
    Grpc,
}

impl A2aTransport {
    /// Every transport, in the order they are advertised.
    pub const ALL: [Self; 3] = [Self::JsonRpc, Self::HttpJson, Self::Grpc];
}

/// The authentication of callers.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AuthenticationFile {
    /// The type of credentials.
    #[schemars(required)]
    r#type: Option<AuthenticationType>,
    /// The environment variable that holds the token.
    token_env: Option<EnvName>,
    /// The HTTP header that carries the token; `Authorization`, or `X-API-Key` for `api_key`.
    header_name: Option<Text>,
    /// Refuses calls without a token; default true unless the type is `none`.
    required: Option<bool>,
}

/// The credentials that a caller sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AuthenticationType {
    /// `Authorization: Bearer TOKEN`.
    BearerToken,
    /// The token alone in a header of its own.
    ApiKey,
    /// Nothing.
    None,
}

/// The rate limit of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RateLimit {
    /// The most calls in a minute, on average.
    pub requests_per_minute: NonZeroU32,
    /// The most calls at once; default as many as in a minute.
    pub burst: Option<NonZeroU32>,
}

/// The capabilities on an agent card.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct A2aCapabilitiesFile {
    /// The supported methods; default all.
    supported_methods: Option<Vec<Text>>,
    /// The largest input, in bytes; default the server's limit.
    max_input_size: Option<NonZeroU64>,
    /// The largest output, in bytes; default the server's limit.
    max_output_size: Option<NonZeroU64>,
    /// True if the answer may be streamed.
    #[schemars(extend("default" = true))]
    streaming_support: Option<bool>,
    /// True if calls may run concurrently.
    #[schemars(extend("default" = true))]
    concurrent_execution: Option<bool>,
    /// The media types of input and output.
    #[schemars(extend("default" = [CONTENT_TYPE_DEFAULT]))]
    supported_content_types: Option<Vec<Text>>,
}

/// An agent's A2A endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct A2aDefinition {
    /// The path under which the agent answers, if not the usual one.
    pub base_path: Option<Text>,
    /// The transports it answers on.
    pub transport_protocols: Vec<A2aTransport>,
    /// The authentication of callers; the server's own if none.
    pub authentication: Option<AuthenticationDefinition>,
    /// The rate limit.
    pub rate_limiting: Option<RateLimit>,
    /// The capabilities on the agent card.
    pub capabilities: A2aCapabilities,
}

/// The authentication of callers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthenticationDefinition {
    /// The type of credentials.
    pub r#type: AuthenticationType,
    /// The environment variable that holds the token; there unless the type is none.
    pub token_env: Option<EnvName>,
    /// The HTTP header that carries the token; there unless the type is none.
    pub header_name: Option<Text>,
    /// True if calls without a token are refused.
    pub required: bool,
}

/// The capabilities on an agent card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct A2aCapabilities {
    /// The methods the agent answers; all of them if none is named.
    pub supported_methods: Vec<Text>,
    /// The largest input, in bytes, if smaller than the server's.
    pub max_input_size: Option<NonZeroU64>,
    /// The largest output, in bytes, if smaller than the server's.
    pub max_output_size: Option<NonZeroU64>,
    /// True if the answer may be streamed.
    pub streaming_support: bool,
    /// True if calls may run concurrently.
    pub concurrent_execution: bool,
    /// The media types of input and output.
    pub supported_content_types: Vec<Text>,
}

impl A2aEndpointFile {
    pub(super) fn check(
        self,
        path: &FieldPath,
        checker: &mut FileChecker,
    ) -> Option<A2aDefinition> {
        if let Some(base_path) =
            self.base_path.as_ref().filter(|path| !path.as_str().starts_with('/'))
        {
            let place = path.field("base_path");
            let message = format!("{place}: \"{base_path}\" must start with \"/\"");
            checker.report(&place, FindingText::new(message).found(base_path.as_str()));
        }
        let transports = self.transport_protocols.unwrap_or_else(|| A2aTransport::ALL.to_vec());
        let transports_path = path.field("transport_protocols");
        if checker.is_empty(&transports_path) {
            checker.report(
                &transports_path,
                FindingText::new(format!("{transports_path} must name at least one transport"))
                    .allowed("json_rpc, http_json, grpc"),
            );
        }
        let authentication =
            self.authentication.and_then(|file| file.check(&path.field("authentication"), checker));
        Some(A2aDefinition {
            base_path: self.base_path,
            transport_protocols: transports,
            authentication,
            rate_limiting: self.rate_limiting,
            capabilities: self.capabilities.unwrap_or_default().into_valid()?,
        })
    }
}

impl A2aCapabilitiesFile {
    fn into_valid(self) -> Option<A2aCapabilities> {
        let content_types = match self.supported_content_types {
            Some(types) => types,
            None => vec![CONTENT_TYPE_DEFAULT.parse().ok()?],
        };
        Some(A2aCapabilities {
            supported_methods: self.supported_methods.unwrap_or_default(),
            max_input_size: self.max_input_size,
            max_output_size: self.max_output_size,
            streaming_support: self.streaming_support.unwrap_or(true),
            concurrent_execution: self.concurrent_execution.unwrap_or(true),
            supported_content_types: content_types,
        })
    }
}

impl AuthenticationFile {
    pub(super) fn check(
        self,
        path: &FieldPath,
        checker: &mut FileChecker,
    ) -> Option<AuthenticationDefinition> {
        let r#type = checker.require(&path.field("type"), self.r#type)?;
        let (header_default, has_token) = match r#type {
            AuthenticationType::BearerToken => ("Authorization", true),
            AuthenticationType::ApiKey => ("X-API-Key", true),
            AuthenticationType::None => ("", false),
        };
        let when = "unless the type is none";
        if has_token {
            checker.require_when(&path.field("token_env"), self.token_env.as_ref(), when);
        }
        checker.refuse_unless(has_token, &path.field("token_env"), when);
        checker.refuse_unless(has_token, &path.field("header_name"), when);
        if let Some(name) = self.header_name.as_ref().filter(|name| !is_header(name.as_str())) {
            let place = path.field("header_name");
            let message = format!("{place}: \"{name}\" is no name of an HTTP header");
            checker.report(&place, FindingText::new(message));
        }
        if !has_token && self.required == Some(true) {
            let place = path.field("required");
            let message = format!("{place} is true, but the type is none: nothing could be sent");
            checker.report(&place, FindingText::new(message));
        }
        Some(AuthenticationDefinition {
            r#type,
            token_env: self.token_env,
            header_name: self.header_name.or_else(|| header_default.parse().ok()),
            required: self.required.unwrap_or(has_token),
        })
    }
}

/// True if a text is a valid HTTP header name.
fn is_header(name: &str) -> bool {
    let may_be = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.bytes().all(may_be)
}

impl A2aDefinition {
    pub(super) fn to_file(&self) -> A2aEndpointFile {
        A2aEndpointFile {
            base_path: self.base_path.clone(),
            transport_protocols: Some(self.transport_protocols.clone()),
            authentication: self.authentication.as_ref().map(AuthenticationDefinition::to_file),
            rate_limiting: self.rate_limiting,
            capabilities: Some(self.capabilities.to_file()),
        }
    }
}

impl A2aCapabilities {
    fn to_file(&self) -> A2aCapabilitiesFile {
        A2aCapabilitiesFile {
            supported_methods: Some(self.supported_methods.clone()),
            max_input_size: self.max_input_size,
            max_output_size: self.max_output_size,
            streaming_support: Some(self.streaming_support),
            concurrent_execution: Some(self.concurrent_execution),
            supported_content_types: Some(self.supported_content_types.clone()),
        }
    }
}

impl AuthenticationDefinition {
    pub(super) fn to_file(&self) -> AuthenticationFile {
        AuthenticationFile {
            r#type: Some(self.r#type),
            token_env: self.token_env.clone(),
            header_name: self.header_name.clone(),
            required: Some(self.required),
        }
    }
}
