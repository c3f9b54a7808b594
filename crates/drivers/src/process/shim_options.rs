//! The shim's options, as a type and as arguments: stop signal, limits and files.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use polity_definition::StopSignal;
use rustix::process::Signal;

use super::pids_limit::PidsLimit;

const GRACE_DEFAULT: Duration = Duration::from_secs(2);

const STOP_SIGNAL: &str = "--stop-signal";
const GRACE_MS: &str = "--grace-ms";
const MEMORY_BYTES: &str = "--memory-bytes";
const CPU_SECONDS: &str = "--cpu-seconds";
const PROCESSES: &str = "--processes";
const RECORD: &str = "--record";
const SLOT: &str = "--place";
const CGROUP: &str = "--cgroup";
const PID_SCOPE: &str = "--pid-scope";
const TASKS: &str = "--tasks";
const TASKS_GROUP: &str = "--tasks-group";
const USAGE: &str = "--usage";
const PIPES: &str = "--pipes";

/// The value of `--usage` for a record without samples.
const UNSAMPLED: &str = "unsampled";

/// The value of `--pipes` for a shim that holds read ends.
const HELD: &str = "held";

/// The end of the options; the command follows.
const END_OF_OPTIONS: &str = "--";

/// The options of the shim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SupervisionOptions {
    /// The signal that asks the command to exit.
    pub stop_signal: Signal,
    /// The grace period after the stop signal.
    pub grace: Duration,
    /// The resource limits.
    pub limits: ProcessTreeLimits,
    /// The run record. The shim locks it while anything of the run is left.
    pub record: Option<PathBuf>,
    /// The slot file. The shim holds a shared lock on it while anything of the run is left.
    pub slot: Option<PathBuf>,
    /// The control group, which the shim creates.
    pub cgroup: Option<PathBuf>,
    /// The kernel's limit on processes and threads.
    pub pids_limit: Option<PidsLimit>,
    /// True if usage is sampled for the record. Without, a stub is enough for a service.
    pub samples_usage: bool,
    /// True if the shim holds read ends of stdout and stderr, and drains them once its parent is
    /// dead, so that a program can write while it ends.
    pub holds_pipes: bool,
}

impl Default for SupervisionOptions {
    fn default() -> Self {
        Self {
            stop_signal: Signal::TERM,
            grace: GRACE_DEFAULT,
            limits: ProcessTreeLimits::default(),
            record: None,
            slot: None,
            cgroup: None,
            pids_limit: None,
            samples_usage: true,
            holds_pipes: false,
        }
    }
}

/// Resource limits of a whole process tree.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProcessTreeLimits {
    /// The maximum memory.
    pub memory_bytes: Option<u64>,
    /// The maximum processor time.
    pub cpu_seconds: Option<u64>,
    /// The maximum number of processes.
    pub processes: Option<u32>,
}

impl ProcessTreeLimits {
    pub(super) fn is_any(&self) -> bool {
        self.memory_bytes.is_some() || self.cpu_seconds.is_some() || self.processes.is_some()
    }
}

/// The boot and PID namespace that the shim writes into its record.
#[cfg(target_os = "linux")]
fn pid_scope() -> Option<OsString> {
    super::proc_stat::own_pid_scope().map(OsString::from)
}

#[cfg(not(target_os = "linux"))]
fn pid_scope() -> Option<OsString> {
    None
}

/// The signal for the name in a definition.
pub(crate) fn signal_of(stop_signal: StopSignal) -> Signal {
    match stop_signal {
        StopSignal::Term => Signal::TERM,
        StopSignal::Int => Signal::INT,
        StopSignal::Hup => Signal::HUP,
        StopSignal::Quit => Signal::QUIT,
        StopSignal::Kill => Signal::KILL,
    }
}

