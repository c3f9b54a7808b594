//! The shim: runs one program and outlives everything that the program starts.
//!
//! It is the reaper of its descendants, so a process whose parent ends becomes its child, whatever
//! session or group that process made for itself. Ending them all is therefore a loop: kill the
//! children, adopt theirs, until there are none.
//!
//! There is one shim for each program, so it is kept small: one thread, no runtime, and where the
//! program ends and leaves nothing behind, only a few calls to the system. It holds none of the
//! program's pipes, so they close when the program closes them.

mod meter;
mod signals;
mod tree;

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use polity_model::run::Exit;
use polity_shim::State;
use rustix::fs::FlockOperation;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, WaitOptions};

use self::meter::Meter;
use self::signals::Signals;
use super::cgroup;
use super::record::{Ended, How, Limit, RecordWriter};
use super::supervision::Supervision;

/// How long what a program leaves behind may take to end after the stop signal. The program itself
/// has its grace; its result is not kept waiting that long for what it forgot.
const LEFT_BEHIND_GRACE: Duration = Duration::from_secs(2);

/// How often to look for children that resist, while killing them.
const SWEEP_PAUSE: Duration = Duration::from_millis(20);

/// How long those who were killed may take to be gone. Someone whom the system does not let go of, such
/// as one that waits for a disk that is not there any more, ends when it does; no one else need wait.
const KILLED_WAIT: Duration = Duration::from_secs(30);

/// What a shell says of a program that cannot be started.
const EXIT_NOT_STARTED: u8 = 127;

/// What a shell adds to the number of the signal that ended a program.
const EXIT_SIGNAL_BASE: i32 = 128;

const USAGE: &str = "the arguments are: STATE PARENT [OPTION VALUE]... -- COMMAND ARGS...";

/// Becomes the shim. `args` are those after the hidden command: what was done already, the process
/// that must stay alive, how to supervise, `--`, the program and its arguments. Returns when nothing
/// of the program is left.
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
    let state = state.to_str().and_then(State::parse).ok_or_else(usage)?;
    let (parent, args) = args.split_first().ok_or_else(usage)?;
    let parent = parent.to_str().and_then(|pid| pid.parse().ok()).and_then(Pid::from_raw);
    let parent = parent.ok_or_else(usage)?;
    let (told, args) = Supervision::from_args(args).ok_or_else(usage)?;
    let (program, args) = args.split_first().ok_or_else(usage)?;
    polity_shim::take_name();
    let signals = Signals::listen()?;
    polity_shim::hear_signals();
    let mut supervised = match state {
        State::New => match begin(program, args, (told, signals), parent)? {
            Some(supervised) => supervised,
            None => return Ok(EXIT_NOT_STARTED),
        },
        State::Started { pid, elapsed } => {
            go_on(Pid::from_raw(pid).ok_or_else(usage)?, elapsed, (told, signals))?
        }
    };
    let why = match supervised.wait_for_reason(parent) {
        Ok(Why::Ended) if supervised.was_full() => Why::Exceeded(Limit::Processes),
        Ok(why) => why,
        Err(error) => {
            supervised.kill_all()?;
            return Err(error);
        }
    };
    supervised.end(why)?;
    if let Some(group) = &supervised.told.cgroup {
        // Nothing is in it. One that is left over does no harm.
        let _ = cgroup::clear(group);
    }
    let exit = supervised.exit();
    let how = match why {
        Why::Ended => How::ByItself(exit),
        Why::Told => How::Told(exit),
        Why::Exceeded(limit) => How::Exceeded(limit, exit),
    };
    note(supervised.record.as_ref(), how, &supervised.meter)?;
    Ok(exit_code(exit))
}

/// Starts the program, unless Polity is gone.
fn begin(
    program: &OsString,
    args: &[OsString],
    (told, signals): (Supervision, Signals),
    parent: Pid,
) -> io::Result<Option<Supervised>> {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    // The kernel sends it when the thread that started the shim ends, which need not be the end of
    // the process. So it is a signal of its own, and only a reason to look.
    rustix::process::set_parent_process_death_signal(Some(Signal::USR1))?;
    let record = told.record.as_deref().map(RecordWriter::begin).transpose()?;
    let place = told.place.as_deref().map(hold).transpose()?;
    // After the record is begun: who finds it free may be sure that nothing will be started.
    if !is_child_of(parent) {
        return Ok(None);
    }
    let meter = Meter::new(told.limits, Duration::ZERO);
    let pid = match start(program, args) {
        Ok(pid) => pid,
        Err(error) => {
            let os_error = error.raw_os_error().unwrap_or_default();
            note(record.as_ref(), How::NotStarted { os_error }, &meter)?;
            let message = format!("cannot start {}: {error}", program.display());
            return Err(io::Error::new(error.kind(), message));
        }
    };
    let status = None;
    Ok(Some(Supervised { pid, status, told, signals, record, _place: place, meter }))
}

