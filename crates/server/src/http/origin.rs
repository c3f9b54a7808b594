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
    /// The origin of the pages of this server behind a proxy.
    public_origin: Option<String>,
}

impl AllowedHosts {
    /// Allows `localhost` and the host of the public address.
    pub(crate) fn new(public_url: Option<&str>) -> Self {
        let parts = public_url.and_then(|url| {
            let (scheme, rest) = url.split_once("://")?;
            Some((scheme, rest.split(['/', '?', '#']).next()?))
        });
        let public = parts.and_then(|(_, authority)| host_of(authority));
        let names = public.into_iter().chain(["localhost"]).map(str::to_owned).collect();
        let public_origin = parts.map(|(scheme, authority)| format!("{scheme}://{authority}"));
        Self { names, public_origin }
    }

    fn allows(&self, authority: &str) -> bool {
        let Some(host) = host_of(authority) else { return false };
        let number = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
        number.parse::<IpAddr>().is_ok()
            || self.names.iter().any(|name| name.eq_ignore_ascii_case(host))
    }

    /// True if an origin is that of the pages of this server, at this authority or the public one.
    fn is_own(&self, origin: &str, authority: &str) -> bool {
        let named = origin.split_once("://").map(|(_, named)| named);
        named.is_some_and(|named| named.eq_ignore_ascii_case(authority))
            || self.public_origin.as_deref().is_some_and(|own| own.eq_ignore_ascii_case(origin))
    }
}

/// The host of an authority, without its port. None if it has a user or anything else besides.
fn host_of(authority: &str) -> Option<&str> {
    let (host, rest) = if authority.starts_with('[') {
        authority.split_at(authority.find(']')? + 1)
    } else {
        authority.split_at(authority.find(':').unwrap_or(authority.len()))
    };
    let is_port = |port: &str| port.parse::<u16>().is_ok();
    let is_plain = !host.is_empty() && !host.contains('@');
    (is_plain && (rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port))).then_some(host)
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
    let texts = |name: header::HeaderName| {
        headers.get_all(name).iter().map(|value| value.to_str().unwrap_or("?"))
    };
    if texts(header::HOST).count() > 1 {
        return Some(Problem::bad_request("the request has more than one Host header"));
    }
    let named = texts(header::HOST).next();
    for host in named.into_iter().chain(authority) {
        if !hosts.allows(host) {
            let detail = format!("this server is not \"{host}\"");
            return Some(
                Problem::new(StatusCode::MISDIRECTED_REQUEST, "wrong_host", detail)
                    .hint("use its IP address or localhost, or set server.public_url"),
            );
        }
    }
    // HTTP/2 has the host in the authority only.
    let Some(host) = named.or(authority) else {
        return Some(Problem::bad_request("the request has no Host header"));
    };
    let is_foreign_site = headers.get_all("sec-fetch-site").iter().any(|site| {
        // Pages of other ports of this machine are of the same site.
        site != "same-origin" && site != "none"
    });
    let is_foreign =
        is_foreign_site || texts(header::ORIGIN).any(|origin| !hosts.is_own(origin, host));
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
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            let name = header::HeaderName::from_static(name);
            headers.append(name, HeaderValue::from_static(value));
        }
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
            (&[("host", "[::1]")], None, None),
            (&[("host", "[::1]evil.example")], None, Some(421)),
            (&[("host", "[::1")], None, Some(421)),
            (&[("host", "127.0.0.1:7070.evil.example")], None, Some(421)),
            (&[("host", "localhost:evil")], None, Some(421)),
            (&[("host", "localhost@evil.example")], None, Some(421)),
            (&[("host", "evil.example@localhost")], None, Some(421)),
            (&[("host", "2130706433")], None, Some(421)),
            (&[("host", "")], None, Some(421)),
            (&[("host", "localhost"), ("host", "localhost")], None, Some(400)),
            (&[], None, Some(400)),
            (&[("origin", "http://127.0.0.1:7070")], Some("127.0.0.1:7070"), None),
            (&[("origin", "http://evil.example")], Some("127.0.0.1:7070"), Some(403)),
            (&[("host", "127.0.0.1"), ("origin", "https://polity.example.org:8443")], None, None),
            (&[("host", "127.0.0.1"), ("origin", "http://polity.example.org")], None, Some(403)),
            (
                &[("host", "localhost"), ("origin", "http://localhost"), ("origin", "http://x")],
                None,
                Some(403),
            ),
            (&[("host", "localhost"), ("sec-fetch-site", "same-site")], None, Some(403)),
            (&[("host", "localhost"), ("sec-fetch-site", "same-origin")], None, None),
            (&[("host", "localhost"), ("sec-fetch-site", "none")], None, None),
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
