//! A control group for each run, where the system has them and lets us.
//!
//! The shim sees to it that nothing of a program is left. A control group helps where a shim cannot:
//! it also ends those whom the shim may not signal, it ends everyone at once, however fast they
//! multiply, and it still knows them when the shim itself was killed.
//!
//! Where there is a controller that counts processes and threads, the system also stops those who
//! multiply before the shim has looked.

mod place;

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use self::place::Places;

/// What ends everyone in a group, when `1` is written to it; since Linux 5.14.
const KILL: &str = "cgroup.kill";

/// Who is in a group, a line each.
const MEMBERS: &str = "cgroup.procs";

/// How often someone was not made because there were as many as there may be.
const EVENTS: &str = "pids.events";

/// The longest path that is used. It has to fit into the record of a run.
const PATH_BYTES_MAX: usize = 300;

/// How often, and after which pauses, to look whether those who were killed are gone.
const LEAVING_LOOKS_MAX: u32 = 50;
const LEAVING_PAUSE: Duration = Duration::from_millis(2);

/// The group of a run of this name, if there are groups. The shim makes it.
pub(crate) fn of_run(name: &str) -> Option<PathBuf> {
    let group = places()?.ended_as_one.join(format!("polity-{name}"));
    is_usable(&group).then_some(group)
}

/// The group that counts processes and threads for a run whose group this is, if there is one. It may
/// be the same.
pub(crate) fn counting(group: &Path) -> Option<PathBuf> {
    let counting = places()?.counted.as_ref()?.join(group.file_name()?);
    is_usable(&counting).then_some(counting)
}

fn is_usable(group: &Path) -> bool {
    group.as_os_str().len() <= PATH_BYTES_MAX && group.to_str().is_some()
}

fn places() -> Option<&'static Places> {
    static PLACES: OnceLock<Option<Places>> = OnceLock::new();
    PLACES.get_or_init(Places::find).as_ref()
}

/// Ends everyone in a group.
pub(crate) fn kill(group: &Path) -> io::Result<()> {
    fs::write(group.join(KILL), "1")
}

/// Whether more than so many processes are in a group. It takes no longer for more of them.
pub(crate) fn has_more_than(group: &Path, most: u32) -> io::Result<bool> {
    let mut members = File::open(group.join(MEMBERS))?;
    let mut bytes = [0; 4096];
    let mut seen = 0;
    loop {
        let count = members.read(&mut bytes)?;
        seen += bytes.iter().take(count).filter(|byte| **byte == b'\n').count();
        if count == 0 || seen > most as usize {
            return Ok(seen > most as usize);
        }
    }
}

/// Whether someone was not made, because there were as many in a group as there may be.
pub(crate) fn was_full(group: &Path) -> io::Result<bool> {
    let events = fs::read_to_string(group.join(EVENTS))?;
    Ok(events.lines().any(|line| line.strip_prefix("max ").is_some_and(|count| count != "0")))
}

/// Ends everyone who is left in a group, and removes it and the one that counts them. One that is gone
/// is as good.
pub(crate) fn clear(group: &Path) -> io::Result<()> {
    remove(group, kill)?;
    match counting(group) {
        // Whoever was in it was in the other one too.
        Some(counting) if counting != group => remove(&counting, |_| Ok(())),
        Some(_) | None => Ok(()),
    }
}

fn remove(group: &Path, make_leave: impl Fn(&Path) -> io::Result<()>) -> io::Result<()> {
    for _ in 0..LEAVING_LOOKS_MAX {
        match fs::remove_dir(group) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            // Someone is still in it, and takes a moment to leave.
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => make_leave(group)?,
            Err(error) => return Err(error),
        }
        std::thread::sleep(LEAVING_PAUSE);
    }
    // Whoever is left can be waited for by no one. Once they are gone, an empty group does no harm.
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_that_is_gone_is_cleared() {
        let folder = tempfile::tempdir().unwrap();
        clear(&folder.path().join("gone")).unwrap();
        let empty = folder.path().join("empty");
        fs::create_dir(&empty).unwrap();
        clear(&empty).unwrap();
        assert!(!empty.exists());
    }

    #[test]
    fn those_in_a_group_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let members = "4711\n".repeat(3000);
        fs::write(folder.path().join(MEMBERS), members).unwrap();
        for (most, is_more) in [(0, true), (30, true), (2999, true), (3000, false)] {
            assert_eq!(has_more_than(folder.path(), most).unwrap(), is_more, "{most}");
        }
    }

    #[test]
    fn a_group_says_that_it_was_full() {
        let folder = tempfile::tempdir().unwrap();
        for (events, is_full) in [("max 0\n", false), ("max 17\n", true), ("other 3\n", false)] {
            fs::write(folder.path().join(EVENTS), events).unwrap();
            assert_eq!(was_full(folder.path()).unwrap(), is_full, "{events}");
        }
    }
}