/// Takes over from the small shim, which has done the rest in this same process and left its locks.
fn go_on(
    pid: Pid,
    elapsed: Duration,
    (told, signals): (Supervision, Signals),
) -> io::Result<Supervised> {
    let record = told.record.as_deref().map(RecordWriter::go_on).transpose()?;
    let mut meter = Meter::new(told.limits, elapsed);
    if told.limits.is_any() {
        // What it uses is held against its limits before anything else.
        meter.due = Instant::now();
    } else if record.is_some() {
        // Whatever comes next, something was seen of it.
        meter.look()?;
    }
    Ok(Supervised { pid, status: None, told, signals, record, _place: None, meter })
}

/// Holds on to the place that the program takes up. Whoever takes a place needs it alone; whoever
/// keeps one shares it.
fn hold(path: &std::path::Path) -> io::Result<File> {
    let place = File::open(path)?;
    rustix::fs::flock(&place, FlockOperation::NonBlockingLockShared)?;
    Ok(place)
}

fn note(record: Option<&RecordWriter>, how: How, meter: &Meter) -> io::Result<()> {
    let Some(record) = record else { return Ok(()) };
    let duration_ms = u64::try_from(meter.elapsed().as_millis()).unwrap_or(u64::MAX);
    record.end(&Ended { how, duration_ms, usage: meter.total() })
}

fn is_child_of(parent: Pid) -> bool {
    rustix::process::getppid() == Some(parent)
}

/// Starts the program in a group of its own, and lets go of its pipes.
#[expect(clippy::disallowed_methods, reason = "this is where programs are started")]
fn start(program: &OsString, args: &[OsString]) -> io::Result<Pid> {
    let child = Command::new(program).args(args).process_group(0).spawn()?;
    let pid = Pid::from_raw(child.id().cast_signed()).ok_or(io::ErrorKind::NotFound)?;
    let nothing = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&nothing)?;
    rustix::stdio::dup2_stdout(&nothing)?;
    Ok(pid)
}

/// Why the program and all its descendants are ended.
#[derive(Debug, Clone, Copy)]
enum Why {
    /// The program has ended; the others have no more reason to be there.
    Ended,
    /// The shim was told to, or no one is there any more for whom to run it.
    Told,
    /// Together they use too much.
    Exceeded(Limit),
}

struct Supervised {
    pid: Pid,
    status: Option<WaitIdStatus>,
    told: Supervision,
    signals: Signals,
    record: Option<RecordWriter>,
    _place: Option<File>,
    meter: Meter,
}

impl Supervised {
    /// Waits for a reason to end the program, and looks now and then at what it uses.
    fn wait_for_reason(&mut self, parent: Pid) -> io::Result<Why> {
        // What nobody reads and nothing limits need not be measured.
        let is_measured = self.record.is_some() || self.told.limits.is_any();
        loop {
            self.look_at_program()?;
            if self.status.is_some() {
                return Ok(Why::Ended);
            }
            if self.signals.is_told_to_end() || !is_child_of(parent) {
                return Ok(Why::Told);
            }
            if is_measured && Instant::now() >= self.meter.due {
                if self.is_crowded() {
                    return Ok(Why::Exceeded(Limit::Processes));
                }
                self.reap_others()?;
                let (usage, exceeded) = self.meter.look()?;
                if let Some(limit) = exceeded {
                    return Ok(Why::Exceeded(limit));
                }
                if let Some(record) = &self.record {
                    // A full disk is no reason to end the program; the next look may be noted.
                    let _ = record.usage(&usage);
                }
            }
            let deadline =
                if is_measured { self.meter.due } else { Instant::now() + Duration::from_hours(1) };
            self.signals.wait_until(deadline)?;
            if !is_measured {
                self.reap_others()?;
            }
        }
    }

    /// Whether there are too many in the group, which is told without a look at each of them: they may
    /// be more by the time that all were looked at. Without a group, all must be looked at.
    fn is_crowded(&self) -> bool {
        let (Some(most), Some(group)) = (self.told.limits.processes, &self.told.cgroup) else {
            return false;
        };
        cgroup::has_more_than(group, most).unwrap_or(false)
    }

