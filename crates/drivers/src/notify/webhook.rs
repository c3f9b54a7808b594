//! The notification webhook.

use std::time::Duration;

use polity_definition::UrlTemplate;
use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, Url};

use super::{NotificationPayload, NotifyError, NotifyOptions, append_text};
use crate::http;
use crate::secrets::SecretSet;

/// The delays before retries.
const RETRY_PAUSES: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(1)];

/// The largest part of an error response that is read, in bytes.
const ERROR_BYTES_MAX: usize = 4096;

/// The longest excerpt in an error, in characters.
const SHOWN_CHARACTERS_MAX: usize = 200;

/// Posts the notification, with a few retries.
pub(super) async fn call(
    webhook: &UrlTemplate,
    payload: &NotificationPayload,
    options: &NotifyOptions,
) -> Result<(), NotifyError> {
    let mut filled_in = Vec::new();
    let url = options
        .environment
        .fill(webhook.as_str(), &mut filled_in)
        .map_err(|name| NotifyError::Unset { field: "webhook", name: name.to_owned() })?;
    let url = Url::parse(&url)
        .ok()
        .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
        .ok_or(NotifyError::NoAddress)?;
    let secrets = secrets(&url, &filled_in);
    let client = http::build_client(url.scheme() == "https", &options.environment)
        .map_err(|error| NotifyError::NoClient { reason: http::root_cause(error) })?;
    let server = secrets.redact(&server_name(&url));
    let hook = WebhookClient { client, url, server, secrets };
    let limit = options.webhook_timeout;
    let posted = tokio::time::timeout(limit, hook.post_with_retries(&payload.json)).await;
    posted.unwrap_or(Err(NotifyError::NotInTime { server: hook.server, limit }))
}

/// The secrets of a URL: everything but the host may be secret.
fn secrets(url: &Url, filled_in: &[String]) -> SecretSet {
    let parts = [Some(url.path()), url.query(), url.password(), Some(url.username())];
    SecretSet::new(filled_in.iter().map(String::as_str).chain(parts.into_iter().flatten()))
}

fn server_name(url: &Url) -> String {
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    url.host_str().unwrap_or_default().to_owned() + &port
}

struct WebhookClient {
    client: Client,
    url: Url,
    /// The host and port, redacted.
    server: String,
    secrets: SecretSet,
}

impl WebhookClient {
    async fn post_with_retries(&self, json: &[u8]) -> Result<(), NotifyError> {
        let mut pauses = RETRY_PAUSES.iter();
        loop {
            let Err(error) = self.post(json).await else { return Ok(()) };
            match pauses.next().filter(|_| error.is_transient()) {
                Some(pause) => tokio::time::sleep(*pause).await,
                None => return Err(error),
            }
        }
    }

    async fn post(&self, json: &[u8]) -> Result<(), NotifyError> {
        let request = self.client.post(self.url.clone()).header(CONTENT_TYPE, "application/json");
        let server = || self.server.clone();
        let mut answer = request.body(json.to_vec()).send().await.map_err(|error| {
            let reason = self.secrets.redact(&http::root_cause(error));
            NotifyError::NotReached { server: server(), reason }
        })?;
        let status = answer.status();
        if status.is_success() {
            return Ok(());
        }
        let body = http::read_error_body(&mut answer, ERROR_BYTES_MAX).await;
        let said = self.secrets.redact_fragment(&String::from_utf8_lossy(&body));
        let said: String = said.chars().take(SHOWN_CHARACTERS_MAX).collect();
        Err(NotifyError::Refused {
            server: server(),
            status: status.as_u16(),
            said: append_text(&said),
        })
    }
}
