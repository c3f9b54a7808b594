//! The shim: runs one command and ends everything that it started.
//!
//! As subreaper, the shim becomes the parent of every orphaned descendant, in any session or group.
//! Ending the tree is therefore a loop: kill the children, adopt theirs, until none is left.
//!
//! Each child has a shim, so it is small: one thread, no runtime, and only a few system calls for a
//! command that leaves nothing behind. Of the command's pipes it holds at most read ends, so that the
//! command can still write while it ends after the death of Polity.

mod output_drain;
mod process_tree;
mod signal_pipe;
mod usage_meter;

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use polity_model::run::ProcessExit;
use polity_shim::HandoverState;
use rustix::fs::FlockOperation;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, WaitOptions};

use self::output_drain::{OutputDrain, PipeReadEnds};
use self::signal_pipe::SignalPipe;
use self::usage_meter::UsageMeter;
use super::cgroup;
use super::run_record::{EndEntry, RecordWriter, ResourceLimit, RunExit};
use super::shim_options::SupervisionOptions;

/// The grace period of processes left behind. It is short, so that the result is not delayed.
const LEFT_BEHIND_GRACE: Duration = Duration::from_secs(2);

/// The pause between attempts to kill resisting children.
const KILL_PAUSE: Duration = Duration::from_millis(20);

/// The maximum time that killed processes may take to exit. A process stuck in the kernel, for
/// example on a lost disk, is not waited for any longer.
const KILLED_WAIT: Duration = Duration::from_secs(30);

/// The exit code of shells for a command that cannot be started.
const EXIT_NOT_STARTED: u8 = 127;

/// The offset that shells add to a signal number in exit codes.
const EXIT_SIGNAL_BASE: i32 = 128;

const USAGE: &str = "usage: STATE PARENT [OPTION VALUE]... -- COMMAND ARGS...";

/// The shim's main function. `args` follow the hidden subcommand: handover state, parent pid,
/// options, `--`, command and arguments. Returns when the process tree has ended.
#[expect(clippy::print_stderr, reason = "the stderr of the run, which Polity reads and masks")]
pub fn supervise(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    match run(&args.into_iter().collect::<Vec<_>>()) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(EXIT_NOT_STARTED)
        }
    }
}

fn run(args: &[OsString]) -> io::Result<u8> {
    let usage = || io::Error::other(USAGE);
    let (state, args) = args.split_first().ok_or_else(usage)?;
    let state = state.to_str().and_then(HandoverState::parse).ok_or_else(usage)?;
    let (parent, args) = args.split_first().ok_or_else(usage)?;
    let parent = parent.to_str().and_then(|pid| pid.parse().ok()).and_then(Pid::from_raw);
    let parent = parent.ok_or_else(usage)?;
    let (options, args) = SupervisionOptions::from_args(args).ok_or_else(usage)?;
    let (program, args) = args.split_first().ok_or_else(usage)?;
    polity_shim::set_process_name();
    let signals = SignalPipe::listen()?;
    polity_shim::unblock_signals();
    let mut supervised = match state {
        HandoverState::New => match start_command(program, args, (options, signals), parent)? {
            Some(supervised) => supervised,
            None => return Ok(EXIT_NOT_STARTED),
        },
        HandoverState::Started { pid, elapsed } => {
            let pid = Pid::from_raw(pid).ok_or_else(usage)?;
            take_over(pid, elapsed, (options, signals), parent)?
        }
    };
    let reason = match supervised.wait_for_reason() {
        Ok(StopReason::Exited) if supervised.has_reached_pids_limit() => {
            StopReason::OverLimit(ResourceLimit::Processes)
        }
        Ok(reason) => reason,
        Err(error) => {
            supervised.kill_all()?;
            return Err(error);
        }
    };
    supervised.end_tree(reason)?;
    if let Some(group) = &supervised.options.cgroup {
        // The group is empty; a remaining one is harmless.
        let _ = cgroup::clear(group);
    }
    let exit = supervised.exit();
    let run_exit = match reason {
        StopReason::Exited => RunExit::Exited(exit),
        StopReason::Stopped => RunExit::Stopped(exit),
        StopReason::OverLimit(limit) => RunExit::OverLimit(limit, exit),
    };
    write_end(supervised.record.as_ref(), run_exit, &supervised.meter)?;
    Ok(exit_code(exit))
}

