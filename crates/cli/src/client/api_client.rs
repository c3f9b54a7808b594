//! Requests to the API of a server.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use polity_drivers::EnvSource;
use polity_drivers::http::{Client, Url, build_client, root_cause};
use polity_engine::entropy::{EntropySource, SystemEntropy};
use polity_host::ReportKind;
use polity_server::published_server;
use reqwest::{Method, Response};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{address, problem};
use crate::error::CliError;

/// The longest time until the body of an answer is complete. A request waits for a task for less.
const ANSWER_SECONDS_MAX: u64 = 120;

/// The largest answer, in bytes.
const ANSWER_BYTES_MAX: usize = 1 << 30;

/// The time for which a lost server may be away before a command that follows its work gives up.
pub(super) const AWAY_SECONDS_MAX: u64 = 60;

/// The time between two attempts to reach a lost server.
pub(super) const RECONNECT_DELAY: Duration = Duration::from_millis(250);

/// The most items of a page.
const PAGE_ITEMS_MAX: u32 = 1000;

/// A client of one server. Its token is sent to this server only: redirects are not followed.
#[derive(Clone)]
pub(crate) struct ApiClient {
    inner: Arc<ClientInner>,
}

struct ClientInner {
    base: Mutex<Url>,
    /// The data folder of the server's home if it is on this machine. A server that starts again may
    /// have another port, which it writes there.
    data: Option<PathBuf>,
    token: Option<String>,
    http: Client,
}

/// A request, which may be sent several times.
#[derive(Debug, Clone)]
struct ApiRequest<'r> {
    method: Method,
    path: &'r [&'r str],
    query: &'r [(&'r str, String)],
    body: Option<&'r Value>,
    key: Option<String>,
}

/// A request without a usable answer.
pub(super) enum SendError {
    /// No connection could be made.
    Unreachable(Box<CliError>),
    /// The connection broke before the answer was complete. The server may have acted.
    Lost(Box<CliError>),
    /// The server refused, or gave an answer that cannot be read.
    Refused(Box<CliError>),
}

impl SendError {
    fn unreachable(error: CliError) -> Self {
        Self::Unreachable(Box::new(error))
    }

    fn lost(error: CliError) -> Self {
        Self::Lost(Box::new(error))
    }

    fn refused(error: CliError) -> Self {
        Self::Refused(Box::new(error))
    }
}

impl From<SendError> for CliError {
    fn from(error: SendError) -> Self {
        match error {
            SendError::Unreachable(error) | SendError::Lost(error) | SendError::Refused(error) => {
                *error
            }
        }
    }
}

/// A page of a list.
#[derive(Deserialize)]
struct PageAnswer<T> {
    items: Vec<T>,
    next_cursor: Option<String>,
}

impl ApiClient {
    /// A client of the server at this URL.
    pub(super) fn new(
        url: Url,
        token: Option<String>,
        data: Option<PathBuf>,
        environment: &EnvSource,
    ) -> Result<Self, CliError> {
        let http = build_client(url.scheme() == "https", environment).map_err(|error| {
            CliError::new("server_unreachable", ReportKind::Failed, root_cause(error))
                .hint("check the proxy variables of the environment")
        })?;
        let inner = ClientInner { base: Mutex::new(url), data, token, http };
        Ok(Self { inner: Arc::new(inner) })
    }

    fn base(&self) -> Url {
        self.inner.base.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The URL of the server, for messages.
    pub(crate) fn shown_url(&self) -> String {
        address::shown(&self.base())
    }

    /// Looks up the address of a local server, which may have started again on another port.
    pub(super) fn locate_again(&self) {
        let published = self.inner.data.as_deref().and_then(published_server);
        if let Some(url) = published.and_then(|server| address::parse(&server.url).ok()) {
            *self.inner.base.lock().unwrap_or_else(PoisonError::into_inner) = url;
        }
    }

    /// Reads a document below `/api/v1`.
    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &[(&str, String)],
    ) -> Result<T, CliError> {
        let request = ApiRequest { method: Method::GET, path, query, body: None, key: None };
        Ok(self.exchange(&request).await?)
    }

