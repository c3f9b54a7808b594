//! The guard of disk and memory: refuses new work before they run out, so that running work can
//! still be recorded.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use polity_definition::ServerSettings;
use polity_host::{free_disk_bytes, free_memory_bytes};
use tokio::time::Instant;

use crate::http::Problem;

/// The shortest time between two looks at disk and memory.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// The free disk space and memory at one moment; none if the system does not say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct FreeResources {
    /// The free bytes on the disk of the data folder.
    pub(crate) disk_bytes: Option<u64>,
    /// The free bytes of memory.
    pub(crate) memory_bytes: Option<u64>,
}

/// A resource of which too little is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResourceShortage {
    /// The disk of the data folder.
    Disk { free: u64, least: u64 },
    /// The memory of the machine or control group.
    Memory { free: u64, least: u64 },
}

impl ResourceShortage {
    /// The shortage, with the setting that defines it.
    pub(crate) fn message(self) -> String {
        match self {
            Self::Disk { free, least } => format!(
                "the disk of the data folder has {free} free bytes, fewer than \
                 server.min_free_disk_bytes ({least})"
            ),
            Self::Memory { free, least } => format!(
                "the machine has {free} free bytes of memory, fewer than \
                 server.min_free_memory_bytes ({least})"
            ),
        }
    }

    /// The answer to a request that would start work.
    pub(crate) fn problem(self) -> Problem {
        let (code, fix) = match self {
            Self::Disk { .. } => ("insufficient_storage", "free space on the disk"),
            Self::Memory { .. } => ("low_memory", "end other programs, or give the server more"),
        };
        Problem::unavailable(code, self.message())
            .hint(format!("nothing was started; {fix}, and send the request again"))
    }
}

/// Looks at disk and memory when work is to start, at most once per [`LOOK_INTERVAL`].
#[derive(Debug)]
pub(crate) struct ResourceGuard {
    data: PathBuf,
    min_disk_bytes: u64,
    min_memory_bytes: u64,
    last: Mutex<Option<(Instant, FreeResources)>>,
}

impl ResourceGuard {
    pub(crate) fn new(data: PathBuf, settings: &ServerSettings) -> Self {
        Self {
            data,
            min_disk_bytes: settings.min_free_disk_bytes,
            min_memory_bytes: settings.min_free_memory_bytes,
            last: Mutex::default(),
        }
    }

    /// The free resources, as of the last second.
    pub(crate) fn free(&self) -> FreeResources {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, free)) = *last
            && at.elapsed() < LOOK_INTERVAL
        {
            return free;
        }
        let disk = free_disk_bytes(&self.data);
        if let Err(error) = &disk {
            tracing::warn!(%error, "the free space on the disk is unknown");
        }
        let free = FreeResources { disk_bytes: disk.ok(), memory_bytes: free_memory_bytes() };
        *last = Some((Instant::now(), free));
        free
    }

    /// The resource that is short, if any. An unknown one is not.
    pub(crate) fn shortage(&self) -> Option<ResourceShortage> {
        let FreeResources { disk_bytes, memory_bytes } = self.free();
        let below = |free: Option<u64>, least| free.filter(|free| *free < least);
        if let Some(free) = below(disk_bytes, self.min_disk_bytes) {
            return Some(ResourceShortage::Disk { free, least: self.min_disk_bytes });
        }
        let free = below(memory_bytes, self.min_memory_bytes)?;
        Some(ResourceShortage::Memory { free, least: self.min_memory_bytes })
    }
}

#[cfg(test)]
mod tests {
    use polity_definition::HomeSettings;

    use super::*;

    fn guard(disk: u64, memory: u64) -> ResourceGuard {
        let settings = ServerSettings {
            min_free_disk_bytes: disk,
            min_free_memory_bytes: memory,
            ..HomeSettings::default().server
        };
        ResourceGuard::new("/".into(), &settings)
    }

    #[tokio::test(start_paused = true)]
    async fn shortage_names_its_setting() {
        assert_eq!(guard(0, 0).shortage(), None);
        let disk = guard(u64::MAX, 0).shortage().unwrap().message();
        assert!(disk.contains("server.min_free_disk_bytes"), "{disk}");
        let memory = guard(0, u64::MAX).shortage().unwrap().message();
        assert!(memory.contains("server.min_free_memory_bytes"), "{memory}");
    }

    #[tokio::test(start_paused = true)]
    async fn looks_once_a_second_at_most() {
        let guard = guard(10, 0);
        let old = FreeResources { disk_bytes: Some(3), memory_bytes: None };
        *guard.last.lock().unwrap() = Some((Instant::now(), old));
        assert_eq!(guard.shortage(), Some(ResourceShortage::Disk { free: 3, least: 10 }));
        tokio::time::advance(LOOK_INTERVAL).await;
        assert_eq!(guard.shortage(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn folder_that_is_gone_refuses_nothing() {
        let mut guard = guard(u64::MAX, 0);
        guard.data = "/nowhere/at/all".into();
        assert_eq!(guard.shortage(), None);
    }
}
