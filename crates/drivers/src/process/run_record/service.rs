//! Records of services: MCP servers and notification commands.
//!
//! A service belongs to a process of Polity and to no execution. That process removes the record when
//! the service has ended. A record that nobody has locked was left by a process that was killed
//! together with its shim, so the next process ends what is left of the service.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use polity_engine::entropy::{EntropySource, SystemEntropy};
use polity_files::{FileAccess, create_file, create_private_folders};

use super::{RUNS, ShimRecord, run_name};

/// The beginning of the record's file name. The rest is random.
const SERVICE_PREFIX: &str = "service-";

/// The record of a service of this process.
#[derive(Debug)]
pub(crate) struct ServiceRecord {
    path: PathBuf,
}

impl ServiceRecord {
    /// Creates an empty record, which the shim fills. Returns `None` if nobody can write there: a
    /// home that is only read has no records.
    pub(crate) fn create(data: &Path) -> io::Result<Option<Self>> {
        let folder = data.join(RUNS);
        let id = u128::from_be_bytes(SystemEntropy.seed());
        let path = folder.join(format!("{SERVICE_PREFIX}{id:032x}.json"));
        let created = create_private_folders(&folder)
            .and_then(|()| create_file(&path, FileAccess::Private).map(drop));
        match created {
            Ok(()) => Ok(Some(Self { path })),
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem
                ) =>
            {
                tracing::warn!(path = %folder.display(), %error, "services have no records here");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The name of the service, which its processes have in a variable.
    pub(crate) fn run(&self) -> String {
        run_name(&self.path)
    }

    /// Removes the record of a service whose shim has exited. Ends what a killed shim left, which
    /// blocks.
    pub(crate) fn finish(&self) -> io::Result<()> {
        if let Some(record) = ShimRecord::open(&self.path)?
            && record.ended().is_none()
        {
            record.end_remaining()?;
        }
        match fs::remove_file(&self.path) {
            // Another process has found and finished it.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
    }
}

/// Ends what is left of the services of dead processes, and removes their records. Blocks.
pub(crate) fn end_abandoned_services(data: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(data.join(RUNS)) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if !entry.file_name().as_encoded_bytes().starts_with(SERVICE_PREFIX.as_bytes()) {
            continue;
        }
        let service = ServiceRecord { path: entry.path() };
        if let Err(error) = finish_if_abandoned(&service) {
            // The others may still be ended.
            let path = service.path.display();
            tracing::warn!(%path, %error, "cannot end the remaining processes of a service");
        }
    }
    Ok(())
}

fn finish_if_abandoned(service: &ServiceRecord) -> io::Result<()> {
    let Some(record) = ShimRecord::open(&service.path)? else { return Ok(()) };
    // The shim locks the record before it writes to it. An empty one is about to be locked.
    if record.has_begun() && record.is_free()? { service.finish() } else { Ok(()) }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::super::{RecordWriter, RunExit};
    use super::*;
    use crate::process::run_record::EndEntry;
    use polity_model::run::{ProcessExit, ResourceUsage};

    #[test]
    fn only_records_without_a_shim_are_removed() {
        let data = tempfile::tempdir().unwrap();
        let new = || ServiceRecord::create(data.path()).unwrap().unwrap();
        let (starting, running, killed, ended) = (new(), new(), new(), new());
        let shim = RecordWriter::create(running.path()).unwrap();
        drop(RecordWriter::create(killed.path()).unwrap());
        let end = EndEntry {
            exit: RunExit::Exited(ProcessExit::Code(0)),
            duration_ms: 1,
            usage: ResourceUsage::default(),
        };
        RecordWriter::create(ended.path()).unwrap().write_end(&end).unwrap();
        let agents = data.path().join(RUNS).join("0-0.json");
        fs::write(&agents, "").unwrap();
        end_abandoned_services(data.path()).unwrap();
        let left = [&starting, &running, &killed, &ended].map(|service| service.path().exists());
        assert_eq!((left, agents.exists()), ([true, true, false, false], true));
        drop(shim);
        end_abandoned_services(data.path()).unwrap();
        assert!(!running.path().exists());
    }

    #[test]
    fn home_without_records_has_no_abandoned_services() {
        let data = tempfile::tempdir().unwrap();
        end_abandoned_services(data.path()).unwrap();
        assert!(!data.path().join(RUNS).exists());
    }
}
