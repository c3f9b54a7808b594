//! The small shim as something that can be started.
//!
//! It is a file in memory, so that there is no disk that could forbid it or lose it. Where the system
//! does not let programs run from there, the whole shim does everything itself.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use rustix::fs::MemfdFlags;
use rustix::io::Errno;

/// What the small shim answers to a call without arguments.
const EXIT_NOT_UNDERSTOOD: i32 = 127;

/// The small shim, in memory for as long as this process lives.
struct Small {
    path: PathBuf,
    /// The path leads through this.
    _file: File,
}

/// The path by which children of this process find the small shim, if there is one.
pub(super) fn path() -> Option<&'static Path> {
    static SMALL: OnceLock<Option<Small>> = OnceLock::new();
    SMALL.get_or_init(tried).as_ref().map(|small| small.path.as_path())
}

/// The small shim, if it can be started here.
fn tried() -> Option<Small> {
    let small = in_memory(polity_shim::PROGRAM?)
        .inspect_err(|error| tracing::debug!(%error, "the small shim is not used"))
        .ok()?;
    starts(&small.path).then_some(small)
}

fn in_memory(program: &[u8]) -> io::Result<Small> {
    let mut writable = File::from(memory_file()?);
    writable.write_all(program)?;
    // What is open for writing cannot be started, so it is opened again.
    let file = File::open(of(&writable))?;
    drop(writable);
    Ok(Small { path: of(&file), _file: file })
}

/// Systems since Linux 6.3 want to be told that it will be started; earlier ones do not know how.
fn memory_file() -> io::Result<OwnedFd> {
    let create = |flags| rustix::fs::memfd_create("polity-shim", MemfdFlags::CLOEXEC | flags);
    match create(MemfdFlags::EXEC) {
        Err(Errno::INVAL) => Ok(create(MemfdFlags::empty())?),
        created => Ok(created?),
    }
}

/// A child has the same descriptors until it becomes what it was started for.
fn of(file: &File) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

#[expect(clippy::disallowed_methods, reason = "this is where programs are started")]
fn starts(path: &Path) -> bool {
    let mut command = Command::new(path);
    command.env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.code() == Some(EXIT_NOT_UNDERSTOOD))
}

#[cfg(all(test, target_os = "linux", target_arch = "x86_64"))]
mod tests {
    #[test]
    fn there_is_a_small_shim_here() {
        assert!(super::path().is_some());
    }
}
