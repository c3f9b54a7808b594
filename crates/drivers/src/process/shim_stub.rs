//! The stub of the shim as an executable file in memory.
//!
//! A memory file cannot be lost or mounted `noexec`. If the system forbids executing it, the full
//! shim is started directly.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use rustix::fs::MemfdFlags;
use rustix::io::Errno;

/// The stub's exit code if it is called without arguments.
const EXIT_NOT_UNDERSTOOD: i32 = 127;

/// The stub, in memory while this process lives.
struct StubFile {
    path: PathBuf,
    /// Keeps the path valid.
    _file: File,
}

/// The path at which children of this process find the stub, if it can be used.
pub(super) fn path() -> Option<&'static Path> {
    static SMALL: OnceLock<Option<StubFile>> = OnceLock::new();
    SMALL.get_or_init(tried).as_ref().map(|small| small.path.as_path())
}

/// The stub, if it can be started here.
fn tried() -> Option<StubFile> {
    let small = in_memory(polity_shim::STUB?)
        .inspect_err(|error| tracing::debug!(%error, "the small shim is not used"))
        .ok()?;
    starts(&small.path).then_some(small)
}

fn in_memory(program: &[u8]) -> io::Result<StubFile> {
    let mut writable = File::from(memory_file()?);
    writable.write_all(program)?;
    // A file that is open for writing cannot be executed.
    let file = File::open(of(&writable))?;
    drop(writable);
    Ok(StubFile { path: of(&file), _file: file })
}

/// Linux 6.3 and later require a flag for executable memory files; earlier versions reject it.
fn memory_file() -> io::Result<OwnedFd> {
    let create = |flags| rustix::fs::memfd_create("polity-shim", MemfdFlags::CLOEXEC | flags);
    match create(MemfdFlags::EXEC) {
        Err(Errno::INVAL) => Ok(create(MemfdFlags::empty())?),
        created => Ok(created?),
    }
}

/// The path of a file descriptor, which a child inherits until exec.
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
