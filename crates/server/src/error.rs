//! Errors of starting and running a server.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use polity_drivers::webhook::WebhookError;
use polity_host::{ErrorReport, HostError};

use crate::auth::TokenFileError;
use crate::listener::TlsError;

/// The reason why a server cannot start.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum ServeError {
    /// The home cannot be used.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The tokens cannot be read or written.
    #[error(transparent)]
    Tokens(#[from] TokenFileError),
    /// The certificate cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A webhook cannot be used.
    #[error(transparent)]
    Webhook(#[from] WebhookError),
    /// Another server serves this home.
    #[error("a server already serves this home: {url} (process {pid})")]
    AlreadyServed { url: String, pid: u32 },
    /// Other machines can reach the address, and no token exists.
    #[error("{address} can be reached from other machines, and there is no token")]
    NoTokens { address: SocketAddr },
    /// The token in the environment is too short.
    #[error("the token in POLITY_SERVER_TOKEN has fewer than {least} characters")]
    WeakToken { least: usize },
    /// The address cannot be bound.
    #[error("cannot listen on {address}: {source}")]
    Bind { address: SocketAddr, source: io::Error },
    /// The service manager passed no usable socket.
    #[error("the socket of the service manager cannot be used: {0}")]
    PassedSocket(io::Error),
    /// A file of the server cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

impl From<ServeError> for ErrorReport {
    fn from(error: ServeError) -> Self {
        match error {
            ServeError::Host(error) => error.into(),
            ServeError::Tokens(error) => error.into(),
            ServeError::Tls(error) => error.into(),
            ServeError::Webhook(ref cause) => Self::usage(&error).hint(cause.hint()),
            ServeError::AlreadyServed { .. } => Self::conflict(&error)
                .hint("use that server, stop it first, or serve another home with --home"),
            ServeError::NoTokens { .. } => Self::usage(&error).hint(
                "create one with `polity token create NAME --scope run`, set POLITY_SERVER_TOKEN, or \
                 listen on 127.0.0.1",
            ),
            ServeError::WeakToken { .. } => {
                Self::usage(&error).hint("use a long random text, such as `openssl rand -hex 32` gives")
            }
            ServeError::Bind { ref address, ref source } => {
                let hint = match source.kind() {
                    io::ErrorKind::AddrInUse => {
                        format!("another program uses port {}: use another one with --listen", address.port())
                    }
                    io::ErrorKind::PermissionDenied => "use a port from 1024 on".to_owned(),
                    _ => "use another address with --listen, or server.listen in polity.yaml".to_owned(),
                };
                Self::conflict(&error).hint(hint)
            }
            ServeError::PassedSocket(_) => Self::usage(&error).hint(
                "pass one TCP socket, as deploy/polity.socket does; or start without LISTEN_FDS",
            ),
            ServeError::Io { path, source } => Self::io("write", &path, &source),
        }
    }
}

impl From<TokenFileError> for ErrorReport {
    fn from(error: TokenFileError) -> Self {
        match error {
            TokenFileError::Io { doing, path, source } => Self::io(doing, &path, &source),
            TokenFileError::Invalid { .. } => Self::usage(&error)
                .hint("restore the file from a copy; or remove it, and create the tokens again"),
        }
    }
}

impl From<TlsError> for ErrorReport {
    fn from(error: TlsError) -> Self {
        let hint = match &error {
            TlsError::Unreadable { .. } | TlsError::Empty { .. } => {
                "name PEM files in server.tls of polity.yaml that this user can read"
            }
            TlsError::Unusable { .. } => {
                "use the key with which the certificate was requested, without a password"
            }
            TlsError::Setup(_) => "leave server.tls out, and use a proxy with TLS",
        };
        Self::usage(&error).hint(hint)
    }
}