    /// Reads a document, and waits for a server that is away for a while.
    pub(crate) async fn get_patiently<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &[(&str, String)],
    ) -> Result<T, CliError> {
        let request = ApiRequest { method: Method::GET, path, query, body: None, key: None };
        self.insist(&request, true).await
    }

    /// Reads the first items of a list.
    pub(crate) async fn list<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &[(&str, String)],
        items_max: Option<u32>,
    ) -> Result<Vec<T>, CliError> {
        let mut items = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let missing = items_max.map_or(usize::MAX, |most| most as usize - items.len());
            if missing == 0 {
                return Ok(items);
            }
            let mut query = query.to_vec();
            if items_max.is_some() {
                let limit =
                    u32::try_from(missing).map_or(PAGE_ITEMS_MAX, |n| n.min(PAGE_ITEMS_MAX));
                query.push(("limit", limit.to_string()));
            }
            query.extend(cursor.map(|cursor| ("cursor", cursor)));
            let page: PageAnswer<T> = self.get(path, &query).await?;
            items.extend(page.items.into_iter().take(missing));
            match page.next_cursor {
                Some(next) => cursor = Some(next),
                None => return Ok(items),
            }
        }
    }

    /// Changes something.
    pub(crate) async fn post<T: DeserializeOwned>(
        &self,
        path: &[&str],
        body: &Value,
    ) -> Result<T, CliError> {
        let request =
            ApiRequest { method: Method::POST, path, query: &[], body: Some(body), key: None };
        Ok(self.exchange(&request).await?)
    }

    /// Starts work. If the connection breaks, the same request is sent again, which starts it once.
    pub(crate) async fn start<T: DeserializeOwned>(
        &self,
        path: &[&str],
        body: &Value,
    ) -> Result<T, CliError> {
        let key = format!("{:032x}", u128::from_ne_bytes(SystemEntropy.seed()));
        let request =
            ApiRequest { method: Method::POST, path, query: &[], body: Some(body), key: Some(key) };
        self.insist(&request, false).await
    }

    /// Sends a request until it is answered. `waits` says if the first attempt may find no server.
    async fn insist<T: DeserializeOwned>(
        &self,
        request: &ApiRequest<'_>,
        waits: bool,
    ) -> Result<T, CliError> {
        let began = Instant::now();
        let mut was_reached = waits;
        loop {
            let error = match self.exchange(request).await {
                Ok(answer) => return Ok(answer),
                Err(SendError::Unreachable(error)) if was_reached => error,
                Err(SendError::Lost(error)) => {
                    was_reached = true;
                    error
                }
                // The first attempt is still being handled.
                Err(SendError::Refused(error))
                    if was_reached && error.code() == "request_in_progress" =>
                {
                    error
                }
                Err(error) => return Err(error.into()),
            };
            if began.elapsed() > Duration::from_secs(AWAY_SECONDS_MAX) {
                return Err(*error);
            }
            tokio::time::sleep(RECONNECT_DELAY).await;
            self.locate_again();
        }
    }

    /// Reads a text.
    pub(crate) async fn get_text(
        &self,
        path: &[&str],
        query: &[(&str, String)],
    ) -> Result<String, CliError> {
        let request = ApiRequest { method: Method::GET, path, query, body: None, key: None };
        let body = self.exchange_bytes(&request).await?;
        String::from_utf8(body).map_err(|error| self.unreadable(&error).into())
    }

    async fn exchange<T: DeserializeOwned>(
        &self,
        request: &ApiRequest<'_>,
    ) -> Result<T, SendError> {
        let body = self.exchange_bytes(request).await?;
        serde_json::from_slice(&body).map_err(|error| self.unreadable(&error))
    }

    fn unreadable(&self, error: &dyn std::error::Error) -> SendError {
        let message = format!("the answer of {} cannot be read: {error}", self.shown_url());
        SendError::refused(
            CliError::new("server_error", ReportKind::Failed, message)
                .hint("use the same version of Polity here and there: `polity --version`"),
        )
    }

    async fn exchange_bytes(&self, request: &ApiRequest<'_>) -> Result<Vec<u8>, SendError> {
        let exchange = async {
            let response = self.send(request, &[]).await?;
            self.read(response).await
        };
        let time = Duration::from_secs(ANSWER_SECONDS_MAX);
        tokio::time::timeout(time, exchange).await.unwrap_or_else(|_| {
            let message =
                format!("{} has not answered within {ANSWER_SECONDS_MAX} s", self.shown_url());
            let error = CliError::timed_out(message);
            Err(SendError::lost(error.hint("look at the server's log and its load")))
        })
    }

    /// Opens a stream of the events of a task.
    pub(super) async fn open_events(
        &self,
        task: &str,
        with_parts: bool,
        after: Option<u64>,
    ) -> Result<Response, SendError> {
        let query = if with_parts { vec![("parts", "true".to_owned())] } else { Vec::new() };
        let path = ["tasks", task, "events"];
        let request =
            ApiRequest { method: Method::GET, path: &path, query: &query, body: None, key: None };
        let after = after.map(|after| ("Last-Event-ID", after.to_string()));
        let response = self.send(&request, after.as_slice()).await?;
        if response.status().is_success() {
            return Ok(response);
        }
        match self.read(response).await {
            Err(error) => Err(error),
            // Only an answer without success is read.
            Ok(_) => Err(SendError::refused(problem::error_of(&self.shown_url(), 0, b""))),
        }
    }

    /// Sends a request and returns the head of the answer.
    async fn send(
        &self,
        request: &ApiRequest<'_>,
        headers: &[(&str, String)],
    ) -> Result<Response, SendError> {
        let url = self.url_of(request).map_err(SendError::refused)?;
        let mut builder = self.inner.http.request(request.method.clone(), url);
        if let Some(token) = &self.inner.token {
            builder = builder.bearer_auth(token);
        }
        if let Some(key) = &request.key {
            builder = builder.header("Idempotency-Key", key);
        }
        for (name, value) in headers {
            builder = builder.header(*name, value);
        }
        if let Some(body) = request.body {
            builder = builder.header("Content-Type", "application/json").body(body.to_string());
        }
        builder.send().await.map_err(|error| {
            let is_connecting = error.is_connect();
            let message =
                format!("cannot reach the server at {}: {}", self.shown_url(), root_cause(error));
            let error = CliError::new("server_unreachable", ReportKind::Failed, message);
            if is_connecting {
                SendError::unreachable(error.hint(
                    "start it with `polity serve`, or correct --server or POLITY_SERVER; --local \
                     works without a server",
                ))
            } else {
                SendError::lost(error.hint("the connection broke; look at the server's log"))
            }
        })
    }

    fn url_of(&self, request: &ApiRequest<'_>) -> Result<Url, CliError> {
        let mut url = self.base();
        // A dot would leave the path.
        if let Some(wrong) = request.path.iter().find(|part| ["", ".", ".."].contains(part)) {
            return Err(CliError::usage(format!("\"{wrong}\" is not a name or an id")));
        }
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(["api", "v1"]).extend(request.path);
        }
        if !request.query.is_empty() {
            url.query_pairs_mut().extend_pairs(request.query);
        }
        Ok(url)
    }

    /// Reads the body of a success, or the problem.
    async fn read(&self, mut response: Response) -> Result<Vec<u8>, SendError> {
        let mut body = Vec::new();
        loop {
            let chunk = response.chunk().await.map_err(|error| {
                let (url, cause) = (self.shown_url(), root_cause(error));
                let message = format!("the connection to {url} broke: {cause}");
                let error = CliError::new("server_unreachable", ReportKind::Failed, message);
                SendError::lost(error.hint("look at the server's log"))
            })?;
            let Some(chunk) = chunk else { break };
            if body.len() + chunk.len() > ANSWER_BYTES_MAX {
                let message = format!(
                    "the answer of {} is larger than {ANSWER_BYTES_MAX} bytes",
                    self.shown_url()
                );
                return Err(SendError::refused(
                    CliError::over_limit("limit_answer_bytes", message)
                        .hint("ask for less, for example with --limit"),
                ));
            }
            body.extend_from_slice(&chunk);
        }
        if response.status().is_success() {
            return Ok(body);
        }
        let status = response.status().as_u16();
        Err(SendError::refused(problem::error_of(&self.shown_url(), status, &body)))
    }
}
