//! `polity backup` and `polity restore`.

use std::path::Path;

use serde_json::json;

use crate::app::App;
use crate::args::{BackupArgs, RestoreArgs};
use crate::error::{CliError, CliResult};
use crate::exit::Exit;
use crate::view::{count, print_json};

pub(crate) fn backup(app: &App, args: &BackupArgs) -> CliResult {
    if !app.folder.database().exists() {
        return Err(CliError::not_found("nothing has happened in this home yet")
            .hint("give an agent something to do with `polity run`"));
    }
    app.reader()?.backup(&args.file)?;
    let bytes = args.file.metadata().map_or(0, |metadata| metadata.len());
    if app.json() {
        print_json(&json!({"file": args.file, "bytes": bytes}))?;
    } else {
        anstream::println!("wrote {} ({bytes} bytes)", args.file.display());
    }
    Ok(Exit::Done)
}

pub(crate) fn restore(app: &App, args: &RestoreArgs) -> CliResult {
    let living = app
        .instances()
        .living()
        .map_err(|error| CliError::io("read", &app.folder.instances(), &error))?;
    if !living.is_empty() {
        let who = count(living.len(), "process");
        return Err(CliError::conflict(format!("this home is in use by {who}"))
            .hint("nothing was changed; wait until it is no longer at work, then try again"));
    }
    let kept = polity_store::restore(&args.file, &app.folder.database()).map_err(|error| {
        CliError::from(error).hint("nothing was changed; name a file that `polity backup` wrote")
    })?;
    if app.json() {
        print_json(&json!({"file": args.file, "kept": kept}))?;
    } else {
        anstream::println!("restored {}", args.file.display());
        if let Some(kept) = kept {
            let name = kept.file_name().map_or(kept.as_path(), Path::new);
            anstream::println!("what was there before is kept as data/{}", name.display());
        }
    }
    Ok(Exit::Done)
}
