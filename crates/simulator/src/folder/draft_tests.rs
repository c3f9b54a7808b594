use jiff::Timestamp;

use super::*;
use crate::folder::version::RunVersion;
use crate::folder::{CheckpointFormat, RunStatus};

fn record() -> SimulationRecord {
    SimulationRecord {
        run_id: "run".to_owned(),
        scenario: "any".to_owned(),
        created_at: Timestamp::UNIX_EPOCH,
        forked_from: None,
        strict: false,
        turns: 1,
        status: RunStatus::Running,
        summary: None,
        version: Some(RunVersion::current()),
        request: None,
    }
}

fn filled(target: &Path) -> RunDraft {
    let draft = RunDraft::create(target).unwrap();
    draft.fill("{}", "{}", &[]).unwrap();
    let checkpoint = draft.folder().checkpoint_path(0, CheckpointFormat::Json);
    fs::write(checkpoint, "{}").unwrap();
    draft
}

/// The steps of a creation. Each ends like a process that is killed after it: its lock is released.
const STEPS: [fn(&Path); 7] = [
    |target| fs::create_dir(temporary(target).unwrap()).unwrap(),
    |target| {
        fs::create_dir(temporary(target).unwrap()).unwrap();
        fs::write(temporary(target).unwrap().join(LOCK), "").unwrap();
    },
    |target| drop(RunDraft::create(target).unwrap()),
    |target| RunDraft::create(target).unwrap().fill("{}", "{}", &[]).unwrap(),
    |target| drop(filled(target)),
    |target| filled(target).folder().write_record(&record()).unwrap(),
    |target| drop(filled(target).publish(&record()).unwrap()),
];

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn creation_killed_at_any_step_is_swept_or_is_a_run() {
    for (number, step) in STEPS.into_iter().enumerate() {
        let home = tempfile::tempdir().unwrap();
        let target = home.path().join("run");
        step(&target);
        let is_run = number + 1 == STEPS.len();
        assert_eq!(RunFolder::open(&target).is_some(), is_run, "step {number}");
        assert!(sweep_unfinished(home.path()).is_empty());
        let expected = if is_run { vec!["run"] } else { Vec::new() };
        assert_eq!(names(home.path()), expected, "step {number}");
    }
}

#[test]
fn leftovers_of_a_killed_creation_are_replaced() {
    for step in &STEPS[..STEPS.len() - 1] {
        let home = tempfile::tempdir().unwrap();
        let target = home.path().join("run");
        step(&target);
        let draft = RunDraft::create(&target).unwrap();
        assert_eq!(draft.folder().checkpoints().unwrap(), Vec::<u64>::new());
        drop(draft.publish(&record()).unwrap());
        assert_eq!(names(home.path()), ["run"]);
    }
}

/// A folder that exists is filled in place, so that it may be a mount point.
#[test]
fn existing_folder_is_filled_in_place() {
    let home = tempfile::tempdir().unwrap();
    let target = home.path().join("run");
    fs::create_dir(&target).unwrap();
    let draft = filled(&target);
    assert_eq!(names(home.path()), ["run"]);
    assert!(RunFolder::open(&target).is_none(), "it is no run yet");
    drop(draft);
    assert_eq!(filled(&target).folder().checkpoints().unwrap(), [0]);
    drop(filled(&target).publish(&record()).unwrap());
    assert!(RunFolder::open(&target).is_some());
    assert!(matches!(RunDraft::create(&target), Err(SimError::Exists(_))));
    assert!(matches!(RunDraft::create(home.path()), Err(SimError::Exists(_))));
}

#[test]
fn creation_in_progress_is_not_swept() {
    let home = tempfile::tempdir().unwrap();
    let draft = filled(&home.path().join("run"));
    fs::create_dir(home.path().join("notes")).unwrap();
    fs::write(home.path().join("notes/run.txt"), "mine").unwrap();
    assert!(sweep_unfinished(home.path()).is_empty());
    drop(draft.publish(&record()).unwrap());
    assert!(sweep_unfinished(home.path()).is_empty());
    let mut left = names(home.path());
    left.sort();
    assert_eq!(left, ["notes", "run"]);
}

#[test]
fn killed_sweep_is_repeated() {
    let home = tempfile::tempdir().unwrap();
    let target = home.path().join("run");
    drop(filled(&target));
    let swept = swept_path(&temporary(&target).unwrap()).unwrap();
    fs::rename(temporary(&target).unwrap(), &swept).unwrap();
    fs::remove_file(swept.join(LOCK)).unwrap();
    assert!(is_unfinished(&swept) && swept_path(&swept).is_none());
    assert!(sweep_unfinished(home.path()).is_empty());
    assert_eq!(names(home.path()), Vec::<String>::new());
}

#[test]
fn failed_creation_leaves_no_folder() {
    let home = tempfile::tempdir().unwrap();
    let draft = filled(&home.path().join("run"));
    let error = draft.discard(SimError::InUse);
    assert!(matches!(error, SimError::InUse));
    assert_eq!(names(home.path()), Vec::<String>::new());
}

#[test]
fn sweeping_does_not_disturb_creations() {
    let home = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        let sweeper = scope.spawn(|| {
            for _ in 0..100 {
                let errors = sweep_unfinished(home.path());
                assert!(errors.is_empty(), "{errors:?}");
            }
        });
        for number in 0..10 {
            drop(filled(&home.path().join(number.to_string())).publish(&record()).unwrap());
        }
        sweeper.join().unwrap();
    });
    assert_eq!(names(home.path()).len(), 10);
}
