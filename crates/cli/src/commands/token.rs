//! `polity token`: creates, lists and revokes tokens of the server.

use jiff::{SignedDuration, Timestamp};
use polity_engine::clock::{Clock, SystemClock};
use polity_server::auth::{NewToken, Scope, TokenFile, TokenRecord, random_secret};
use serde_json::{Value, json};

use crate::app::AppContext;
use crate::args::{TokenCommand, TokenCreateArgs, TokenRevokeArgs};
use crate::error::{CliError, CliResult};
use crate::terminal::note;
use crate::view::{table, task as view};

pub(crate) fn token(app: &AppContext, command: TokenCommand) -> CliResult {
    app.folder().must_exist()?;
    let settings = app.definitions()?.settings.server;
    let configured = settings.tokens_file.as_ref().map(ToString::to_string);
    let folder = app.folder();
    let file = TokenFile::of(folder.root(), &folder.data(), configured.as_deref());
    match command {
        TokenCommand::Create(args) => create(app, &file, args),
        TokenCommand::List => list(app, &file),
        TokenCommand::Revoke(args) => revoke(app, &file, &args),
    }
}

fn create(app: &AppContext, file: &TokenFile, args: TokenCreateArgs) -> CliResult {
    let mut records = file.read()?;
    if records.iter().any(|record| record.name == args.name) {
        return Err(CliError::already(format!("there is a token \"{}\"", args.name))
            .hint("use another name, or revoke it with `polity token revoke`"));
    }
    let mut scopes: Vec<Scope> = args.scopes.into_iter().map(Scope::from).collect();
    if scopes.is_empty() {
        scopes.push(Scope::Read);
    }
    let agents = (!args.agents.is_empty()).then_some(args.agents);
    let now = SystemClock.now();
    let expires_at = args.expires_days.map(|days| expiry(now, days)).transpose()?;
    let NewToken { secret, record } =
        NewToken::new(random_secret(), &args.name, scopes, agents, now, expires_at);
    records.push(record.clone());
    polity_files::create_private_folders(&app.folder().data())
        .map_err(|error| CliError::io("create", &app.folder().data(), &error))?;
    file.write(&records)?;
    let mut document = document(&record);
    document["token"] = json!(secret);
    if app.shows_progress() && !app.json() {
        note!("keep it safe: it is not shown again");
    }
    app.print(&document, || secret.clone())
}

fn expiry(now: Timestamp, days: u16) -> Result<Timestamp, CliError> {
    now.checked_add(SignedDuration::from_hours(i64::from(days) * 24))
        .map_err(|error| CliError::usage(format!("--expires-days: {error}")))
}

/// A token without its digest.
fn document(record: &TokenRecord) -> Value {
    json!({
        "id": record.id,
        "name": record.name,
        "scopes": record.scopes,
        "agents": record.agents,
        "created_at": record.created_at,
        "expires_at": record.expires_at,
    })
}

fn list(app: &AppContext, file: &TokenFile) -> CliResult {
    let records = file.read()?;
    let documents: Vec<_> = records.iter().map(document).collect();
    app.print_list(&documents, "no tokens; create one with `polity token create`", || {
        let rows = records.iter().map(|record| {
            let scopes: Vec<_> = record.scopes.iter().map(|scope| scope.as_str()).collect();
            let agents = record.agents.as_ref().map_or("all".to_owned(), |agents| {
                agents.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
            });
            let expires = record.expires_at.map_or("never".to_owned(), view::time);
            [record.id.clone(), record.name.clone(), scopes.join(", "), agents, expires]
        });
        table(["ID", "NAME", "SCOPES", "AGENTS", "EXPIRES"], rows)
    })
}

fn revoke(app: &AppContext, file: &TokenFile, args: &TokenRevokeArgs) -> CliResult {
    let mut records = file.read()?;
    let is_named = |record: &TokenRecord| record.id == args.token || record.name == args.token;
    let Some(at) = records.iter().position(is_named) else {
        return Err(CliError::not_found(format!("there is no token \"{}\"", args.token))
            .hint("`polity token list` lists the tokens"));
    };
    let record = records.remove(at);
    file.write(&records)?;
    app.print(&document(&record), || format!("token {} ({}) is revoked", record.id, record.name))
}
