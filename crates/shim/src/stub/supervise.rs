//! The stub's main loop: starts the command, waits for its exit and writes the record. Hands over
//! to the full shim if there is more to do.

use core::ffi::{CStr, c_char};

use crate::children;
use crate::pids_limit::StubPidsLimit;
use crate::run_record::{self, ChildExit, LockedFiles};
use crate::spawn::start;
use crate::sys::{self, KernelTimespec};
use crate::text_buffer::{TextBuffer, number};
use crate::time::{microseconds_since, time};

/// The exit code of shells for a command that cannot be started.
pub(crate) const EXIT_NOT_STARTED: i32 = 127;

/// The offset that shells add to a signal number in exit codes.
const EXIT_SIGNAL_BASE: i32 = 128;

/// The time of the first check, in microseconds. Each pause is twice the previous one.
const FIRST_CHECK: u64 = 20_000;

/// The maximum time for a command without children, in microseconds.
const ALONE_MAX: u64 = 2_000_000;

/// The positions of the arguments.
const FULL_SHIM: usize = 1;
const STATE: usize = 3;
const PARENT: usize = 4;
const FIRST_OPTION: usize = 5;

struct StubArgs {
    args: *mut *const c_char,
    envp: *const *const c_char,
    parent: isize,
    /// The position of the command.
    program: usize,
    /// The full shim. It stays open, so that it is the same file even if its path changes.
    full_shim: isize,
    record: Option<*const c_char>,
    slot: Option<*const c_char>,
    cgroup: Option<*const c_char>,
    pid_scope: Option<*const c_char>,
    pids_limit: Option<StubPidsLimit>,
    has_limits: bool,
    samples_usage: bool,
    holds_pipes: bool,
}

/// Supervises a command and returns the exit code.
pub(crate) fn run(count: usize, args: *mut *const c_char, envp: *const *const c_char) -> i32 {
    let Some(stub_args) = StubArgs::parse(count, args, envp) else { return EXIT_NOT_STARTED };
    sys::block_only(sys::BLOCKED_SIGNALS);
    // The kernel reaps the children of a process that ignores this signal.
    sys::restore_default(sys::CHLD);
    sys::set_name(sys::NAME);
    sys::adopt_orphans();
    // The kernel sends this signal when the parent thread exits, which need not be the end of the
    // parent process. So the signal is only a reason to check.
    sys::set_parent_death_signal(sys::USR1);
    let StubArgs { record, slot, cgroup, pid_scope, .. } = stub_args;
    let Ok(files) = LockedFiles::open(record, slot, cgroup, pid_scope) else {
        return stub_args.hand_over(None);
    };
    // Only after the record is locked: a process that can lock it knows that nothing starts.
    if sys::getppid() != stub_args.parent {
        return EXIT_NOT_STARTED;
    }
    // Opened before the command starts, so that it never has a pipe without a reader.
    let read_ends = stub_args.holds_pipes.then(ReadEnds::open);
    let started_at = sys::now();
    // SAFETY: the command's arguments end where all arguments end.
    let pid = unsafe {
        let args = stub_args.args.add(stub_args.program).cast_const();
        start(args, envp, stub_args.cgroup, stub_args.pids_limit)
    };
    let Some(pid) = pid else { return stub_args.hand_over(None) };
    // The pipes belong to the command.
    match read_ends {
        Some(read_ends) => read_ends.keep(),
        None => close_pipes(),
    }
    let started = StartedChild { pid, started_at, files };
    // Usage is measured only for a record or a limit.
    let is_measured =
        stub_args.has_limits || (stub_args.samples_usage && started.files.record.is_some());
    // The full shim enforces limits from the start.
    let mut next_check = if stub_args.has_limits { 0 } else { FIRST_CHECK };
    loop {
        if sys::has_ended(pid) {
            return if children::is_only_child(pid) {
                started.finish(stub_args.cgroup, stub_args.pids_limit)
            } else {
                stub_args.hand_over(Some(&started))
            };
        }
        if sys::getppid() != stub_args.parent {
            return stub_args.hand_over(Some(&started));
        }
        let elapsed = microseconds_since(started_at);
        if is_measured && elapsed >= next_check {
            if stub_args.has_limits || elapsed >= ALONE_MAX || children::has_children(pid) {
                return stub_args.hand_over(Some(&started));
            }
            next_check = elapsed * 2;
        }
        let left = is_measured.then(|| time(next_check.saturating_sub(elapsed)));
        match i32::try_from(sys::wait_for_signal(sys::BLOCKED_SIGNALS, left)) {
            Ok(sys::CHLD | sys::USR1) => {}
            Ok(signal) if signal > 0 => {
                // The full shim has to receive it, too.
                sys::kill(sys::getpid(), signal);
                return stub_args.hand_over(Some(&started));
            }
            // Timeout or interruption.
            Ok(_) | Err(_) => {}
        }
    }
}

/// Read ends of the command's stdout and stderr. The full shim drains them once Polity is dead.
struct ReadEnds {
    stdout: isize,
    stderr: isize,
}

