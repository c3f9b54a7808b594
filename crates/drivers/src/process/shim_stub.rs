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
const EXIT_USAGE: i32 = 127;

/// The stub, in memory while this process lives.
struct StubFile {
    path: PathBuf,
    /// Keeps the path valid.
    _file: File,
}

/// The path at which children of this process find the stub, if it can be used.
pub(super) fn stub_path() -> Option<&'static Path> {
    static STUB_FILE: OnceLock<Option<StubFile>> = OnceLock::new();
    STUB_FILE.get_or_init(usable_stub).as_ref().map(|stub| stub.path.as_path())
}

/// The stub, if it can be started here.
fn usable_stub() -> Option<StubFile> {
    let stub = write_memory_file(polity_shim::STUB?)
        .inspect_err(|error| tracing::debug!(%error, "the stub of the shim cannot be used"))
        .ok()?;
    can_start(&stub.path).then_some(stub)
}

fn write_memory_file(program: &[u8]) -> io::Result<StubFile> {
    let mut writable = File::from(create_memory_file()?);
    writable.write_all(program)?;
    // A file that is open for writing cannot be executed.
    let file = File::open(descriptor_path(&writable))?;
    drop(writable);
    Ok(StubFile { path: descriptor_path(&file), _file: file })
}

/// Linux 6.3 and later require a flag for executable memory files; earlier versions reject it.
fn create_memory_file() -> io::Result<OwnedFd> {
    let create = |flags| rustix::fs::memfd_create("polity-shim", MemfdFlags::CLOEXEC | flags);
    match create(MemfdFlags::EXEC) {
        Err(Errno::INVAL) => Ok(create(MemfdFlags::empty())?),
        created => Ok(created?),
    }
}

/// The path of a file descriptor, which a child inherits until exec.
fn descriptor_path(file: &File) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

#[expect(clippy::disallowed_methods, reason = "this is where programs are started")]
fn can_start(path: &Path) -> bool {
    let mut command = Command::new(path);
    command.env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.code() == Some(EXIT_USAGE))
}

#[cfg(all(test, target_os = "linux", target_arch = "x86_64"))]
mod tests {
    #[test]
    fn stub_can_be_started() {
        assert!(super::stub_path().is_some());
    }
}
