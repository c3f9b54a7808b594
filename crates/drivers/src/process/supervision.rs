//! What the shim is told: how it ends a program, what the program may use, and where it writes
//! down how it went.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use polity_definition::StopSignal;
use rustix::process::Signal;

use super::ceiling::Ceiling;

/// How long a program may take to end after the stop signal, where nothing else is said.
const GRACE_DEFAULT: Duration = Duration::from_secs(2);

const STOP_SIGNAL: &str = "--stop-signal";
const GRACE_MS: &str = "--grace-ms";
const MEMORY_BYTES: &str = "--memory-bytes";
const CPU_SECONDS: &str = "--cpu-seconds";
const PROCESSES: &str = "--processes";
const RECORD: &str = "--record";
const PLACE: &str = "--place";
const CGROUP: &str = "--cgroup";
const TASKS: &str = "--tasks";
const TASKS_GROUP: &str = "--tasks-group";

/// What ends the options; the program follows.
const END_OF_OPTIONS: &str = "--";

/// How a program is supervised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Supervision {
    /// What asks the program to end.
    pub stop_signal: Signal,
    /// How long it may take then.
    pub grace: Duration,
    /// What it may use.
    pub limits: TreeLimits,
    /// Where the shim writes down how it went. It holds a lock on the file for as long as anything
    /// of the program is left.
    pub record: Option<PathBuf>,
    /// A file on which the shim holds a shared lock for as long as anything of the program is left.
    pub place: Option<PathBuf>,
    /// A control group for the program, which the shim makes.
    pub cgroup: Option<PathBuf>,
    /// Where the system itself stops those who multiply.
    pub ceiling: Option<Ceiling>,
}

impl Default for Supervision {
    fn default() -> Self {
        Self {
            stop_signal: Signal::TERM,
            grace: GRACE_DEFAULT,
            limits: TreeLimits::default(),
            record: None,
            place: None,
            cgroup: None,
            ceiling: None,
        }
    }
}

/// What a program and everything it starts may use together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TreeLimits {
    /// The most memory, in bytes.
    pub memory_bytes: Option<u64>,
    /// The most processor time, in seconds.
    pub cpu_seconds: Option<u64>,
    /// The most processes.
    pub processes: Option<u32>,
}

impl TreeLimits {
    /// Whether there is any limit.
    pub(super) fn is_any(&self) -> bool {
        self.memory_bytes.is_some() || self.cpu_seconds.is_some() || self.processes.is_some()
    }
}

/// The signal by its name in a definition.
pub(crate) fn signal_of(stop_signal: StopSignal) -> Signal {
    match stop_signal {
        StopSignal::Term => Signal::TERM,
        StopSignal::Int => Signal::INT,
        StopSignal::Hup => Signal::HUP,
        StopSignal::Quit => Signal::QUIT,
        StopSignal::Kill => Signal::KILL,
    }
}

impl Supervision {
    /// The options of the shim, up to where the program follows.
    pub(super) fn to_args(&self) -> Vec<OsString> {
        let mut args = Vec::new();
        let mut option = |name: &str, value: OsString| args.extend([OsString::from(name), value]);
        let usual = Self::default();
        if self.stop_signal != usual.stop_signal {
            option(STOP_SIGNAL, self.stop_signal.as_raw().to_string().into());
        }
        if self.grace != usual.grace {
            option(GRACE_MS, self.grace.as_millis().to_string().into());
        }
        if let Some(bytes) = self.limits.memory_bytes {
            option(MEMORY_BYTES, bytes.to_string().into());
        }
        if let Some(seconds) = self.limits.cpu_seconds {
            option(CPU_SECONDS, seconds.to_string().into());
        }
        if let Some(count) = self.limits.processes {
            option(PROCESSES, count.to_string().into());
        }
        if let Some(path) = &self.record {
            option(RECORD, path.into());
        }
        if let Some(path) = &self.place {
            option(PLACE, path.into());
        }
        if let Some(path) = &self.cgroup {
            option(CGROUP, path.into());
        }
        if let Some(Ceiling { tasks, group }) = &self.ceiling {
            option(TASKS, tasks.to_string().into());
            if let Some(path) = group {
                option(TASKS_GROUP, path.into());
            }
        }
        args.push(END_OF_OPTIONS.into());
        args
    }

    /// Reads the options, and gives what follows them.
    #[cfg(target_os = "linux")]
    pub(super) fn from_args(args: &[OsString]) -> Option<(Self, &[OsString])> {
        let mut told = Self::default();
        let mut rest = args;
        loop {
            match rest {
                [end, program @ ..] if end == END_OF_OPTIONS => return Some((told, program)),
                [name, value, after @ ..] => {
                    told.set(name.to_str()?, value)?;
                    rest = after;
                }
                [] | [_] => return None,
            }
        }
    }

    #[cfg(target_os = "linux")]
    fn set(&mut self, name: &str, value: &OsStr) -> Option<()> {
        let number = || value.to_str()?.parse::<u64>().ok();
        match name {
            STOP_SIGNAL => {
                let raw = i32::try_from(number()?).ok()?;
                self.stop_signal = Signal::from_named_raw(raw)?;
            }
            GRACE_MS => self.grace = Duration::from_millis(number()?),
            MEMORY_BYTES => self.limits.memory_bytes = Some(number()?),
            CPU_SECONDS => self.limits.cpu_seconds = Some(number()?),
            PROCESSES => self.limits.processes = Some(u32::try_from(number()?).ok()?),
            RECORD => self.record = Some(value.into()),
            PLACE => self.place = Some(value.into()),
            CGROUP => self.cgroup = Some(value.into()),
            TASKS => self.ceiling = Some(Ceiling { tasks: number()?, group: None }),
            TASKS_GROUP => self.ceiling.as_mut()?.group = Some(value.into()),
            _ => return None,
        }
        Some(())
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_understood() {
        let everything = Supervision {
            stop_signal: Signal::INT,
            grace: Duration::from_millis(1500),
            limits: TreeLimits {
                memory_bytes: Some(1 << 40),
                cpu_seconds: Some(7),
                processes: Some(9),
            },
            record: Some("/a b/--".into()),
            place: Some("--place".into()),
            cgroup: Some("/x".into()),
            ceiling: Some(Ceiling { tasks: 1024, group: Some("/y".into()) }),
        };
        for told in [Supervision::default(), everything] {
            let mut args = told.to_args();
            args.extend(["sh".into(), "--".into()]);
            let (understood, program) = Supervision::from_args(&args).unwrap();
            assert_eq!(understood, told);
            assert_eq!(program, ["sh", "--"]);
        }
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for args in
            [&["--"][..0], &["--grace-ms"], &["--grace-ms", "x", "--"], &["--other", "1", "--"]]
        {
            let args: Vec<OsString> = args.iter().map(OsString::from).collect();
            assert_eq!(Supervision::from_args(&args), None, "{args:?}");
        }
    }
}
