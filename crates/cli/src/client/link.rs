//! The choice between the home and a server.

use polity_host::{HomeFolder, process_environment};
use polity_server::auth::read_local_token;
use polity_server::{published_server, running_server};

use super::{ApiClient, address};
use crate::app::AppContext;
use crate::args::GlobalOptions;
use crate::error::CliError;
use crate::warnings::print_warning;

/// The variable that names the server.
const SERVER_VARIABLE: &str = "POLITY_SERVER";

/// The variable with the token.
const TOKEN_VARIABLE: &str = "POLITY_TOKEN";

/// A server that performs the work of a command.
pub(crate) struct ServerLink {
    pub(crate) options: GlobalOptions,
    pub(crate) client: ApiClient,
    /// The home that the server serves, if it is the home of the command.
    pub(crate) home: Option<AppContext>,
}

/// The URL of the server that the user has named, unless `--local` is given.
pub(crate) fn named_server(options: &GlobalOptions) -> Option<String> {
    if options.local {
        return None;
    }
    options.server_url.clone().or_else(|| process_environment().get(SERVER_VARIABLE))
}

impl ServerLink {
    /// The server at a URL.
    pub(crate) fn to(options: GlobalOptions, url: &str) -> Result<Self, CliError> {
        let url = address::parse(url)?;
        let environment = process_environment();
        // The local token is for the server of this home only.
        let local = || {
            let data = HomeFolder::find(options.home.as_deref()).ok()?.data();
            let server = published_server(&data)?;
            let is_same = address::parse(&server.url).ok().as_ref() == Some(&url);
            is_same.then(|| read_local_token(&data).ok().flatten()).flatten()
        };
        let token = environment.get(TOKEN_VARIABLE).or_else(local);
        if token.is_some() && address::is_readable_on_its_way(&url) {
            let message = format!("the token travels unencrypted to {}", address::shown(&url));
            let hint = "use https, or a tunnel to the server's machine";
            print_warning(&options, "unencrypted", &message, hint);
        }
        let client = ApiClient::new(url, token, None, &environment)?;
        Ok(Self { options, client, home: None })
    }

    /// The server of a home, if one holds it and `--local` is not given.
    pub(crate) fn of_home(app: &AppContext) -> Result<Option<Self>, CliError> {
        if app.options.local {
            return Ok(None);
        }
        let data = app.folder().data();
        let Some(server) = running_server(&data) else { return Ok(None) };
        let environment = process_environment();
        let url = address::parse(&server.url)?;
        // A server that others can reach has made no local token; a file is from an earlier one.
        let local =
            if address::is_readable_on_its_way(&url) { None } else { read_local_token(&data)? };
        let token = local.or_else(|| environment.get(TOKEN_VARIABLE));
        let client = ApiClient::new(url, token, Some(data), &environment)?;
        Ok(Some(Self { options: app.options.clone(), client, home: Some(app.clone()) }))
    }
}
