//! An address that is called.

use std::time::Duration;

use polity_definition::UrlTemplate;
use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, Response, Url};

use super::{NotTold, Notice, NotifyOptions, quoted};
use crate::http;
use crate::secrets::Secrets;

/// How long to wait before each further try.
const RETRY_PAUSES: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(1)];

/// How much is read of an answer that tells of an error, in bytes.
const ERROR_BYTES_MAX: usize = 4096;

/// How much of it is shown, in characters.
const SHOWN_CHARACTERS_MAX: usize = 200;

/// Posts the notice until the server has taken it, a few times at most.
pub(super) async fn call(
    webhook: &UrlTemplate,
    notice: &Notice,
    options: &NotifyOptions,
) -> Result<(), NotTold> {
    let mut filled_in = Vec::new();
    let url = options
        .environment
        .fill(webhook.as_str(), &mut filled_in)
        .map_err(|name| NotTold::Unset { field: "webhook", name: name.to_owned() })?;
    let url = Url::parse(&url)
        .ok()
        .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
        .ok_or(NotTold::NoAddress)?;
    let secrets = secrets(&url, &filled_in);
    let client = http::client(url.scheme() == "https", &options.environment)
        .map_err(|error| NotTold::NoClient { reason: http::reason(error) })?;
    let server = secrets.removed_from(&server(&url));
    let hook = Hook { client, url, server, secrets };
    let limit = options.webhook_timeout;
    match tokio::time::timeout(limit, hook.post_again_and_again(&notice.json)).await {
        Ok(outcome) => outcome,
        Err(_) => Err(NotTold::NotInTime { server: hook.server, limit }),
    }
}

/// What must not be shown: in addresses like these, all but the server may be secret.
fn secrets(url: &Url, filled_in: &[String]) -> Secrets {
    let parts = [Some(url.path()), url.query(), url.password(), Some(url.username())];
    Secrets::new(filled_in.iter().map(String::as_str).chain(parts.into_iter().flatten()))
}

fn server(url: &Url) -> String {
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    url.host_str().unwrap_or_default().to_owned() + &port
}

struct Hook {
    client: Client,
    url: Url,
    /// The server, as it is shown.
    server: String,
    secrets: Secrets,
}

impl Hook {
    async fn post_again_and_again(&self, json: &[u8]) -> Result<(), NotTold> {
        let mut pauses = RETRY_PAUSES.iter();
        loop {
            let error = match self.post(json).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            match pauses.next().filter(|_| error.is_passing()) {
                Some(pause) => tokio::time::sleep(*pause).await,
                None => return Err(error),
            }
        }
    }

    async fn post(&self, json: &[u8]) -> Result<(), NotTold> {
        let request = self.client.post(self.url.clone()).header(CONTENT_TYPE, "application/json");
        let server = || self.server.clone();
        let answer = request.body(json.to_vec()).send().await.map_err(|error| {
            let reason = self.secrets.removed_from(&http::reason(error));
            NotTold::NotReached { server: server(), reason }
        })?;
        let status = answer.status();
        if status.is_success() {
            return Ok(());
        }
        let said = self.secrets.removed_from_piece(&beginning(answer).await);
        let said: String = said.chars().take(SHOWN_CHARACTERS_MAX).collect();
        Err(NotTold::Refused { server: server(), status: status.as_u16(), said: quoted(&said) })
    }
}

/// The beginning of an answer, or as much of it as comes.
async fn beginning(mut answer: Response) -> String {
    let mut body = Vec::new();
    while body.len() < ERROR_BYTES_MAX
        && let Ok(Some(piece)) = answer.chunk().await
    {
        body.extend_from_slice(&piece);
    }
    body.truncate(ERROR_BYTES_MAX);
    String::from_utf8_lossy(&body).into_owned()
}