/// Starts the command, unless Polity has died.
fn start_command(
    program: &OsString,
    args: &[OsString],
    (options, signals): (SupervisionOptions, SignalPipe),
    parent: Pid,
) -> io::Result<Option<SupervisedTree>> {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    // The kernel sends this signal when the parent thread exits, which need not be the end of the
    // parent process. So the signal is only a reason to check.
    rustix::process::set_parent_process_death_signal(Some(Signal::USR1))?;
    let record = options.record.as_deref().map(RecordWriter::create).transpose()?;
    let slot = options.slot.as_deref().map(hold_slot).transpose()?;
    // Only after the record is locked: a process that can lock it knows that nothing starts.
    if !is_child_of(parent) {
        return Ok(None);
    }
    let meter = UsageMeter::new(options.limits, Duration::ZERO);
    let drain = options.holds_pipes.then(OutputDrain::default);
    let pid = match spawn(program, args, options.holds_pipes) {
        Ok(pid) => pid,
        Err(error) => {
            let os_error = error.raw_os_error().unwrap_or_default();
            write_end(record.as_ref(), RunExit::NotStarted { os_error }, &meter)?;
            let message = format!("cannot start {}: {error}", program.display());
            return Err(io::Error::new(error.kind(), message));
        }
    };
    let status = None;
    Ok(Some(SupervisedTree {
        pid,
        parent,
        status,
        options,
        signals,
        drain,
        record,
        _slot: slot,
        meter,
    }))
}

/// Takes over from the stub, which started the command in this process and locked the files.
fn take_over(
    pid: Pid,
    elapsed: Duration,
    (options, signals): (SupervisionOptions, SignalPipe),
    parent: Pid,
) -> io::Result<SupervisedTree> {
    let record = options.record.as_deref().map(RecordWriter::resume).transpose()?;
    let mut meter = UsageMeter::new(options.limits, elapsed);
    if options.limits.is_any() {
        // Checks the limits at once.
        meter.due = Instant::now();
    } else if record.is_some() && options.samples_usage {
        // Takes a first sample, in case the run ends soon.
        meter.sample()?;
    }
    let drain = options.holds_pipes.then(OutputDrain::default);
    let (status, slot) = (None, None);
    Ok(SupervisedTree { pid, parent, status, options, signals, drain, record, _slot: slot, meter })
}

/// Holds the slot of the run. Acquiring a slot needs an exclusive lock, holding it a shared one.
fn hold_slot(path: &std::path::Path) -> io::Result<File> {
    let slot = File::open(path)?;
    rustix::fs::flock(&slot, FlockOperation::NonBlockingLockShared)?;
    Ok(slot)
}

fn write_end(record: Option<&RecordWriter>, exit: RunExit, meter: &UsageMeter) -> io::Result<()> {
    let Some(record) = record else { return Ok(()) };
    let duration_ms = u64::try_from(meter.elapsed().as_millis()).unwrap_or(u64::MAX);
    record.write_end(&EndEntry { exit, duration_ms, usage: meter.total() })
}

fn is_child_of(parent: Pid) -> bool {
    rustix::process::getppid() == Some(parent)
}

/// Starts the command in a group of its own, and closes its pipes here, or keeps read ends of them.
#[expect(clippy::disallowed_methods, reason = "this is where programs are started")]
fn spawn(program: &OsString, args: &[OsString], holds_pipes: bool) -> io::Result<Pid> {
    // Before the start, so that the command never has a pipe without a reader.
    let read_ends = if holds_pipes { PipeReadEnds::open() } else { None };
    let child = Command::new(program).args(args).process_group(0).spawn()?;
    let pid = Pid::from_raw(child.id().cast_signed()).ok_or(io::ErrorKind::NotFound)?;
    if let Some(read_ends) = read_ends {
        read_ends.keep()?;
        return Ok(pid);
    }
    let null = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    Ok(pid)
}

