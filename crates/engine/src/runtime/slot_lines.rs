//! The lines of this process: its tasks that wait for a slot of a CLI agent, by slot pool.
//!
//! The order of the queue is in the journal. A line only decides which tasks look there: the oldest
//! few. So a long queue costs no more than a short one.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use polity_model::ids::TaskId;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// The age of a task, which is nearly its place in the queue.
type TaskAge = (Timestamp, TaskId);

/// The waiting tasks of this process.
#[derive(Default)]
pub(super) struct SlotLines {
    state: Mutex<LinesState>,
    /// Notified when a task leaves its line.
    moved: Notify,
}

#[derive(Default)]
struct LinesState {
    lines: HashMap<Arc<str>, BTreeSet<TaskAge>>,
}

/// The place of one task in its line. Dropping it leaves the line.
pub(super) struct LinePlace {
    lines: Arc<SlotLines>,
    pool: Arc<str>,
    age: TaskAge,
}

impl SlotLines {
    fn state(&self) -> MutexGuard<'_, LinesState> {
        // Every change is a single step, so a panic elsewhere leaves the state consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins a pool's line, behind all older tasks.
    pub(super) fn join(self: &Arc<Self>, pool: &Arc<str>, age: TaskAge) -> LinePlace {
        self.state().lines.entry(Arc::clone(pool)).or_default().insert(age);
        LinePlace { lines: Arc::clone(self), pool: Arc::clone(pool), age }
    }

    /// The number of tasks in a pool's line.
    pub(super) fn length(&self, pool: &str) -> usize {
        self.state().lines.get(pool).map_or(0, BTreeSet::len)
    }

    /// Completes when a task leaves its line.
    pub(super) fn moved(&self) -> Notified<'_> {
        self.moved.notified()
    }
}

impl LinePlace {
    /// The slot pool of the line.
    pub(super) fn pool(&self) -> &str {
        &self.pool
    }

    /// True if fewer than this many tasks are ahead in the line.
    pub(super) fn is_among_first(&self, count: usize) -> bool {
        let state = self.lines.state();
        let Some(line) = state.lines.get(&self.pool) else { return true };
        line.range(..self.age).take(count).count() < count
    }
}

impl Drop for LinePlace {
    fn drop(&mut self) {
        {
            let mut state = self.lines.state();
            if let Some(line) = state.lines.get_mut(&self.pool) {
                line.remove(&self.age);
                if line.is_empty() {
                    state.lines.remove(&self.pool);
                }
            }
        }
        self.lines.moved.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_move_up_when_others_leave() {
        let (lines, pool): (_, Arc<str>) = (Arc::<SlotLines>::default(), "coder".into());
        let age = |second| {
            let id = TaskId::from_random_bytes([1; 16]);
            (Timestamp::from_second(second).unwrap(), id)
        };
        // The order in which they join does not matter.
        let mut places: Vec<LinePlace> =
            [3, 1, 2, 0].map(|second| lines.join(&pool, age(second))).into();
        places.sort_by_key(|place| place.age);
        let other = lines.join(&"writer".into(), age(9));
        assert!(other.is_among_first(1));
        let first = |places: &[LinePlace]| -> Vec<bool> {
            places.iter().map(|place| place.is_among_first(2)).collect()
        };
        assert_eq!(first(&places), [true, true, false, false]);
        places.remove(1);
        assert_eq!(first(&places), [true, true, false]);
        assert_eq!(lines.length("coder"), 3);
        drop(places);
        assert_eq!((lines.length("coder"), lines.length("writer")), (0, 1));
    }
}
