//! The URL of a server.

use polity_drivers::http::{Url, redact_url};

use crate::error::CliError;

/// Reads the URL that a user gave.
pub(super) fn parse(text: &str) -> Result<Url, CliError> {
    // The text is not repeated, because it may hold a password.
    let hint = "write it as http://HOST:PORT or https://HOST";
    let wrong = |reason: &str| {
        CliError::usage(format!("the URL of the server is not valid: {reason}")).hint(hint)
    };
    let url: Url = text.trim().parse().map_err(|error| wrong(&format!("{error}")))?;
    if !["http", "https"].contains(&url.scheme()) || !url.has_host() {
        return Err(wrong("it must begin with http:// or https://"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        let tokens = "give the token in POLITY_TOKEN";
        return Err(wrong("it must not hold a user or a password").hint(tokens));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(wrong("it must not have a query or a fragment"));
    }
    Ok(url)
}

/// The URL for messages.
pub(super) fn shown(url: &Url) -> String {
    redact_url(url).trim_end_matches('/').to_owned()
}

/// True if what is sent there can be read on its way: it leaves this machine unencrypted.
pub(super) fn is_readable_on_its_way(url: &Url) -> bool {
    if url.scheme() == "https" {
        return false;
    }
    let host = url.host_str().unwrap_or_default();
    let number = host.trim_start_matches('[').trim_end_matches(']');
    let is_local = match number.parse::<std::net::IpAddr>() {
        Ok(address) => address.is_loopback() || address.is_unspecified(),
        Err(_) => host.eq_ignore_ascii_case("localhost"),
    };
    !is_local
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_http_urls_are_taken() {
        for url in ["http://127.0.0.1:7070", "https://polity.example.org/base/", " http://[::1]:1 "]
        {
            assert!(parse(url).is_ok(), "{url}");
        }
        for url in [
            "",
            "127.0.0.1:7070",
            "localhost:7070",
            "ftp://host",
            "unix:/run/polity",
            "http://",
            "http://user:secret@host",
            "http://host/?token=x",
            "http://host/#x",
        ] {
            let error = parse(url).unwrap_err();
            assert!(!error.message().contains("secret"), "{url}");
        }
    }

    #[test]
    fn only_this_machine_and_tls_are_safe_for_a_token() {
        for (url, is_readable) in [
            ("http://127.0.0.1:7070", false),
            ("http://[::1]:7070", false),
            ("http://localhost", false),
            ("http://0.0.0.0:7070", false),
            ("https://example.org", false),
            ("http://example.org", true),
            ("http://10.0.0.1", true),
            ("http://localhost.example.org", true),
        ] {
            assert_eq!(is_readable_on_its_way(&parse(url).unwrap()), is_readable, "{url}");
        }
    }
}
