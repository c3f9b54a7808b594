//! The shim: runs one program and outlives everything that the program starts.
//!
//! It is the reaper of its descendants, so a process whose parent ends becomes its child, whatever
//! session or group that process made for itself. Ending them all is therefore a loop: kill the
//! children, adopt theirs, until there are none.
//!
//! It holds none of the program's pipes, so they close when the program closes them.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, WaitOptions};
use tokio::signal::unix::{self, SignalKind};
use tokio::time::Instant;

/// How long descendants may take to end after SIGTERM.
const TERM_GRACE: Duration = Duration::from_secs(2);

/// How often to look for children that resist, while killing them.
const SWEEP_PAUSE: Duration = Duration::from_millis(20);

/// What a shell says of a program that cannot be started.
const EXIT_NOT_STARTED: u8 = 127;

/// What a shell adds to the number of the signal that ended a program.
const EXIT_SIGNAL_BASE: i32 = 128;

/// Becomes the shim. `args` are those after the hidden command: the process that must stay alive,
/// `--`, the program and its arguments. Returns when nothing of the program is left.
pub fn supervise(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime.and_then(|runtime| runtime.block_on(run(args.into_iter().collect()))) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(EXIT_NOT_STARTED)
        }
    }
}

async fn run(args: Vec<OsString>) -> io::Result<u8> {
    let [parent, dashes, program, args @ ..] = args.as_slice() else {
        return Err(io::Error::other("the arguments are: PARENT -- COMMAND ARGS..."));
    };
    let parent = parent.to_str().and_then(|pid| pid.parse().ok()).and_then(Pid::from_raw);
    let Some(parent) = parent.filter(|_| dashes == "--") else {
        return Err(io::Error::other("the arguments are: PARENT -- COMMAND ARGS..."));
    };
    let mut signals = Signals::listen()?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    // The kernel sends it when the thread that started the shim ends, which need not be the end of
    // the process. So it is a signal of its own, and only a reason to look.
    rustix::process::set_parent_process_death_signal(Some(Signal::USR1))?;
    if !is_child_of(parent) {
        return Ok(EXIT_NOT_STARTED);
    }
    let mut program = start(program, args)?;
    program.end_when_due(parent, &mut signals).await?;
    Ok(program.exit_code())
}

fn is_child_of(parent: Pid) -> bool {
    rustix::process::getppid() == Some(parent)
}

/// Starts the program in a group of its own, and lets go of its pipes.
#[expect(clippy::disallowed_methods, reason = "this is where programs are started")]
fn start(program: &OsString, args: &[OsString]) -> io::Result<Supervised> {
    let child = Command::new(program).args(args).process_group(0).spawn().map_err(|error| {
        io::Error::new(error.kind(), format!("cannot start {}: {error}", program.display()))
    })?;
    let pid = Pid::from_raw(child.id().cast_signed()).ok_or(io::ErrorKind::NotFound)?;
    let nothing = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&nothing)?;
    rustix::stdio::dup2_stdout(&nothing)?;
    Ok(Supervised { pid, status: None })
}

struct Signals {
    end: unix::Signal,
    interrupt: unix::Signal,
    hang_up: unix::Signal,
    parent: unix::Signal,
    child: unix::Signal,
}

impl Signals {
    fn listen() -> io::Result<Self> {
        Ok(Self {
            end: unix::signal(SignalKind::terminate())?,
            interrupt: unix::signal(SignalKind::interrupt())?,
            hang_up: unix::signal(SignalKind::hangup())?,
            parent: unix::signal(SignalKind::user_defined1())?,
            child: unix::signal(SignalKind::child())?,
        })
    }
}

struct Supervised {
    pid: Pid,
    status: Option<WaitIdStatus>,
}

impl Supervised {
    /// Waits for a reason to end the program, and ends it and all its descendants.
    async fn end_when_due(&mut self, parent: Pid, signals: &mut Signals) -> io::Result<()> {
        loop {
            self.reap()?;
            if self.status.is_some() {
                break;
            }
            tokio::select! {
                _ = signals.child.recv() => {}
                _ = signals.parent.recv() => if !is_child_of(parent) { break },
                _ = signals.end.recv() => break,
                _ = signals.interrupt.recv() => break,
                _ = signals.hang_up.recv() => break,
            }
        }
        self.ask_to_end(signals).await?;
        self.kill_all(signals).await
    }

