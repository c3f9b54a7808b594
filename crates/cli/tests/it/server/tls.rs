//! TLS from certificate files, which are read again when they change.

use std::io::{Read, Write};
use std::sync::Arc;

use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::client::ServerProcess;
use crate::sandbox::HomeSandbox;

/// Writes a new certificate of this machine and its key.
fn write_certificate(home: &HomeSandbox) -> CertificateDer<'static> {
    let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    home.write("tls/key.pem", &made.signing_key.serialize_pem());
    home.write("tls/cert.pem", &made.cert.pem());
    made.cert.der().clone()
}

fn home_with_tls() -> HomeSandbox {
    let home = HomeSandbox::new();
    home.write("polity.yaml", "server: {tls: {certificate: tls/cert.pem, key: tls/key.pem}}\n");
    home
}

/// The answer to a request, and the protocol that was agreed on. An error if the certificate is not
/// the trusted one.
fn get(
    server: &ServerProcess<'_>,
    trusted: &CertificateDer<'static>,
    path: &str,
) -> std::io::Result<(String, Option<Vec<u8>>)> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = StreamOwned::new(connection, server.connect());
    let (host, token) = (server.address(), &server.token);
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\
         Connection: close\r\n\r\n"
    )?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok((text, stream.conn.alpn_protocol().map(<[u8]>::to_vec)))
}

#[test]
fn server_speaks_tls_and_reads_changed_certificates() {
    let home = home_with_tls();
    let first = write_certificate(&home);
    let server = ServerProcess::start(&home);
    let address = std::fs::read_to_string(home.file("data/server.json")).unwrap();
    assert!(address.contains("\"https://127.0.0.1:"), "{address}");
    let (answer, protocol) = get(&server, &first, "/api/v1/tasks").unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(protocol.as_deref(), Some(&b"http/1.1"[..]));
    // A pair that does not fit keeps the old one.
    home.write("tls/key.pem", "no key");
    assert!(get(&server, &first, "/healthz").is_ok());
    let second = write_certificate(&home);
    home.wait_until("the new certificate", || get(&server, &second, "/healthz").ok());
    assert!(get(&server, &first, "/healthz").is_err());
}

#[test]
fn plain_requests_and_broken_handshakes_hold_up_nobody() {
    let home = home_with_tls();
    let trusted = write_certificate(&home);
    let server = ServerProcess::start(&home);
    let mut plain = server.connect();
    plain.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut rest = Vec::new();
    // An alert, a reset or nothing: never an answer.
    let _ = plain.read_to_end(&mut rest);
    assert!(!rest.starts_with(b"HTTP/"));
    let _silent = server.connect();
    assert!(get(&server, &trusted, "/healthz").unwrap().0.starts_with("HTTP/1.1 200"));
}

#[test]
fn unusable_certificates_are_refused_at_the_start() {
    let home = home_with_tls();
    let serve = |part: &str| {
        let refused = home.polity(&["serve", "--listen", "127.0.0.1:0"]);
        refused.fails(2, part);
    };
    serve("cannot read the file");
    write_certificate(&home);
    let key = std::fs::read_to_string(home.file("tls/key.pem")).unwrap();
    write_certificate(&home);
    home.write("tls/key.pem", &key);
    serve("cannot be used with its key");
    home.write("tls/cert.pem", "nothing");
    serve("has no certificate in PEM form");
}
