//! The HTTP client that all servers share which are reached over the network.

use std::error::Error;
use std::time::Duration;

use reqwest::{Client, NoProxy, Proxy, redirect};
use rmcp::transport::streamable_http_client::StreamableHttpError;

use super::environment::Environment;

/// What may go wrong with streamable HTTP.
pub(super) type HttpError = StreamableHttpError<reqwest::Error>;

/// How long it may take until a server accepts a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A client that goes through the proxies which the environment names. It follows no redirects: a
/// server's address is written in the home, and its messages go nowhere else.
pub(super) fn client(environment: &Environment) -> reqwest::Result<Client> {
    // Someone else may have installed one; then that is used.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = Client::builder()
        .no_proxy()
        .redirect(redirect::Policy::none())
        .connect_timeout(CONNECT_TIMEOUT);
    let look = |names: [&str; 2]| names.into_iter().find_map(|name| environment(name));
    let except = look(["NO_PROXY", "no_proxy"]).as_deref().and_then(NoProxy::from_string);
    if let Some(proxy) = look(["HTTPS_PROXY", "https_proxy"]).filter(|proxy| !proxy.is_empty()) {
        builder = builder.proxy(Proxy::https(proxy)?.no_proxy(except.clone()));
    }
    // In upper case it could be set by a web server from a visitor's header.
    if let Some(proxy) = environment("http_proxy").filter(|proxy| !proxy.is_empty()) {
        builder = builder.proxy(Proxy::http(proxy)?.no_proxy(except));
    }
    builder.build()
}

/// An error with all its causes; reqwest's own text leaves out what matters.
pub(super) fn with_causes(error: &(dyn Error + 'static)) -> String {
    // This one does not say what caused it.
    if let Some(StreamableHttpError::Client(cause)) = error.downcast_ref::<HttpError>() {
        return with_causes(cause);
    }
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = error.source();
    }
    text
}
