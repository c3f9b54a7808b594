//! Signed notifications in the form of Standard Webhooks 1.0.0.
//!
//! A sender posts one notification and reports the outcome. It holds no queue and repeats nothing.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use polity_definition::{Text, WebhookSettings};
use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, Url};
use ring::hmac;

use crate::environment::EnvSource;
use crate::http::address_check::{CheckedClientError, RefusedAddress, checked_client};
use crate::http::root_cause;
use crate::secrets::SecretSet;

/// The time limit of one attempt.
const ATTEMPT_TIME_MAX: Duration = Duration::from_secs(15);

/// The prefix of secrets.
const SECRET_PREFIX: &str = "whsec_";

/// The sizes of a secret, in bytes.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// The status by which a server says that it wants no more notifications.
const GONE: u16 = 410;

/// An error of a webhook. It contains no secret.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum WebhookError {
    /// A setting references an unset variable.
    #[error("notify.webhooks.{field} needs the environment variable {name}, which is not set")]
    Unset { field: &'static str, name: String },
    /// The address is not a URL.
    #[error("an address of notify.webhooks does not start with http:// or https://")]
    NoAddress,
    /// A secret has another form.
    #[error(
        "{name} of notify.webhooks.secret_env is not \"whsec_\" and the Base64 of 24 to 64 bytes"
    )]
    BadSecret { name: String },
    /// The address is not public.
    #[error("notify.webhooks.url: {0}")]
    Private(RefusedAddress),
    /// The HTTP client cannot be created.
    #[error("HTTP cannot be set up for notify.webhooks: {reason}")]
    NoClient { reason: String },
    /// The server is unreachable.
    #[error("the server {server} of notify.webhooks cannot be reached: {reason}")]
    NotReached { server: String, reason: String },
    /// The server did not accept the notification. Redirects are not followed.
    #[error("the server {server} of notify.webhooks answered with status {status}")]
    Refused { server: String, status: u16 },
}

impl WebhookError {
    /// The fix.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Unset { .. } => "set it where Polity is started, or take it out of polity.yaml",
            Self::NoAddress => "correct it in polity.yaml, or the variable that it names",
            Self::BadSecret { .. } => {
                "make one with `echo whsec_$(openssl rand -base64 32)`, and give it to the receiver"
            }
            Self::Private(_) => {
                "if this is intended, list the host in notify.webhooks.allow_private"
            }
            Self::NoClient { .. } => "see that this machine has certificates",
            Self::NotReached { .. } => "see that the address is right, and that its server runs",
            Self::Refused { .. } => "see what is wrong with that server",
        }
    }

    /// True if the server wants no more notifications.
    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Refused { status: GONE, .. })
    }

    /// True if other notifications will fail too for now: the server is down, not picky.
    pub fn is_outage(&self) -> bool {
        matches!(self, Self::NotReached { .. } | Self::Refused { status: 429 | 500.., .. })
    }
}

/// A webhook that is ready to be called.
pub struct WebhookSender {
    url: Url,
    /// The host and port, for messages.
    server: String,
    client: Client,
    /// The current secret and those that it replaces.
    keys: Vec<hmac::Key>,
    secrets: SecretSet,
}

impl WebhookSender {
    /// Fills in the settings of a webhook.
    pub fn new(settings: &WebhookSettings, environment: &EnvSource) -> Result<Self, WebhookError> {
        let mut filled_in = Vec::new();
        let url = environment
            .fill(settings.url.as_str(), &mut filled_in)
            .map_err(|name| WebhookError::Unset { field: "url", name: name.to_owned() })?;
        let is_web = |url: &Url| matches!(url.scheme(), "http" | "https") && url.has_host();
        let url = Url::parse(&url).ok().filter(is_web).ok_or(WebhookError::NoAddress)?;
        let name = settings.secret_env.as_str();
        let unset = || WebhookError::Unset { field: "secret_env", name: name.to_owned() };
        let secrets = environment.get(name).ok_or_else(unset)?;
        let keys: Option<Vec<_>> = secrets.split_whitespace().map(key_of).collect();
        let keys = keys.ok_or_else(|| WebhookError::BadSecret { name: name.to_owned() })?;
        let allowed: Vec<_> = settings.allow_private.iter().map(Text::as_str).collect();
        let client = checked_client(&url, &allowed).map_err(|error| match error {
            CheckedClientError::Refused(refused) => WebhookError::Private(refused),
            CheckedClientError::Setup(error) => {
                WebhookError::NoClient { reason: root_cause(error) }
            }
        })?;
        let parts = [Some(url.path()), url.query(), url.password(), Some(url.username())];
        let secrets =
            SecretSet::new(filled_in.iter().map(String::as_str).chain(parts.into_iter().flatten()));
        let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
        let server = secrets.redact(&format!("{}{port}", url.host_str().unwrap_or_default()));
        Ok(Self { url, server, client, keys, secrets })
    }

    /// The host and port, for messages.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Posts a notification once.
    pub async fn send(&self, id: &str, body: &[u8], now: Timestamp) -> Result<(), WebhookError> {
        let seconds = now.as_second();
        let request = self
            .client
            .post(self.url.clone())
            .timeout(ATTEMPT_TIME_MAX)
            .header(CONTENT_TYPE, "application/json")
            .header("webhook-id", id)
            .header("webhook-timestamp", seconds)
            .header("webhook-signature", signature(&self.keys, id, seconds, body));
        let sent = request.body(body.to_vec()).send().await;
        let answer = sent.map_err(|error| WebhookError::NotReached {
            server: self.server.clone(),
            reason: self.secrets.redact(&root_cause(error)),
        })?;
        let status = answer.status();
        if status.is_success() {
            return Ok(());
        }
        Err(WebhookError::Refused { server: self.server.clone(), status: status.as_u16() })
    }
}

fn key_of(secret: &str) -> Option<hmac::Key> {
    let bytes = STANDARD.decode(secret.strip_prefix(SECRET_PREFIX)?).ok()?;
    SECRET_BYTES.contains(&bytes.len()).then(|| hmac::Key::new(hmac::HMAC_SHA256, &bytes))
}

/// The signatures of a notification, one for each secret.
fn signature(keys: &[hmac::Key], id: &str, seconds: i64, body: &[u8]) -> String {
    let signed = [id.as_bytes(), b".", seconds.to_string().as_bytes(), b".", body].concat();
    let sign = |key| format!("v1,{}", STANDARD.encode(hmac::sign(key, &signed)));
    keys.iter().map(sign).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    #[test]
    fn signs_as_the_specification_does() {
        let key = key_of(SECRET).unwrap();
        let id = "msg_p5jXN8AQM9LWM0D4loKWxJek";
        let one = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        let body = br#"{"test": 2432232314}"#;
        assert_eq!(signature(std::slice::from_ref(&key), id, 1_614_265_330, body), one);
        let both = signature(&[key.clone(), key], id, 1_614_265_330, body);
        assert_eq!(both, format!("{one} {one}"));
    }

    #[test]
    fn short_and_malformed_secrets_are_refused() {
        for secret in
            ["", "whsec_", "whsec_c2hvcnQ=", "whsec_?", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]
        {
            assert!(key_of(secret).is_none(), "{secret}");
        }
    }
}