    /// Asks all descendants to end, and waits for it.
    async fn ask_to_end(&mut self, signals: &mut Signals) -> io::Result<()> {
        let everyone = descendants(rustix::process::getpid())?;
        // The group first: it also has those that are being born just now. The program is not yet
        // reaped, so the group is still its own.
        let _ = rustix::process::kill_process_group(self.pid, Signal::TERM);
        for pid in everyone {
            let _ = rustix::process::kill_process(pid, Signal::TERM);
        }
        let deadline = Instant::now() + TERM_GRACE;
        loop {
            self.reap()?;
            if self.status.is_some() && children_of(rustix::process::getpid())? == [self.pid] {
                return Ok(());
            }
            if tokio::time::timeout_at(deadline, signals.child.recv()).await.is_err() {
                return Ok(());
            }
        }
    }

    /// Kills all children until none is left. Only children are killed, whose pids cannot be
    /// anyone else's before they are reaped; those below come up when their parents are gone.
    async fn kill_all(&mut self, signals: &mut Signals) -> io::Result<()> {
        let _ = rustix::process::kill_process_group(self.pid, Signal::KILL);
        loop {
            for child in children_of(rustix::process::getpid())? {
                let _ = rustix::process::kill_process(child, Signal::KILL);
            }
            self.reap()?;
            if self.status.is_some() {
                // From here on the program may be reaped like any other.
                loop {
                    match rustix::process::wait(WaitOptions::NOHANG) {
                        Ok(Some(_)) => {}
                        Ok(None) => break,
                        Err(rustix::io::Errno::CHILD) => return Ok(()),
                        Err(error) => return Err(error.into()),
                    }
                }
            }
            let _ = tokio::time::timeout(SWEEP_PAUSE, signals.child.recv()).await;
        }
    }

    /// Reaps every child that has ended, except for the program: its pid stays taken, so that its
    /// group can be signalled, and its status is only looked at.
    fn reap(&mut self) -> io::Result<()> {
        if self.status.is_none() {
            let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
            self.status = rustix::process::waitid(WaitId::Pid(self.pid), look)?;
        }
        for child in children_of(rustix::process::getpid())? {
            if child != self.pid {
                // One that is still alive is left alone.
                let _ = rustix::process::waitpid(Some(child), WaitOptions::NOHANG);
            }
        }
        Ok(())
    }

    fn exit_code(&self) -> u8 {
        let code = self.status.as_ref().and_then(|status| {
            let by_signal = status.terminating_signal().map(|signal| EXIT_SIGNAL_BASE + signal);
            status.exit_status().or(by_signal)
        });
        code.and_then(|code| u8::try_from(code).ok()).unwrap_or(EXIT_NOT_STARTED)
    }
}

/// The children of a process, also those that have ended and are not reaped.
fn children_of(parent: Pid) -> io::Result<Vec<Pid>> {
    Ok(parents()?.into_iter().filter(|(_, of)| *of == parent).map(|(pid, _)| pid).collect())
}

/// Everyone below a process.
fn descendants(ancestor: Pid) -> io::Result<Vec<Pid>> {
    let parents = parents()?;
    let mut found = Vec::new();
    let mut above = vec![ancestor];
    while let Some(parent) = above.pop() {
        let children = parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid);
        let before = found.len();
        found.extend(children);
        above.extend_from_slice(&found[before..]);
    }
    Ok(found)
}

/// Every process that is visible, with its parent.
fn parents() -> io::Result<Vec<(Pid, Pid)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw)
        else {
            continue;
        };
        // One that is gone by now has no parent to tell of.
        let Ok(stat) = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())) else {
            continue;
        };
        found.extend(parent_in(&stat).map(|parent| (pid, parent)));
    }
    Ok(found)
}

/// The parent, from the text of `/proc/PID/stat`: `pid (name) state parent ...`, where the name may
/// hold anything.
fn parent_in(stat: &str) -> Option<Pid> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_whitespace().nth(1)?.parse().ok().and_then(Pid::from_raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parent_is_found_whatever_the_name_is() {
        for (stat, parent) in [
            ("12 (cat) S 7 12 12 0", Some(7)),
            ("12 (a) b) R (x) S 7 12", Some(7)),
            ("12 (cat) S 0 12 12 0", None),
            ("", None),
        ] {
            assert_eq!(parent_in(stat).map(Pid::as_raw_pid), parent, "{stat}");
        }
    }
}
