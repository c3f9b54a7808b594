//! The slots of `limits.concurrent_tasks`. A task and its sub-tasks are a tree that shares one slot,
//! and gives it up while all of them wait.

use std::collections::{HashMap, VecDeque};

use polity_model::ids::TaskId;
use tokio::sync::oneshot;

/// The activity of a worker, which decides whether its tree needs a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::runtime) enum WorkerActivity {
    /// It decides, commits, or performs an effect.
    Busy,
    /// It waits for its sub-tasks, and for nothing else.
    Delegating,
    /// It waits for the next attempt, for a slot of its CLI agent or for another task.
    Parked,
}

/// The workers of one tree.
#[derive(Default)]
struct TreeActivity {
    holds_slot: bool,
    busy: usize,
    delegating: usize,
    parked: usize,
    /// Workers that are busy again, and wait for the slot.
    returning: Vec<oneshot::Sender<()>>,
}

impl TreeActivity {
    fn count(&mut self, activity: WorkerActivity) -> &mut usize {
        match activity {
            WorkerActivity::Busy => &mut self.busy,
            WorkerActivity::Delegating => &mut self.delegating,
            WorkerActivity::Parked => &mut self.parked,
        }
    }

    fn is_empty(&self) -> bool {
        self.busy + self.delegating + self.parked == 0
    }

    /// True if every worker waits, at least one of them for something outside the tree.
    fn is_parked(&self) -> bool {
        self.busy == 0 && self.parked > 0
    }
}

/// The slots and the trees that share them, each by the id of its first task.
pub(super) struct TreeSlots {
    limit: usize,
    taken: usize,
    trees: HashMap<TaskId, TreeActivity>,
    /// The trees that wait to get a slot back, in order.
    returning: VecDeque<TaskId>,
}

impl TreeSlots {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, taken: 0, trees: HashMap::new(), returning: VecDeque::new() }
    }

    /// True if a slot is free, and no tree waits to get one back.
    pub(super) fn has_free(&self) -> bool {
        self.taken < self.limit && self.returning.is_empty()
    }

    /// Adds a busy worker. A tree without a slot takes one, beyond the limit if need be: callers
    /// ask [`has_free`](Self::has_free) first, except for a sub-task.
    pub(super) fn enter(&mut self, tree: TaskId) {
        self.trees.entry(tree).or_default().busy += 1;
        self.grant(tree);
    }

    /// Removes a worker.
    pub(super) fn leave(&mut self, tree: TaskId, activity: WorkerActivity) {
        let Some(entry) = self.trees.get_mut(&tree) else { return };
        let count = entry.count(activity);
        *count = count.saturating_sub(1);
        if entry.is_empty() {
            self.release(tree);
            self.trees.remove(&tree);
            self.returning.retain(|waiting| *waiting != tree);
        } else if entry.is_parked() {
            self.release(tree);
        }
    }

    /// Changes the activity of a worker. Returns the receiver of the slot if it must wait for one.
    pub(super) fn change(
        &mut self,
        tree: TaskId,
        from: WorkerActivity,
        to: WorkerActivity,
    ) -> Option<oneshot::Receiver<()>> {
        let entry = self.trees.get_mut(&tree)?;
        let count = entry.count(from);
        *count = count.saturating_sub(1);
        *entry.count(to) += 1;
        if entry.is_parked() {
            self.release(tree);
            return None;
        }
        if entry.holds_slot || to != WorkerActivity::Busy {
            return None;
        }
        if self.has_free() {
            self.grant(tree);
            return None;
        }
        let (sender, granted) = oneshot::channel();
        let entry = self.trees.get_mut(&tree)?;
        entry.returning.push(sender);
        if !self.returning.contains(&tree) {
            self.returning.push_back(tree);
        }
        Some(granted)
    }

    /// Gives free slots to the trees that wait to get one back.
    pub(super) fn grant_returning(&mut self) {
        while self.taken < self.limit
            && let Some(tree) = self.returning.front().copied()
        {
            self.grant(tree);
        }
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.taken = 0;
        self.trees.clear();
        self.returning.clear();
    }

    fn grant(&mut self, tree: TaskId) {
        self.returning.retain(|waiting| *waiting != tree);
        let Some(entry) = self.trees.get_mut(&tree) else { return };
        if !std::mem::replace(&mut entry.holds_slot, true) {
            self.taken += 1;
        }
        for worker in entry.returning.drain(..) {
            // The worker may have been interrupted.
            let _ = worker.send(());
        }
    }

    fn release(&mut self, tree: TaskId) {
        if let Some(entry) = self.trees.get_mut(&tree)
            && std::mem::replace(&mut entry.holds_slot, false)
        {
            self.taken -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::WorkerActivity::{Busy, Delegating, Parked};
    use super::*;

    fn task(number: u8) -> TaskId {
        TaskId::from_random_bytes([number; 16])
    }

    #[test]
    fn parked_task_gives_up_its_slot_and_gets_it_back_in_order() {
        let mut slots = TreeSlots::new(1);
        slots.enter(task(1));
        assert!(!slots.has_free());
        assert!(slots.change(task(1), Busy, Parked).is_none());
        assert!(slots.has_free());
        slots.enter(task(2));
        let mut first = slots.change(task(1), Parked, Busy).unwrap();
        slots.change(task(2), Busy, Parked);
        // A tree that returns goes before one that has not started.
        assert!(!slots.has_free());
        let mut second = slots.change(task(2), Parked, Busy).unwrap();
        slots.grant_returning();
        assert!(first.try_recv().is_ok());
        assert!(second.try_recv().is_err());
        slots.leave(task(1), Busy);
        slots.grant_returning();
        assert!(second.try_recv().is_ok());
        slots.leave(task(2), Busy);
        assert!(slots.has_free());
    }

    #[test]
    fn tree_keeps_its_slot_while_one_of_its_tasks_is_busy() {
        let mut slots = TreeSlots::new(1);
        slots.enter(task(1));
        slots.enter(task(1));
        slots.enter(task(1));
        slots.change(task(1), Busy, Delegating);
        slots.change(task(1), Busy, Parked);
        assert!(!slots.has_free());
        slots.change(task(1), Busy, Parked);
        assert!(slots.has_free());
        assert!(slots.change(task(1), Parked, Busy).is_none());
        assert!(!slots.has_free());
        // The parent works on with the answer of a sub-task that has ended.
        slots.leave(task(1), Busy);
        assert!(slots.change(task(1), Delegating, Busy).is_none());
        slots.leave(task(1), Parked);
        slots.leave(task(1), Busy);
        assert!(slots.has_free());
    }

    #[test]
    fn delegating_task_keeps_its_slot_between_sub_tasks() {
        let mut slots = TreeSlots::new(1);
        slots.enter(task(1));
        slots.enter(task(1));
        slots.change(task(1), Busy, Delegating);
        slots.leave(task(1), Busy);
        assert!(!slots.has_free());
        assert!(slots.change(task(1), Delegating, Busy).is_none());
    }

    #[test]
    fn ended_task_does_not_wait_for_a_slot() {
        let mut slots = TreeSlots::new(1);
        slots.enter(task(1));
        slots.change(task(1), Busy, Parked);
        slots.enter(task(2));
        let interrupted = slots.change(task(1), Parked, Busy);
        drop(interrupted);
        slots.leave(task(1), Busy);
        slots.leave(task(2), Busy);
        slots.grant_returning();
        assert!(slots.has_free());
    }
}