    /// Whether the system had to stop those who multiplied.
    fn was_full(&self) -> bool {
        let group = self.told.ceiling.as_ref().and_then(|ceiling| ceiling.group.as_ref());
        group.is_some_and(|group| cgroup::was_full(group).unwrap_or(false))
    }

    fn end(&mut self, why: Why) -> io::Result<()> {
        if self.status.is_some() && self.is_alone()? {
            rustix::process::waitpid(Some(self.pid), WaitOptions::empty())?;
            return Ok(());
        }
        let asked = match why {
            Why::Ended => self.ask_to_end(self.told.grace.min(LEFT_BEHIND_GRACE)),
            Why::Told => self.ask_to_end(self.told.grace),
            // Who uses too much is not given the time to use more.
            Why::Exceeded(_) => Ok(()),
        };
        self.kill_all()?;
        asked
    }

    /// Whether the program is all that there is.
    fn is_alone(&self) -> io::Result<bool> {
        Ok(tree::children()? == [self.pid])
    }

    /// Asks all descendants to end, and waits for it.
    fn ask_to_end(&mut self, grace: Duration) -> io::Result<()> {
        let signal = self.told.stop_signal;
        let everyone = tree::descendants()?;
        // The group first: it also has those that are being born just now. The program is not yet
        // reaped, so the group is still its own.
        let _ = rustix::process::kill_process_group(self.pid, signal);
        for pid in everyone {
            // The program's group has had it.
            if rustix::process::getpgid(Some(pid)) != Ok(self.pid) {
                tree::signal_descendant(pid, signal);
            }
        }
        let deadline = Instant::now() + grace;
        loop {
            self.look_at_program()?;
            self.reap_others()?;
            if (self.status.is_some() && self.is_alone()?) || Instant::now() >= deadline {
                return Ok(());
            }
            self.signals.wait_until(deadline)?;
        }
    }

    /// Kills all children until none is left. Only children are killed, whose pids cannot be
    /// anyone else's before they are reaped; those below come up when their parents are gone.
    fn kill_all(&mut self) -> io::Result<()> {
        let mut is_reaped = false;
        let deadline = Instant::now() + KILLED_WAIT;
        loop {
            if Instant::now() >= deadline {
                let left: Vec<_> =
                    tree::children()?.iter().map(|pid| pid.as_raw_nonzero().to_string()).collect();
                return Err(io::Error::other(format!(
                    "the system does not let go of processes that were killed: {}",
                    left.join(", ")
                )));
            }
            if let Some(group) = &self.told.cgroup {
                // Where there is none, signals must do.
                let _ = cgroup::kill(group);
            }
            if !is_reaped {
                let _ = rustix::process::kill_process_group(self.pid, Signal::KILL);
            }
            for child in tree::children()? {
                let _ = rustix::process::kill_process(child, Signal::KILL);
            }
            self.look_at_program()?;
            if self.status.is_some() {
                // From here on the program may be reaped like any other.
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
            self.signals.wait_until(Instant::now() + SWEEP_PAUSE)?;
        }
    }

    /// Looks whether the program has ended. It is not reaped: its pid stays taken, so that its
    /// group can be signalled.
    fn look_at_program(&mut self) -> io::Result<()> {
        if self.status.is_none() {
            let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
            self.status = rustix::process::waitid(WaitId::Pid(self.pid), look)?;
        }
        Ok(())
    }

    /// Reaps every child that has ended, except for the program.
    fn reap_others(&self) -> io::Result<()> {
        for child in tree::children()? {
            if child != self.pid {
                // One that is still alive is left alone.
                let _ = rustix::process::waitpid(Some(child), WaitOptions::NOHANG);
            }
        }
        Ok(())
    }

    fn exit(&self) -> Exit {
        let status = self.status.as_ref();
        let by_signal = status.and_then(WaitIdStatus::terminating_signal).map(Exit::Signal);
        let by_itself = status.and_then(WaitIdStatus::exit_status).map(Exit::Code);
        by_itself.or(by_signal).unwrap_or(Exit::Code(EXIT_NOT_STARTED.into()))
    }
}

/// The exit code of the shim itself, as a shell would have it.
fn exit_code(exit: Exit) -> u8 {
    let code = match exit {
        Exit::Code(code) => code,
        Exit::Signal(number) => EXIT_SIGNAL_BASE + number,
    };
    u8::try_from(code).unwrap_or(EXIT_NOT_STARTED)
}