/// The reason to end the process tree.
#[derive(Debug, Clone, Copy)]
enum StopReason {
    /// The command exited; the rest of the tree has to end, too.
    Exited,
    /// The shim was told to end it, or Polity died.
    Stopped,
    /// The tree exceeds a limit.
    OverLimit(ResourceLimit),
}

struct SupervisedTree {
    pid: Pid,
    parent: Pid,
    status: Option<WaitIdStatus>,
    options: SupervisionOptions,
    signals: SignalPipe,
    drain: Option<OutputDrain>,
    record: Option<RecordWriter>,
    _slot: Option<File>,
    meter: UsageMeter,
}

impl SupervisedTree {
    /// Waits for a reason to end the tree, and samples its usage.
    fn wait_for_reason(&mut self) -> io::Result<StopReason> {
        // Usage is sampled only for a record or a limit.
        let is_measured =
            (self.record.is_some() && self.options.samples_usage) || self.options.limits.is_any();
        loop {
            self.check_exit()?;
            if self.status.is_some() {
                return Ok(StopReason::Exited);
            }
            if self.signals.should_end() || !is_child_of(self.parent) {
                return Ok(StopReason::Stopped);
            }
            if is_measured && Instant::now() >= self.meter.due {
                if self.exceeds_process_limit() {
                    return Ok(StopReason::OverLimit(ResourceLimit::Processes));
                }
                self.reap_others()?;
                let (usage, exceeded) = self.meter.sample()?;
                if let Some(limit) = exceeded {
                    return Ok(StopReason::OverLimit(limit));
                }
                if let Some(record) = &self.record {
                    // A full disk does not end the run; the next sample may succeed.
                    let _ = record.write_usage(&usage);
                }
            }
            let deadline =
                if is_measured { self.meter.due } else { Instant::now() + Duration::from_hours(1) };
            self.signals.wait_until(deadline, &[])?;
            if !is_measured {
                self.reap_others()?;
            }
        }
    }

    /// True if the control group has too many processes. Counting is faster than sampling each one.
    /// Without a group, the sample decides.
    fn exceeds_process_limit(&self) -> bool {
        let limit = self.options.limits.processes.zip(self.options.cgroup.as_ref());
        limit.is_some_and(|(most, group)| cgroup::has_more_than(group, most).unwrap_or(false))
    }

    /// True if a fork failed because of the kernel's limit.
    fn has_reached_pids_limit(&self) -> bool {
        let group = self.options.pids_limit.as_ref().and_then(|limit| limit.group.as_ref());
        group.is_some_and(|group| cgroup::has_reached_limit(group).unwrap_or(false))
    }

    fn end_tree(&mut self, reason: StopReason) -> io::Result<()> {
        if self.status.is_some() && self.is_only_child()? {
            rustix::process::waitpid(Some(self.pid), WaitOptions::empty())?;
            return Ok(());
        }
        let asked = match reason {
            StopReason::Exited => self.request_exit(self.options.grace.min(LEFT_BEHIND_GRACE)),
            StopReason::Stopped => self.request_exit(self.options.grace),
            // No grace period for a tree that uses too much.
            StopReason::OverLimit(_) => Ok(()),
        };
        self.kill_all()?;
        asked
    }

    /// True if the command is the only child.
    fn is_only_child(&self) -> io::Result<bool> {
        Ok(process_tree::children()? == [self.pid])
    }