impl ReadEnds {
    fn open() -> Self {
        let flags = sys::OPEN_TO_READ | sys::OPEN_NONBLOCKING;
        // SAFETY: the paths end with a zero byte.
        unsafe {
            Self {
                stdout: sys::open(c"/proc/self/fd/1".as_ptr(), flags),
                stderr: sys::open(c"/proc/self/fd/2".as_ptr(), flags),
            }
        }
    }

    /// Puts them in place of stdin and stdout, where the full shim finds them.
    fn keep(self) {
        close_pipes();
        for (read_end, place) in [(self.stdout, 0), (self.stderr, 1)] {
            // Without `/proc` there is none.
            if read_end >= 0 {
                sys::duplicate(read_end, place);
                sys::close(read_end);
            }
        }
    }
}

/// Closes stdin and stdout.
fn close_pipes() {
    sys::close(0);
    sys::close(1);
}

impl StubArgs {
    fn parse(count: usize, args: *mut *const c_char, envp: *const *const c_char) -> Option<Self> {
        // SAFETY: only called for indexes below the argument count.
        let address = |index: usize| unsafe { *args.add(index) };
        let arg = |index: usize| {
            let address = (index < count).then(|| address(index))?;
            // SAFETY: an argument ends with a zero byte.
            Some(unsafe { CStr::from_ptr(address) }.to_bytes())
        };
        let parent = number(arg(PARENT)?)?;
        let (mut record, mut slot, mut cgroup, mut has_limits) = (None, None, None, false);
        let (mut tasks, mut tasks_group, mut pid_scope) = (None, None, None);
        let (mut samples_usage, mut holds_pipes) = (true, false);
        let mut index = FIRST_OPTION;
        while arg(index)? != b"--" {
            arg(index + 1)?;
            match arg(index)? {
                b"--record" => record = Some(address(index + 1)),
                b"--place" => slot = Some(address(index + 1)),
                b"--cgroup" => cgroup = Some(address(index + 1)),
                b"--pid-scope" => pid_scope = Some(address(index + 1)),
                b"--tasks" => tasks = number(arg(index + 1)?),
                b"--tasks-group" => tasks_group = Some(address(index + 1)),
                b"--usage" => samples_usage = false,
                b"--pipes" => holds_pipes = true,
                b"--memory-bytes" | b"--cpu-seconds" | b"--processes" => has_limits = true,
                _ => {}
            }
            index += 2;
        }
        let program = index + 1;
        arg(program)?;
        // SAFETY: an argument ends with a zero byte.
        let full_shim = unsafe { sys::open(address(FULL_SHIM), sys::OPEN_PATH) };
        let pids_limit = tasks
            .map(|tasks| StubPidsLimit { tasks: tasks.unsigned_abs() as u64, group: tasks_group });
        Some(Self {
            args,
            envp,
            parent,
            program,
            full_shim,
            record,
            slot,
            cgroup,
            pid_scope,
            pids_limit,
            has_limits,
            samples_usage,
            holds_pipes,
        })
    }

    /// Replaces this process with the full shim, which continues from here.
    fn hand_over(&self, started: Option<&StartedChild>) -> i32 {
        let mut state = TextBuffer::<64>::new().text("new");
        if let Some(started) = started {
            state = TextBuffer::new()
                .number(started.pid.unsigned_abs() as u64)
                .text(":")
                .number(microseconds_since(started.started_at) / 1000);
            // The full shim inherits the locks.
            for file in [started.files.record, started.files.slot].into_iter().flatten() {
                sys::keep_open(file);
            }
        }
        // SAFETY: there are that many arguments, and the list ends with a null pointer.
        unsafe {
            *self.args.add(STATE) = state.as_c_str();
            let args = self.args.add(FULL_SHIM).cast_const();
            sys::exec_file(self.full_shim, args, self.envp);
        }
        // Exec failed: nothing is left to supervise the command.
        if let Some(started) = started {
            sys::kill(-started.pid, sys::KILL);
            children::kill_remaining();
        }
        EXIT_NOT_STARTED
    }
}

struct StartedChild {
    pid: isize,
    started_at: KernelTimespec,
    files: LockedFiles,
}

impl StartedChild {
    /// Writes the record and cleans up, when nothing is left of the run.
    fn finish(&self, cgroup: Option<*const c_char>, pids_limit: Option<StubPidsLimit>) -> i32 {
        let (status, usage) = sys::reap(self.pid);
        children::kill_remaining();
        if let Some(cgroup) = cgroup {
            // SAFETY: an argument ends with a zero byte.
            unsafe { sys::remove_folder(cgroup) };
        }
        if let Some(pids_limit) = pids_limit {
            pids_limit.remove();
        }
        let exit = match status & 0x7f {
            0 => ChildExit::Code((status >> 8) & 0xff),
            signal => ChildExit::Signal(signal),
        };
        if let Some(record) = self.files.record {
            run_record::end_record(record, exit, &usage, microseconds_since(self.started_at));
        }
        match exit {
            ChildExit::Code(code) => code,
            ChildExit::Signal(signal) => EXIT_SIGNAL_BASE + signal,
        }
    }
}
