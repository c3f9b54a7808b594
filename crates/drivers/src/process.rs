//! Starts child processes and ends them with their whole process tree.
//!
//! A child is started through a shim: a process of its own that adopts all orphaned descendants,
//! even those in sessions of their own. The shim kills the tree when the child exits, when it is
//! told to, or when Polity dies. It is this same executable, called as `polity __supervise STATE
//! PARENT [OPTION VALUE]... -- COMMAND ARGS...`.
//!
//! A much cheaper stub (`shim_stub`, crate `polity-shim`) runs first and is enough for most
//! children. It replaces itself with the full shim, in the same process, when there is more to do
//! than to wait.
//!
//! - `child_process`: the launcher's side. `blocking_run`: the same for short commands of Polity.
//!   `executable`: the search in the PATH, and executables in the home.
//!   `stderr_tail`: the last lines of stderr.
//! - `shim`: the shim itself. `shim_options`: its arguments. `run_record`: the file that it writes.
//! - `cgroup`, `pids_limit`: control groups and the kernel's limit on processes.
//! - `run_marker`: processes that a killed shim left. `proc_stat`: the state of a process.
//!
//! Without a shim, [`ProcessLauncher::Direct`] kills the child's process group.

mod blocking_run;
#[cfg(target_os = "linux")]
pub(crate) mod cgroup;
mod child_process;
mod executable;
mod pids_limit;
#[cfg(target_os = "linux")]
mod proc_stat;
#[cfg(target_os = "linux")]
pub(crate) mod run_marker;
pub(crate) mod run_record;
#[cfg(target_os = "linux")]
mod shim;
pub(crate) mod shim_options;
#[cfg(target_os = "linux")]
mod shim_stub;
mod stderr_tail;

use std::fmt;
use std::path::PathBuf;

pub(crate) use blocking_run::{BlockingRunError, BlockingRunLimits, BlockingRunOutput};
#[cfg(target_os = "linux")]
pub use cgroup::{CgroupSupport, cgroup_support};
pub use child_process::{ChildProcess, StartedProcess};
pub(crate) use child_process::{ProcessHandle, ProcessPipes};
pub use executable::HomeProgramCheck;
pub(crate) use executable::find_executable;
pub use pids_limit::PidsLimit;
pub use polity_shim::{landlock_version, unblock_signals, with_passed_descriptor};
#[cfg(target_os = "linux")]
pub use shim::supervise;
pub use shim_options::{ProcessTreeLimits, SupervisionOptions};
pub(crate) use stderr_tail::OutputTail;
pub use stderr_tail::StderrTail;

/// The name of the data folder in a home.
pub const DATA_FOLDER: &str = "data";

/// The hidden subcommand that turns the executable into the shim.
pub const SUPERVISE_COMMAND: &str = "__supervise";

/// The way child processes are started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProcessLauncher {
    /// Through the shim, which is this executable. No descendant outlives the child.
    Shim(PathBuf),
    /// Directly, in a process group of its own. Descendants that leave the group may outlive it.
    Direct,
}

/// A command to start.
#[derive(Clone, PartialEq, Eq)]
pub struct ProcessCommand {
    /// The path of the executable.
    pub path: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its complete environment; nothing is inherited.
    pub env: Vec<(String, String)>,
    /// Its working directory.
    pub folder: PathBuf,
}

impl fmt::Debug for ProcessCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Values may be secret, so only names are shown.
        let variables: Vec<_> = self.env.iter().map(|(name, _)| name).collect();
        f.debug_struct("ProcessCommand")
            .field("path", &self.path)
            .field("args", &self.args)
            .field("env", &variables)
            .field("folder", &self.folder)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_hides_variable_values() {
        let env = vec![("KEY".to_owned(), "s3cret".to_owned())];
        let program =
            ProcessCommand { path: "sh".into(), args: Vec::new(), env, folder: "/".into() };
        let shown = format!("{program:?}");
        assert!(shown.contains("KEY") && !shown.contains("s3cret"), "{shown}");
    }
}
