//! Starting other programs, and ending them to the last of their descendants.
//!
//! A program is started through a shim, a process of its own that adopts whatever the program leaves
//! behind, also processes that made a session of their own, and ends all of them when the program
//! ends, when it is told to, or when Polity is gone, however it went. The shim is this same
//! executable, called as `polity __supervise STATE PARENT [OPTION VALUE]... -- COMMAND ARGS...`. What
//! it does is in `supervise`; `child` is the side of the one who starts.
//!
//! In front of it stands a `small` one, which is much cheaper and enough for most programs. It becomes
//! the whole one, in the same process, when there is more to do than to wait for the program's end.
//!
//! Where there is no shim, [`Launcher::Direct`] ends the program's process group.

mod ceiling;
#[cfg(target_os = "linux")]
pub(crate) mod cgroup;
mod child;
mod find;
pub(crate) mod record;
#[cfg(target_os = "linux")]
mod small;
#[cfg(target_os = "linux")]
mod supervise;
pub(crate) mod supervision;
mod words;

use std::fmt;
use std::path::PathBuf;

pub use ceiling::Ceiling;
pub use child::{Child, Started};
pub(crate) use child::{Handle, Pipes};
pub(crate) use find::find;
#[cfg(target_os = "linux")]
pub use supervise::supervise;
pub use supervision::{Supervision, TreeLimits};
pub use words::LastWords;
pub(crate) use words::Tail;

/// The hidden command by which the executable becomes the shim.
pub const SUPERVISE: &str = "__supervise";

/// How programs are started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Launcher {
    /// Through the shim, which is this executable. Nothing outlives the program.
    Shim(PathBuf),
    /// Directly, in a process group of its own. Descendants that leave the group may outlive it.
    Direct,
}

/// A program to start.
#[derive(Clone, PartialEq, Eq)]
pub struct Program {
    /// The path of the executable.
    pub path: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its whole environment; nothing is inherited.
    pub env: Vec<(String, String)>,
    /// Its working directory.
    pub folder: PathBuf,
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Variables hold secrets, so only their names are shown.
        let variables: Vec<_> = self.env.iter().map(|(name, _)| name).collect();
        f.debug_struct("Program")
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
    fn a_program_is_shown_without_what_its_variables_hold() {
        let env = vec![("KEY".to_owned(), "s3cret".to_owned())];
        let program = Program { path: "sh".into(), args: Vec::new(), env, folder: "/".into() };
        let shown = format!("{program:?}");
        assert!(shown.contains("KEY") && !shown.contains("s3cret"), "{shown}");
    }
}
