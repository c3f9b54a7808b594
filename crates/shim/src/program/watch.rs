//! Starts the program, waits for its end, and writes down how it went. Becomes the whole shim where
//! more is to be done.

use core::ffi::{CStr, c_char};

use crate::ceiling::Ceiling;
use crate::family;
use crate::record::{self, Exit, Files};
use crate::start::start;
use crate::sys::{self, Time};
use crate::text::{Text, number};
use crate::time::{microseconds_since, time};

/// What a shell says of a program that cannot be started.
pub(crate) const EXIT_NOT_STARTED: i32 = 127;

/// What a shell adds to the number of the signal that ended a program.
const EXIT_SIGNAL_BASE: i32 = 128;

/// How soon the program is first looked at, in microseconds. Each pause is twice as long as the one
/// before.
const FIRST_LOOK: u64 = 20_000;

/// How long a program without children is left alone, in microseconds. What it uses, the system tells
/// in the end.
const ALONE_MAX: u64 = 2_000_000;

/// Where the arguments are.
const WHOLE: usize = 1;
const STATE: usize = 3;
const PARENT: usize = 4;
const FIRST_OPTION: usize = 5;

/// What this process was called with.
struct Called {
    args: *mut *const c_char,
    variables: *const *const c_char,
    parent: isize,
    /// Where the program and its arguments begin.
    program: usize,
    /// The whole shim. It is held, so that it is the same one whatever becomes of its path.
    whole: isize,
    record: Option<*const c_char>,
    place: Option<*const c_char>,
    cgroup: Option<*const c_char>,
    ceiling: Option<Ceiling>,
    has_limits: bool,
}

/// Watches over a program, and gives the exit code.
pub(crate) fn watch(
    count: usize,
    args: *mut *const c_char,
    variables: *const *const c_char,
) -> i32 {
    let Some(called) = Called::parse(count, args, variables) else { return EXIT_NOT_STARTED };
    let mask = sys::block(sys::HELD_BACK);
    sys::set_name(sys::NAME);
    sys::adopt_orphans();
    // The system sends it when the thread that started this process ends, which need not be the end
    // of the parent. So it is only a reason to look.
    sys::tell_when_parent_ends(sys::USR1);
    let Ok(files) = Files::open(called.record, called.place, called.cgroup) else {
        return called.become_whole(None);
    };
    // After the record is begun: who finds it free may be sure that nothing will be started.
    if sys::getppid() != called.parent {
        return EXIT_NOT_STARTED;
    }
    let begun = sys::now();
    // SAFETY: the program's arguments end where all arguments end.
    let pid = unsafe {
        let args = called.args.add(called.program).cast_const();
        start(args, variables, mask, called.cgroup, called.ceiling)
    };
    let Some(pid) = pid else { return called.become_whole(None) };
    // The program's pipes are its own.
    sys::close(0);
    sys::close(1);
    let started = Started { pid, begun, files };
    // What nobody reads and nothing limits need not be measured.
    let is_measured = called.has_limits || started.files.record.is_some();
    // Limits are kept by the whole shim, from the first moment on.
    let mut look = if called.has_limits { 0 } else { FIRST_LOOK };
    loop {
        if sys::has_ended(pid) {
            return if family::is_only_child(pid) {
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
            if called.has_limits || elapsed >= ALONE_MAX || family::has_children(pid) {
                return called.become_whole(Some(&started));
            }
            look = elapsed * 2;
        }
        let left = is_measured.then(|| time(look.saturating_sub(elapsed)));
        match i32::try_from(sys::wait_for_signal(sys::HELD_BACK, left)) {
            Ok(sys::CHLD | sys::USR1) => {}
            Ok(signal) if signal > 0 => {
                // The whole shim is to hear it too.
                sys::kill(sys::getpid(), signal);
                return called.become_whole(Some(&started));
            }
            // The time is over, or something came between.
            Ok(_) | Err(_) => {}
        }
    }
}

impl Called {
    fn parse(
        count: usize,
        args: *mut *const c_char,
        variables: *const *const c_char,
    ) -> Option<Self> {
        // SAFETY: the system gives so many arguments; this is asked only for those.
        let address = |index: usize| unsafe { *args.add(index) };
        let arg = |index: usize| {
            let address = (index < count).then(|| address(index))?;
            // SAFETY: each of them ends with a zero byte.
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
        // SAFETY: it ends with a zero byte.
        let whole = unsafe { sys::open(address(WHOLE), sys::OPEN_TO_START) };
        let ceiling =
            tasks.map(|tasks| Ceiling { tasks: tasks.unsigned_abs() as u64, group: tasks_group });
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

    /// Becomes the whole shim, which goes on from what was done.
    fn become_whole(&self, started: Option<&Started>) -> i32 {
        let mut state = Text::<64>::new().text("new");
        if let Some(started) = started {
            state = Text::new()
                .number(started.pid.unsigned_abs() as u64)
                .text(":")
                .number(microseconds_since(started.begun) / 1000);
            // Their locks are the whole shim's from here on.
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
        // Nothing is left that could watch over the program.
        if let Some(started) = started {
            sys::kill(-started.pid, sys::KILL);
            family::kill_the_rest();
        }
        EXIT_NOT_STARTED
    }
}

/// A program that was started.
struct Started {
    pid: isize,
    begun: Time,
    files: Files,
}

impl Started {
    /// The program has ended, and nothing else is left.
    fn conclude(&self, cgroup: Option<*const c_char>, ceiling: Option<Ceiling>) -> i32 {
        let (status, usage) = sys::reap(self.pid);
        family::kill_the_rest();
        if let Some(cgroup) = cgroup {
            // SAFETY: it is an argument, which ends with a zero byte.
            unsafe { sys::remove_folder(cgroup) };
        }
        if let Some(ceiling) = ceiling {
            ceiling.remove();
        }
        let exit = match status & 0x7f {
            0 => Exit::Code((status >> 8) & 0xff),
            signal => Exit::Signal(signal),
        };
        if let Some(record) = self.files.record {
            record::end_record(record, exit, &usage, microseconds_since(self.begun));
        }
        match exit {
            Exit::Code(code) => code,
            Exit::Signal(signal) => EXIT_SIGNAL_BASE + signal,
        }
    }
}
