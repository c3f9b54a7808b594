//! The check that the tasks of an archive have an ancestry that ends.
//!
//! Stores and queries follow parents and fork origins without a limit of their own.

use std::collections::{BTreeMap, BTreeSet};

use polity_model::ids::TaskId;
use polity_store::TaskImport;

use super::staging::dependencies;

/// The most ancestors in a row that a task of an archive may have.
const ARCHIVE_DEPTH_MAX: usize = 1000;

/// A task whose ancestry cannot be followed.
pub(super) struct AncestryFault {
    pub(super) task: TaskId,
    pub(super) message: String,
}

/// Finds a task that is its own ancestor, or has too many. Every ancestor must be in the archive.
pub(super) fn find_ancestry_fault(imports: &[TaskImport]) -> Option<AncestryFault> {
    let above: BTreeMap<TaskId, BTreeSet<TaskId>> =
        imports.iter().map(|import| (import.task, dependencies(import).collect())).collect();
    let mut below: BTreeMap<TaskId, Vec<TaskId>> = BTreeMap::new();
    for (task, ancestors) in &above {
        for ancestor in ancestors {
            below.entry(*ancestor).or_default().push(*task);
        }
    }
    let mut open = above.clone();
    let mut ready: Vec<(TaskId, usize)> = Vec::new();
    ready.extend(above.iter().filter(|(_, tasks)| tasks.is_empty()).map(|(task, _)| (*task, 0)));
    let mut depths: BTreeMap<TaskId, usize> = BTreeMap::new();
    while let Some((task, depth)) = ready.pop() {
        if depth > ARCHIVE_DEPTH_MAX {
            let message = format!(
                "this task has more than {ARCHIVE_DEPTH_MAX} ancestors in a row (ARCHIVE_DEPTH_MAX)"
            );
            return Some(AncestryFault { task, message });
        }
        open.remove(&task);
        for child in below.get(&task).into_iter().flatten() {
            let deepest = depths.entry(*child).or_default();
            *deepest = (depth + 1).max(*deepest);
            if let Some(waiting) = open.get_mut(child) {
                waiting.remove(&task);
                if waiting.is_empty() {
                    ready.push((*child, *deepest));
                }
            }
        }
    }
    // Each open task has an open ancestor, so the walk upwards returns to a task of the cycle.
    let mut task = *open.keys().next()?;
    let mut passed = BTreeSet::new();
    while passed.insert(task) {
        task = *open.get(&task)?.iter().next()?;
    }
    let message = "this task is its own ancestor, by its parents or fork origins".to_owned();
    Some(AncestryFault { task, message })
}