    /// Sends the stop signal to all descendants and waits for their exit.
    fn request_exit(&mut self, grace: Duration) -> io::Result<()> {
        let signal = self.options.stop_signal;
        let descendants = process_tree::descendants()?;
        // The group first: it includes processes that are just being forked. The command is not
        // reaped yet, so the group id is still valid.
        let _ = rustix::process::kill_process_group(self.pid, signal);
        for pid in descendants {
            // The group signal has reached it.
            if rustix::process::getpgid(Some(pid)) != Ok(self.pid) {
                process_tree::signal_descendant(pid, signal);
            }
        }
        let deadline = Instant::now() + grace;
        loop {
            self.check_exit()?;
            self.reap_others()?;
            if (self.status.is_some() && self.is_only_child()?) || Instant::now() >= deadline {
                return Ok(());
            }
            self.wait_while_ending(deadline)?;
        }
    }

    /// Waits for a signal until the deadline. Drains the output once Polity cannot read it any more.
    fn wait_while_ending(&mut self, deadline: Instant) -> io::Result<()> {
        match &mut self.drain {
            Some(drain) if !is_child_of(self.parent) => {
                self.signals.wait_until(deadline, drain.open_pipes())?;
                drain.discard();
                Ok(())
            }
            Some(_) | None => self.signals.wait_until(deadline, &[]),
        }
    }

    /// Kills all children until none is left. Only children are killed, because their pids stay
    /// valid until they are reaped. Grandchildren become children when their parents exit.
    fn kill_all(&mut self) -> io::Result<()> {
        let mut is_reaped = false;
        let deadline = Instant::now() + KILLED_WAIT;
        loop {
            if Instant::now() >= deadline {
                let left = process_tree::children()?;
                let left: Vec<_> =
                    left.iter().map(|pid| pid.as_raw_nonzero().to_string()).collect();
                let left = left.join(", ");
                return Err(io::Error::other(format!("killed processes do not exit: {left}")));
            }
            if let Some(group) = &self.options.cgroup {
                // Without a group, signals have to do.
                let _ = cgroup::kill(group);
            }
            if !is_reaped {
                let _ = rustix::process::kill_process_group(self.pid, Signal::KILL);
            }
            for child in process_tree::children()? {
                let _ = rustix::process::kill_process(child, Signal::KILL);
            }
            self.check_exit()?;
            if self.status.is_some() {
                // From here on the command may be reaped like any other child.
                is_reaped = true;
                loop {
                    match rustix::process::wait(WaitOptions::NOHANG) {
                        Ok(Some(_)) => {}
                        Ok(None) => break,
                        Err(rustix::io::Errno::CHILD) => return Ok(()),
                        Err(error) => return Err(error.into()),
                    }
                }
            }
            self.signals.wait_until(Instant::now() + KILL_PAUSE, &[])?;
        }
    }

    /// Checks for the command's exit without reaping it, so that its group can still be signalled.
    fn check_exit(&mut self) -> io::Result<()> {
        if self.status.is_none() {
            let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
            self.status = rustix::process::waitid(WaitId::Pid(self.pid), look)?;
        }
        Ok(())
    }

    /// Reaps all exited children except the command.
    fn reap_others(&self) -> io::Result<()> {
        for child in process_tree::children()? {
            if child != self.pid {
                // A running child is skipped.
                let _ = rustix::process::waitpid(Some(child), WaitOptions::NOHANG);
            }
        }
        Ok(())
    }

    fn exit(&self) -> ProcessExit {
        let status = self.status.as_ref();
        let by_signal = status.and_then(WaitIdStatus::terminating_signal).map(ProcessExit::Signal);
        let by_itself = status.and_then(WaitIdStatus::exit_status).map(ProcessExit::Code);
        by_itself.or(by_signal).unwrap_or(ProcessExit::Code(EXIT_NOT_STARTED.into()))
    }
}

/// The shim's own exit code, by the convention of shells.
fn exit_code(exit: ProcessExit) -> u8 {
    let code = match exit {
        ProcessExit::Code(code) => code,
        ProcessExit::Signal(number) => EXIT_SIGNAL_BASE + number,
    };
    u8::try_from(code).unwrap_or(EXIT_NOT_STARTED)
}
