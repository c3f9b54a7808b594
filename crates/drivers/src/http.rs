//! HTTP clients for all drivers.

pub mod address_check;

use std::sync::OnceLock;
use std::time::Duration;

use jiff::fmt::rfc2822::DateTimeParser;
use jiff::{SignedDuration, Timestamp};
use polity_engine::clock::{Clock, SystemClock};
use polity_engine::driver::current_traceparent;
use reqwest::header::{DATE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
pub use reqwest::{Client, Url};
use reqwest::{ClientBuilder, NoProxy, Proxy, Response, redirect};

use crate::environment::EnvSource;

/// The longest wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Hosts that never use a proxy.
const NO_PROXY_HOSTS: &str = "localhost,127.0.0.0/8,::1";

/// The HTTP clients of the process, created on first use: TLS setup is slow.
#[derive(Debug, Default)]
pub(crate) struct HttpClients {
    plain: OnceLock<Client>,
    secure: OnceLock<Client>,
}

impl HttpClients {
    pub(crate) fn client_for(
        &self,
        url: &Url,
        environment: &EnvSource,
    ) -> reqwest::Result<&Client> {
        let is_secure = url.scheme() == "https";
        let slot = if is_secure { &self.secure } else { &self.plain };
        if let Some(client) = slot.get() {
            return Ok(client);
        }
        let client = build_client(is_secure, environment)?;
        Ok(slot.get_or_init(|| client))
    }
}

/// The header of the W3C trace context.
pub(crate) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Adds the trace context of the current call to headers, if the call has one.
pub(crate) fn add_trace_context(headers: &mut HeaderMap) {
    let value = current_traceparent().and_then(|value| HeaderValue::try_from(&*value).ok());
    if let Some(value) = value {
        headers.insert(TRACEPARENT, value);
    }
}

/// Builds a client that uses the environment's proxies. Without TLS, a client needs no installed
/// certificates.
pub fn build_client(is_secure: bool, environment: &EnvSource) -> reqwest::Result<Client> {
    apply_proxies(plain_client(is_secure), environment).and_then(ClientBuilder::build)
}

/// A client without proxies of its own.
fn plain_client(is_secure: bool) -> ClientBuilder {
    // Fails if a provider is already installed, which is fine.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = Client::builder()
        .user_agent(concat!("polity/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT_TIMEOUT)
        // No redirects: keys and arguments are sent only to configured URLs.
        .redirect(redirect::Policy::none())
        .referer(false);
    if !is_secure {
        builder = builder.tls_certs_only([]);
    }
    builder
}

/// The URL without its secret parts: user, password, query and fragment.
pub fn redact_url(url: &Url) -> String {
    let mut url = url.clone();
    // These fail for URLs that cannot have a user.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    url.set_fragment(None);
    url.into()
}

/// The innermost cause of an error; the outer ones are vague or repeat the URL.
pub fn root_cause(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut reason: &dyn std::error::Error = &error;
    while let Some(inner) = reason.source() {
        reason = inner;
    }
    reason.to_string()
}

/// Reads the beginning of an error response, or as much as arrives: the status decides.
pub(crate) async fn read_error_body(response: &mut Response, bytes_max: usize) -> Vec<u8> {
    let mut body = Vec::new();
    while body.len() < bytes_max
        && let Ok(Some(chunk)) = response.chunk().await
    {
        body.extend_from_slice(&chunk);
    }
    body.truncate(bytes_max);
    body
}

/// The delay that the server requests: in milliseconds, in seconds, or as a date.
pub(crate) fn parse_retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    let number = |text: &str| text.parse::<f64>().ok();
    if let Some(milliseconds) = text("retry-after-ms").and_then(number) {
        return Duration::try_from_secs_f64(milliseconds / 1000.0).ok();
    }
    let wait = text(RETRY_AFTER.as_str())?;
    if let Some(seconds) = number(wait) {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let date = |text: &str| DateTimeParser::new().parse_timestamp(text).ok();
    // Both dates come from the server's clock, which may differ from the local one.
    let now: Timestamp = text(DATE.as_str()).and_then(date).unwrap_or_else(|| SystemClock.now());
    let wait = date(wait)?.duration_since(now).max(SignedDuration::ZERO);
    wait.try_into().ok()
}

/// Applies the proxy variables of the environment.
fn apply_proxies(
    builder: ClientBuilder,
    environment: &EnvSource,
) -> reqwest::Result<ClientBuilder> {
    let find =
        |name: &str| environment.get(name).or_else(|| environment.get(&name.to_ascii_uppercase()));
    let mut builder = builder.no_proxy();
    let hosts = find("no_proxy").unwrap_or_default();
    let except = NoProxy::from_string(&format!("{NO_PROXY_HOSTS},{hosts}"));
    let kinds = [
        ("https_proxy", Proxy::https as fn(String) -> reqwest::Result<Proxy>),
        ("http_proxy", Proxy::http),
        ("all_proxy", Proxy::all),
    ];
    for (variable, proxy) in kinds {
        if let Some(address) = find(variable) {
            builder = builder.proxy(proxy(address)?.no_proxy(except.clone()));
        }
    }
    Ok(builder)
}

#[cfg(test)]
mod tests {
    use reqwest::header::{HeaderName, HeaderValue};

    use super::*;

    #[test]
    fn redacted_urls_contain_no_secret_parts() {
        for (url, shown) in [
            ("http://user:secret@h:9/mcp?apiKey=secret#secret", "http://h:9/mcp"),
            ("https://secret@h/", "https://h/"),
            ("https://h/v1/messages", "https://h/v1/messages"),
            ("data:text/plain,x?secret", "data:text/plain,x"),
        ] {
            assert_eq!(redact_url(&Url::parse(url).unwrap()), shown);
        }
    }

    #[test]
    fn parses_all_forms_of_retry_after() {
        type HeaderPairs = &'static [(&'static str, &'static str)];
        const DATE: (&str, &str) = ("date", "Wed, 21 Oct 2026 07:28:00 GMT");
        let cases: [(HeaderPairs, Option<u64>); 8] = [
            (&[("retry-after", "3")], Some(3000)),
            (&[("retry-after", "0.5")], Some(500)),
            (&[("retry-after", "3"), ("retry-after-ms", "20")], Some(20)),
            (&[("retry-after", "Wed, 21 Oct 2026 07:28:30 GMT"), DATE], Some(30_000)),
            (&[("retry-after", "Wed, 21 Oct 2026 07:27:00 GMT"), DATE], Some(0)),
            (&[("retry-after", "soon")], None),
            (&[("retry-after", "-3")], None),
            (&[], None),
        ];
        for (headers, expected) in cases {
            let headers = headers.iter().map(|(name, value)| {
                (HeaderName::from_static(name), HeaderValue::from_static(value))
            });
            let headers: HeaderMap = headers.collect();
            let expected = expected.map(Duration::from_millis);
            assert_eq!(parse_retry_after(&headers), expected, "{headers:?}");
        }
    }
}
