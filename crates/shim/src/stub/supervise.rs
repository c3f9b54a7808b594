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
const FIRST_LOOK: u64 = 20_000;

/// The maximum time for a command without children, in microseconds. The kernel reports its usage
/// at the end.
const ALONE_MAX: u64 = 2_000_000;

/// The positions of the arguments.
const WHOLE: usize = 1;
const STATE: usize = 3;
const PARENT: usize = 4;
const FIRST_OPTION: usize = 5;

/// The parsed arguments.
struct StubArgs {
    args: *mut *const c_char,
    variables: *const *const c_char,
    parent: isize,
    /// The position of the command.
    program: usize,
    /// The full shim. It stays open, so that it is the same file even if its path changes.
    whole: isize,
    record: Option<*const c_char>,
    place: Option<*const c_char>,
    cgroup: Option<*const c_char>,
    ceiling: Option<StubPidsLimit>,
    has_limits: bool,
}

/// Supervises a command and returns the exit code.
pub(crate) fn watch(
    count: usize,
    args: *mut *const c_char,
    variables: *const *const c_char,
) -> i32 {
    let Some(called) = StubArgs::parse(count, args, variables) else { return EXIT_NOT_STARTED };
    let mask = sys::block(sys::HELD_BACK);
    sys::set_name(sys::NAME);
    sys::adopt_orphans();
    // The kernel sends this signal when the parent thread exits, which need not be the end of the
    // parent process. So the signal is only a reason to check.
    sys::tell_when_parent_ends(sys::USR1);
    let Ok(files) = LockedFiles::open(called.record, called.place, called.cgroup) else {
        return called.become_whole(None);
    };
    // Only after the record is locked: whoever can lock it knows that nothing will be started.
    if sys::getppid() != called.parent {
        return EXIT_NOT_STARTED;
    }
    let begun = sys::now();
    // SAFETY: the command's arguments end where all arguments end.
    let pid = unsafe {
        let args = called.args.add(called.program).cast_const();
        start(args, variables, mask, called.cgroup, called.ceiling)
    };
    let Some(pid) = pid else { return called.become_whole(None) };
    // The pipes belong to the command.
    sys::close(0);
    sys::close(1);
    let started = StartedChild { pid, begun, files };
    // Usage is measured only for a record or a limit.
    let is_measured = called.has_limits || started.files.record.is_some();
    // The full shim enforces limits from the start.
    let mut look = if called.has_limits { 0 } else { FIRST_LOOK };
    loop {
        if sys::has_ended(pid) {
            return if children::is_only_child(pid) {
                started.conclude(called.cgroup, called.ceiling)
            } else {
                called.become_whole(Some(&started))
            };
        }
        if sys::getppid() != called.parent {
            return called.become_whole(Some(&started));
        }
        let elapsed = microseconds_since(begun);
        if is_measured && elapsed >= look {
            if called.has_limits || elapsed >= ALONE_MAX || children::has_children(pid) {
                return called.become_whole(Some(&started));
            }
            look = elapsed * 2;
        }
        let left = is_measured.then(|| time(look.saturating_sub(elapsed)));
        match i32::try_from(sys::wait_for_signal(sys::HELD_BACK, left)) {
            Ok(sys::CHLD | sys::USR1) => {}
            Ok(signal) if signal > 0 => {
                // The full shim has to receive it, too.
                sys::kill(sys::getpid(), signal);
                return called.become_whole(Some(&started));
            }
            // Timeout or interruption.
            Ok(_) | Err(_) => {}
        }
    }
}

impl StubArgs {
    fn parse(
        count: usize,
        args: *mut *const c_char,
        variables: *const *const c_char,
    ) -> Option<Self> {
        // SAFETY: only called for indexes below the argument count.
        let address = |index: usize| unsafe { *args.add(index) };
        let arg = |index: usize| {
            let address = (index < count).then(|| address(index))?;
            // SAFETY: an argument ends with a zero byte.
            Some(unsafe { CStr::from_ptr(address) }.to_bytes())
        };
        let parent = number(arg(PARENT)?)?;
        let (mut record, mut place, mut cgroup, mut has_limits) = (None, None, None, false);
        let (mut tasks, mut tasks_group) = (None, None);
        let mut index = FIRST_OPTION;
        while arg(index)? != b"--" {
            arg(index + 1)?;
            match arg(index)? {
                b"--record" => record = Some(address(index + 1)),
                b"--place" => place = Some(address(index + 1)),
                b"--cgroup" => cgroup = Some(address(index + 1)),
                b"--tasks" => tasks = number(arg(index + 1)?),
                b"--tasks-group" => tasks_group = Some(address(index + 1)),
                b"--memory-bytes" | b"--cpu-seconds" | b"--processes" => has_limits = true,
                _ => {}
            }
            index += 2;
        }
        let program = index + 1;
        arg(program)?;
        // SAFETY: an argument ends with a zero byte.
        let whole = unsafe { sys::open(address(WHOLE), sys::OPEN_TO_START) };
        let ceiling = tasks
            .map(|tasks| StubPidsLimit { tasks: tasks.unsigned_abs() as u64, group: tasks_group });
        Some(Self {
            args,
            variables,
            parent,
            program,
            whole,
            record,
            place,
            cgroup,
            ceiling,
            has_limits,
        })
    }

    /// Replaces this process with the full shim, which continues from here.
    fn become_whole(&self, started: Option<&StartedChild>) -> i32 {
        let mut state = TextBuffer::<64>::new().text("new");
        if let Some(started) = started {
            state = TextBuffer::new()
                .number(started.pid.unsigned_abs() as u64)
                .text(":")
                .number(microseconds_since(started.begun) / 1000);
            // The full shim inherits the locks.
            for file in [started.files.record, started.files.place].into_iter().flatten() {
                sys::keep_open(file);
            }
        }
        // SAFETY: there are that many arguments, and the list ends with a null pointer.
        unsafe {
            *self.args.add(STATE) = state.zero_ended();
            let args = self.args.add(WHOLE).cast_const();
            sys::become_opened(self.whole, args, self.variables);
        }
        // Exec failed: nothing is left to supervise the command.
        if let Some(started) = started {
            sys::kill(-started.pid, sys::KILL);
            children::kill_the_rest();
        }
        EXIT_NOT_STARTED
    }
}

/// A started command.
struct StartedChild {
    pid: isize,
    begun: KernelTimespec,
    files: LockedFiles,
}

impl StartedChild {
    /// Writes the record and cleans up, when nothing is left of the run.
    fn conclude(&self, cgroup: Option<*const c_char>, ceiling: Option<StubPidsLimit>) -> i32 {
        let (status, usage) = sys::reap(self.pid);
        children::kill_the_rest();
        if let Some(cgroup) = cgroup {
            // SAFETY: an argument ends with a zero byte.
            unsafe { sys::remove_folder(cgroup) };
        }
        if let Some(ceiling) = ceiling {
            ceiling.remove();
        }
        let exit = match status & 0x7f {
            0 => ChildExit::Code((status >> 8) & 0xff),
            signal => ChildExit::Signal(signal),
        };
        if let Some(record) = self.files.record {
            run_record::end_record(record, exit, &usage, microseconds_since(self.begun));
        }
        match exit {
            ChildExit::Code(code) => code,
            ChildExit::Signal(signal) => EXIT_SIGNAL_BASE + signal,
        }
    }
}