impl SupervisionOptions {
    /// The options as arguments, up to the command.
    pub(super) fn to_args(&self) -> Vec<OsString> {
        let number = |number: u64| Some(OsString::from(number.to_string()));
        let path = |path: &Option<PathBuf>| path.as_ref().map(OsString::from);
        let defaults = Self::default();
        let stop_signal = Some(self.stop_signal).filter(|own| *own != defaults.stop_signal);
        let grace = Some(self.grace).filter(|own| *own != defaults.grace);
        let options = [
            (STOP_SIGNAL, stop_signal.map(|signal| signal.as_raw().to_string().into())),
            (GRACE_MS, grace.map(|grace| grace.as_millis().to_string().into())),
            (MEMORY_BYTES, self.limits.memory_bytes.and_then(number)),
            (CPU_SECONDS, self.limits.cpu_seconds.and_then(number)),
            (PROCESSES, self.limits.processes.and_then(|count| number(count.into()))),
            (RECORD, path(&self.record)),
            (SLOT, path(&self.slot)),
            (CGROUP, path(&self.cgroup)),
            (PID_SCOPE, self.record.as_ref().and_then(|_| pid_scope())),
            (TASKS, self.pids_limit.as_ref().and_then(|limit| number(limit.tasks))),
            (TASKS_GROUP, self.pids_limit.as_ref().and_then(|limit| path(&limit.group))),
            (USAGE, (!self.samples_usage).then(|| UNSAMPLED.into())),
            (PIPES, self.holds_pipes.then(|| HELD.into())),
        ];
        let given = options.into_iter().filter_map(|(name, value)| Some([name.into(), value?]));
        let mut args: Vec<OsString> = given.flatten().collect();
        args.push(END_OF_OPTIONS.into());
        args
    }

    /// Parses the options. Returns them and the remaining arguments.
    #[cfg(target_os = "linux")]
    pub(super) fn from_args(args: &[OsString]) -> Option<(Self, &[OsString])> {
        let mut options = Self::default();
        let mut rest = args;
        loop {
            match rest {
                [end, program @ ..] if end == END_OF_OPTIONS => return Some((options, program)),
                [name, value, after @ ..] => {
                    options.set(name.to_str()?, value)?;
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
            SLOT => self.slot = Some(value.into()),
            CGROUP => self.cgroup = Some(value.into()),
            // Only the stub needs it, which cannot look it up as cheaply.
            PID_SCOPE => {}
            TASKS => self.pids_limit = Some(PidsLimit { tasks: number()?, group: None }),
            USAGE if value == UNSAMPLED => self.samples_usage = false,
            PIPES if value == HELD => self.holds_pipes = true,
            TASKS_GROUP => self.pids_limit.as_mut()?.group = Some(value.into()),
            _ => return None,
        }
        Some(())
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn options_survive_a_round_trip() {
        let all_set = SupervisionOptions {
            stop_signal: Signal::INT,
            grace: Duration::from_millis(1500),
            limits: ProcessTreeLimits {
                memory_bytes: Some(1 << 40),
                cpu_seconds: Some(7),
                processes: Some(9),
            },
            record: Some("/a b/--".into()),
            slot: Some("--place".into()),
            cgroup: Some("/x".into()),
            pids_limit: Some(PidsLimit { tasks: 1024, group: Some("/y".into()) }),
            samples_usage: false,
            holds_pipes: true,
        };
        for options in [SupervisionOptions::default(), all_set] {
            let mut args = options.to_args();
            args.extend(["sh".into(), "--".into()]);
            let (parsed, program) = SupervisionOptions::from_args(&args).unwrap();
            assert_eq!(parsed, options);
            assert_eq!(program, ["sh", "--"]);
        }
    }

    #[test]
    fn rejects_invalid_options() {
        for args in [
            &["--"][..0],
            &["--grace-ms"],
            &["--grace-ms", "x", "--"],
            &["--other", "1", "--"],
            &["--pipes", "x", "--"],
        ] {
            let args: Vec<OsString> = args.iter().map(OsString::from).collect();
            assert_eq!(SupervisionOptions::from_args(&args), None, "{args:?}");
        }
    }
}
