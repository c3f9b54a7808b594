//! Arguments of `serve` and `token`.

use std::net::SocketAddr;

use clap::{Args as ClapArgs, Subcommand, ValueEnum};
use polity_model::name::Name;
use polity_server::auth::Scope;

use super::CliCommand;

/// Arguments of `serve`.
#[derive(Debug, ClapArgs)]
pub(crate) struct ServeArgs {
    /// The address and port to listen on, in place of server.listen; port 0 picks a free one
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Option<SocketAddr>,
    /// The form of the log on stderr: a line of text, or a JSON document per line
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) log_format: LogFormat,
}

impl CliCommand {
    /// The form of the log of a server; none for other commands, which log errors only.
    pub(crate) fn server_log(&self) -> Option<LogFormat> {
        if let Self::Serve(args) = self { Some(args.log_format) } else { None }
    }
}

/// The form of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for people
    #[default]
    Text,
    /// A JSON document per line, with the time
    Json,
}

/// Subcommands of `token`.
#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Create a token and print it; it is shown only once
    Create(TokenCreateArgs),
    /// List tokens without their secrets
    List,
    /// Revoke a token; its open streams end within seconds
    Revoke(TokenRevokeArgs),
}

/// Arguments of `token create`.
#[derive(Debug, ClapArgs)]
pub(crate) struct TokenCreateArgs {
    /// The purpose, for people; recorded with what the token does
    pub(crate) name: String,
    /// The rights; may be repeated. Without it: read
    #[arg(long = "scope", value_name = "SCOPE", value_delimiter = ',')]
    pub(crate) scopes: Vec<ScopeArg>,
    /// The only agents and workflows that it may see and use; may be repeated
    #[arg(long = "agent", value_name = "NAME", value_delimiter = ',')]
    pub(crate) agents: Vec<Name>,
    /// The number of days after which it is refused. Without it: never
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) expires_days: Option<u16>,
}

/// A scope on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ScopeArg {
    /// Read everything except secrets
    Read,
    /// Start, cancel and continue work
    Run,
    /// Answer reviews
    Review,
    /// Change agents and schedules; includes all others
    Admin,
}

impl From<ScopeArg> for Scope {
    fn from(scope: ScopeArg) -> Self {
        match scope {
            ScopeArg::Read => Self::Read,
            ScopeArg::Run => Self::Run,
            ScopeArg::Review => Self::Review,
            ScopeArg::Admin => Self::Admin,
        }
    }
}

/// Arguments of `token revoke`.
#[derive(Debug, ClapArgs)]
pub(crate) struct TokenRevokeArgs {
    /// The id or name, as `token list` shows it
    pub(crate) token: String,
}
