//! Checks of the headers Host and Origin, which protect a local server from foreign web pages.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::problem::Problem;
use crate::state::ServerState;

/// The host names under which the server may be addressed. Addresses of numbers are always allowed:
/// a foreign page can point a name to this machine, but not a number.
#[derive(Debug, Clone, Default)]
pub(crate) struct AllowedHosts {
    names: Vec<String>,
}

impl AllowedHosts {
    /// Allows `localhost` and the host of the public address.
    pub(crate) fn new(public_url: Option<&str>) -> Self {
        let public = public_url.and_then(|url| {
            let (_, rest) = url.split_once("://")?;
            rest.split(['/', '?', '#']).next().map(|authority| host_of(authority).to_owned())
        });
        Self { names: public.into_iter().chain(["localhost".to_owned()]).collect() }
    }

    fn allows(&self, authority: &str) -> bool {
        let host = host_of(authority);
        let number = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
        number.parse::<IpAddr>().is_ok()
            || self.names.iter().any(|name| name.eq_ignore_ascii_case(host))
    }
}

/// The host of an authority, without user and port.
fn host_of(authority: &str) -> &str {
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    if host.starts_with('[') {
        return host.split_inclusive(']').next().unwrap_or(host);
    }
    host.split(':').next().unwrap_or(host)
}

/// The middleware of all routes.
pub(crate) async fn check_origin(
    State(state): State<Arc<ServerState>>,
    request: Request,
    next: Next,
) -> Response {
    match refusal(&state.hosts, request.headers(), request.uri().authority().map(Authority::as_str))
    {
        Some(problem) => problem.into_response(),
        None => next.run(request).await,
    }
}

fn refusal(hosts: &AllowedHosts, headers: &HeaderMap, authority: Option<&str>) -> Option<Problem> {
    let text =
        |name: header::HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let named = text(header::HOST);
    for host in named.into_iter().chain(authority) {
        if !hosts.allows(host) {
            let detail = format!("this server is not \"{host}\"");
            return Some(
                Problem::new(StatusCode::MISDIRECTED_REQUEST, "wrong_host", detail)
                    .hint("use its IP address or localhost, or set server.public_url"),
            );
        }
    }
    if named.or(authority).is_none() {
        return Some(Problem::bad_request("the request has no Host header"));
    }
    let foreign = |origin: &str| {
        let authority = origin.split_once("://").map_or(origin, |(_, authority)| authority);
        let same = named.or_else(|| headers.get(header::HOST)?.to_str().ok());
        same != Some(authority)
    };
    let is_foreign = text(header::ORIGIN).is_some_and(foreign)
        || headers.get("sec-fetch-site").is_some_and(|site| site == "cross-site");
    is_foreign.then(|| {
        Problem::new(
            StatusCode::FORBIDDEN,
            "foreign_origin",
            "requests of other web pages are not accepted",
        )
    })
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn status(pairs: &[(&'static str, &'static str)], authority: Option<&str>) -> Option<u16> {
        let hosts = AllowedHosts::new(Some("https://polity.example.org:8443/base"));
        let headers: HeaderMap = pairs
            .iter()
            .map(|(name, value)| {
                (header::HeaderName::from_static(name), HeaderValue::from_static(value))
            })
            .collect();
        refusal(&hosts, &headers, authority)
            .map(|problem| problem.into_response().status().as_u16())
    }

    #[test]
    fn foreign_names_and_origins_are_refused() {
        for (headers, authority, expected) in [
            (&[("host", "127.0.0.1:7070")][..], None, None),
            (&[("host", "[::1]:7070")], None, None),
            (&[("host", "LOCALHOST")], None, None),
            (&[("host", "polity.example.org")], None, None),
            (&[("host", "evil.example")], None, Some(421)),
            (&[("host", "localhost.evil.example")], None, Some(421)),
            (&[("host", "127.0.0.1.evil.example")], None, Some(421)),
            (&[("host", "localhost")], Some("evil.example"), Some(421)),
            (&[], Some("127.0.0.1:7070"), None),
            (&[], None, Some(400)),
            (&[("host", "localhost"), ("x-forwarded-host", "evil.example")], None, None),
            (&[("host", "localhost"), ("origin", "http://localhost")], None, None),
            (&[("host", "localhost"), ("origin", "http://evil.example")], None, Some(403)),
            (&[("host", "localhost:7070"), ("origin", "http://localhost:9")], None, Some(403)),
            (&[("host", "localhost"), ("origin", "null")], None, Some(403)),
            (&[("host", "localhost"), ("sec-fetch-site", "cross-site")], None, Some(403)),
        ] {
            assert_eq!(status(headers, authority), expected, "{headers:?} {authority:?}");
        }
    }
}
