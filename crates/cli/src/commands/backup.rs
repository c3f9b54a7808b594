//! `polity backup` and `polity restore`.

use std::path::Path;

use polity_store::StoreError;
use serde_json::json;

use crate::app::AppContext;
use crate::args::{BackupArgs, RestoreArgs};
use crate::error::{CliError, CliResult};
use crate::exit::ExitStatus;
use crate::terminal::{print_json, say};

pub(crate) fn backup(app: &AppContext, args: &BackupArgs) -> CliResult {
    if !app.folder().database().exists() {
        return Err(CliError::not_found("there is nothing to back up: this home has no tasks yet")
            .hint("run an agent first: `polity run NAME INPUT`"));
    }
    app.context.open_reader()?.backup(&args.file)?;
    let bytes = args.file.metadata().map_or(0, |metadata| metadata.len());
    app.print(&json!({"file": args.file, "bytes": bytes}), || {
        format!("wrote {} ({bytes} bytes)", args.file.display())
    })
}

pub(crate) fn restore(app: &AppContext, args: &RestoreArgs) -> CliResult {
    app.folder().must_exist()?;
    app.context.protect_data()?;
    let kept = polity_store::restore(&args.file, &app.folder().database()).map_err(|error| {
        let of_the_backup = match &error {
            StoreError::Damaged { path, .. }
            | StoreError::Foreign { path }
            | StoreError::Missing { path }
            | StoreError::Failed { path, .. } => *path == args.file,
            StoreError::Newer { .. }
            | StoreError::Full { .. }
            | StoreError::NotWritable { .. }
            | StoreError::Busy { .. }
            | StoreError::Unreadable { .. }
            | StoreError::InUse { .. }
            | StoreError::Exists { .. }
            | StoreError::Closed => false,
        };
        let error = CliError::from(error);
        if of_the_backup {
            error.hint("nothing was changed; name a file that `polity backup` wrote")
        } else {
            error
        }
    })?;
    if app.json() {
        print_json(&json!({"file": args.file, "kept": kept}))?;
    } else {
        say!("restored {}", args.file.display())?;
        if let Some(kept) = kept {
            let name = kept.file_name().map_or(kept.as_path(), Path::new);
            say!("the previous database is kept as data/{}", name.display())?;
        }
    }
    Ok(ExitStatus::Done)
}
