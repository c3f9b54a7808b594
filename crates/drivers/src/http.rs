//! HTTP clients, as everyone here needs them.

use std::time::Duration;

pub use reqwest::{Client, Url};
use reqwest::{ClientBuilder, NoProxy, Proxy, redirect};

use crate::environment::Environment;

/// How long it may take to reach a server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// What no proxy is asked for, whatever the environment says.
const THIS_MACHINE: &str = "localhost,127.0.0.0/8,::1";

/// A client that goes through the proxies which the environment names. Addresses without TLS have
/// one of their own, so that a local server can be called where no certificates are installed.
pub fn client(is_secure: bool, environment: &Environment) -> reqwest::Result<Client> {
    // Fails if a provider is installed already, which will do as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = Client::builder()
        .user_agent(concat!("polity/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT_TIMEOUT)
        // Wherever an answer points, keys and arguments are sent only where the home says.
        .redirect(redirect::Policy::none())
        .referer(false);
    if !is_secure {
        builder = builder.tls_certs_only([]);
    }
    with_proxies(builder, environment).and_then(ClientBuilder::build)
}

/// The address without what may be secret in it: user, password, query and fragment.
pub fn shown_url(url: &Url) -> String {
    let mut url = url.clone();
    // These fail for addresses that can have no user, and then have none.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    url.set_fragment(None);
    url.into()
}

/// The innermost reason of an error; the outer ones say little, and some repeat the address.
pub(crate) fn reason(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut reason: &dyn std::error::Error = &error;
    while let Some(inner) = reason.source() {
        reason = inner;
    }
    reason.to_string()
}

/// Proxies are taken from the usual variables of the environment that was handed in.
fn with_proxies(
    builder: ClientBuilder,
    environment: &Environment,
) -> reqwest::Result<ClientBuilder> {
    let find =
        |name: &str| environment.get(name).or_else(|| environment.get(&name.to_ascii_uppercase()));
    let mut builder = builder.no_proxy();
    let hosts = find("no_proxy").unwrap_or_default();
    let except = NoProxy::from_string(&format!("{THIS_MACHINE},{hosts}"));
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
    use super::*;

    #[test]
    fn addresses_are_shown_without_what_may_be_secret() {
        for (url, shown) in [
            ("http://user:secret@h:9/mcp?apiKey=secret#secret", "http://h:9/mcp"),
            ("https://secret@h/", "https://h/"),
            ("https://h/v1/messages", "https://h/v1/messages"),
            ("data:text/plain,x?secret", "data:text/plain,x"),
        ] {
            assert_eq!(shown_url(&Url::parse(url).unwrap()), shown);
        }
    }
}
