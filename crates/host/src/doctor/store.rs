//! The database: its integrity, its size and the space on its disk.

use polity_definition::Home;
use polity_store::Store as _;

use super::{CheckSubject, DoctorCheck, bytes_text};
use crate::context::HostContext;
use crate::error::HostError;
use crate::report::ErrorReport;
use crate::resources::free_disk_bytes;

const SUBJECT: CheckSubject = CheckSubject::Store;

pub(super) async fn checks(context: &HostContext, home: &Home) -> Vec<DoctorCheck> {
    let mut checks = database(context).await;
    checks.push(disk(context, home));
    checks
}

async fn database(context: &HostContext) -> Vec<DoctorCheck> {
    const NAME: &str = "database";
    let path = context.folder().database();
    let Ok(metadata) = path.metadata() else {
        return vec![DoctorCheck::ok(SUBJECT, NAME, "not created yet")];
    };
    match examine(context).await {
        Ok((faults, position)) if faults.is_empty() => {
            let size = bytes_text(metadata.len());
            let finding = format!("intact, {size}, at position {position} of the journal");
            vec![DoctorCheck::ok(SUBJECT, NAME, finding)]
        }
        Ok((faults, _)) => {
            let finding = format!("damaged: {}", faults.join("; "));
            vec![
                DoctorCheck::missing(SUBJECT, NAME, finding)
                    .meaning("tasks may be lost, and commands fail")
                    .fix("stop all processes of this home, and `polity restore` a backup")
                    .needed(),
            ]
        }
        Err(error) => {
            let report = ErrorReport::from(error);
            let check = DoctorCheck::missing(SUBJECT, NAME, report.message())
                .meaning("no task can be read or started")
                .needed();
            vec![match report.hint_text() {
                Some(hint) => check.fix(hint),
                None => check,
            }]
        }
    }
}

/// The faults of the database, and the newest position of its journal.
async fn examine(context: &HostContext) -> Result<(Vec<String>, u64), HostError> {
    let store = context.open_reader()?;
    let position = store.last_position().await?;
    let faults = store.integrity_faults().await?;
    Ok((faults, position.0))
}

fn disk(context: &HostContext, home: &Home) -> DoctorCheck {
    const NAME: &str = "disk";
    let least = home.settings.server.min_free_disk_bytes;
    let data = context.folder().data();
    let path = if data.exists() { data } else { context.folder().root().to_owned() };
    match free_disk_bytes(&path) {
        Ok(free) if free >= least => {
            DoctorCheck::ok(SUBJECT, NAME, format!("{} are free", bytes_text(free)))
        }
        Ok(free) => DoctorCheck::missing(SUBJECT, NAME, format!("{} are free", bytes_text(free)))
            .meaning(format!(
                "a server takes no new work below server.min_free_disk_bytes ({})",
                bytes_text(least)
            ))
            .fix("free space on the disk; `polity gc` removes ended tasks")
            .needed(),
        Err(error) => {
            DoctorCheck::weaker(SUBJECT, NAME, format!("its free space is unknown: {error}"))
        }
    }
}
