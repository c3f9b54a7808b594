//! Copies and worktrees.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use polity_definition::AgentDefinition;
use polity_engine::driver::{ProgramPreparation, RunCleanup, RunOverrides};
use serde_json::json;

use super::fixture::{
    CliFixture, ProgressRecorder, answer, failure, new_execution, python, recover, sh,
};
use crate::waiting::eventually;

fn agent(script: &str, workspace: &str) -> AgentDefinition {
    sh(script, &json!({"workspace": workspace, "working_directory": "project"}))
}

pub(super) fn git(folder: &Path, args: &[&str]) -> String {
    let author = ["-c", "user.name=t", "-c", "user.email=t@t"];
    #[expect(clippy::disallowed_methods, reason = "what Git says is what people see")]
    let output = Command::new("git").current_dir(folder).args(author).args(args).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// A fixture with a project in a Git repository.
pub(super) fn project() -> CliFixture {
    let fixture = CliFixture::new();
    let folder = fixture.path("project");
    fs::create_dir_all(folder.join("sub")).unwrap();
    fs::write(folder.join("a.txt"), "one\n").unwrap();
    fs::write(folder.join("sub/b.txt"), "two\n").unwrap();
    symlink("a.txt", folder.join("link")).unwrap();
    fs::write(folder.join("run.sh"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(folder.join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    git(&folder, &["init", "--quiet"]);
    git(&folder, &["add", "--all"]);
    git(&folder, &["commit", "--quiet", "-m", "first"]);
    fixture
}

fn workspaces(fixture: &CliFixture) -> usize {
    fs::read_dir(fixture.path("data/workspaces")).map_or(0, Iterator::count)
}

#[tokio::test]
async fn copy_leaves_the_original_unchanged() {
    let fixture = project();
    let script = "pwd; test -x run.sh && test -L link && cat sub/b.txt; echo new >> a.txt; \
                  rm sub/b.txt; echo c > c.txt";
    let outcome = fixture.run(&agent(script, "copy"), "").await;
    let output = answer(&outcome);
    assert!(output.contains("data/workspaces/") && output.contains("two"), "{output}");
    let kept = outcome.report.workspace.as_ref().unwrap();
    assert_eq!((kept.changed_files, &kept.branch, &kept.problem), (3, &None, &None));
    let folder = fixture.path("data").join(&kept.folder);
    assert_eq!(fs::read_to_string(folder.join("a.txt")).unwrap(), "one\nnew\n");
    assert_eq!(fixture.read("project/a.txt"), "one\n");
    assert!(fixture.path("project/sub/b.txt").exists());
}

#[tokio::test]
async fn copy_of_the_home_excludes_data() {
    let fixture = CliFixture::new();
    fs::write(fixture.path("here"), "x").unwrap();
    let outcome = fixture.run(&sh("ls", &json!({"workspace": "copy"})), "").await;
    assert_eq!(answer(&outcome), "here");
    assert_eq!(outcome.report.workspace.unwrap().changed_files, 0);
}

#[tokio::test]
async fn worktree_changes_are_on_a_branch() {
    let fixture = project();
    let script = "echo new >> a.txt; echo d > d.txt; git add d.txt; \
                  git -c user.name=a -c user.email=a@a commit -qm mine; echo c > c.txt; echo done";
    let outcome = fixture.run(&agent(script, "worktree"), "").await;
    let kept = outcome.report.workspace.as_ref().unwrap();
    assert_eq!((kept.changed_files, &kept.problem), (3, &None), "{:?}", outcome.end);
    let branch = kept.branch.as_ref().unwrap();
    let folder = fixture.path("project");
    assert_eq!(git(&folder, &["show", &format!("{branch}:c.txt")]), "c");
    assert_eq!(git(&folder, &["show", &format!("{branch}:a.txt")]), "one\nnew");
    assert_eq!(git(&folder, &["status", "--porcelain"]), "");
}

#[tokio::test]
async fn runs_in_the_same_subfolder_of_the_worktree() {
    let fixture = project();
    let more = json!({"workspace": "worktree", "working_directory": "project/sub"});
    let outcome = fixture.run(&sh("cat b.txt; echo new > b.txt", &more), "").await;
    assert_eq!(answer(&outcome), "two");
    assert_eq!(outcome.report.workspace.unwrap().changed_files, 1);
}

#[tokio::test]
async fn failed_run_leaves_no_workspace() {
    let fixture = project();
    for workspace in ["copy", "worktree"] {
        let outcome = fixture.run(&agent("mkdir -m 555 x; exit 3", workspace), "").await;
        failure(&outcome);
        assert_eq!(outcome.report.workspace, None);
        assert_eq!(workspaces(&fixture), 0);
    }
    assert_eq!(git(&fixture.path("project"), &["branch", "--list", "polity/*"]), "");
    assert_eq!(git(&fixture.path("project"), &["worktree", "list"]).lines().count(), 1);
}

#[tokio::test]
async fn worktree_requires_a_repository_with_a_commit() {
    let fixture = CliFixture::new();
    fs::create_dir(fixture.path("project")).unwrap();
    let agent = agent("echo x", "worktree");
    let refusal = fixture.driver.ready(&agent, &RunOverrides::default()).unwrap_err();
    assert!(refusal.message.contains("not in a Git repository"), "{refusal:?}");
    git(&fixture.path("project"), &["init", "--quiet"]);
    fixture.driver.ready(&agent, &RunOverrides::default()).unwrap();
    let outcome = fixture.run(&agent, "").await;
    let refusal = failure(&outcome);
    assert!(refusal.message.contains("without a commit"), "{refusal:?}");
}

#[tokio::test]
async fn cleanup_removes_files_and_optionally_the_workspace() {
    let fixture = project();
    let id = new_execution();
    let begins = |folder: &str| fixture.path("data").join(folder);
    for keeps in [true, false] {
        fs::create_dir_all(begins("runs").join(format!("{id}-0.files"))).unwrap();
        fs::write(begins("runs").join(format!("{id}-0.files/input")), "raw").unwrap();
        fs::write(begins("runs").join(format!("{id}-0.json")), "").unwrap();
        fs::create_dir_all(begins("workspaces").join(id.to_string())).unwrap();
        assert_eq!(fixture.driver.leftover_executions().into_iter().collect::<Vec<_>>(), [id]);
        fixture.driver.remove_leftovers(id, keeps);
        assert_eq!(fs::read_dir(begins("runs")).unwrap().count(), 0);
        assert_eq!(workspaces(&fixture), usize::from(keeps));
    }
}

#[tokio::test]
async fn recovered_run_keeps_its_workspace() {
    let fixture = project();
    let agent = agent("echo new >> a.txt; echo done", "copy");
    let id = new_execution();
    // The owner died after the run and before journaling its outcome.
    fixture.run_as(&agent, id, &ProgressRecorder::default()).await;
    let found = recover(&fixture.other_driver(), &agent, id, 0).await.unwrap();
    assert_eq!(answer(&found), "done");
    assert_eq!(found.report.workspace.unwrap().changed_files, 1);
}

/// Nests more folders than are walked, in a path that the system refuses.
fn nest_folders(folder: &str, end: &str) -> String {
    format!(
        "import os\nos.chdir({folder})\nfor _ in range(2500):\n    os.mkdir('d')\n    \
         os.chdir('d')\n{end}"
    )
}

#[tokio::test]
async fn deep_folders_of_a_failed_run_do_not_abort_polity() {
    let fixture = project();
    let input_file = json!({"input_pattern": "file"});
    for (folder, more) in [
        ("'.'", json!({"workspace": "copy", "working_directory": "project"})),
        ("'.'", json!({"workspace": "worktree", "working_directory": "project"})),
        ("os.path.dirname(__import__('sys').argv[-1])", input_file),
    ] {
        let outcome = fixture.run(&python(&nest_folders(folder, "exit(3)"), &more), "").await;
        failure(&outcome);
        assert_eq!(workspaces(&fixture), 0, "{more}");
        let files = fs::read_dir(fixture.path("data/runs")).unwrap();
        let folders = files.filter(|file| file.as_ref().unwrap().path().is_dir()).count();
        assert_eq!(folders, 0, "{more}");
    }
    assert_eq!(git(&fixture.path("project"), &["branch", "--list", "polity/*"]), "");
    assert_eq!(git(&fixture.path("project"), &["worktree", "list"]).lines().count(), 1);
}

#[tokio::test]
async fn deep_folders_of_a_kept_workspace_are_reported_and_removed() {
    let fixture = project();
    for workspace in ["copy", "worktree"] {
        let more = json!({
            "workspace": workspace, "working_directory": "project", "artifacts": ["**/*.md"],
        });
        let script = nest_folders("'.'", "print('done')");
        let id = new_execution();
        let outcome =
            fixture.run_as(&python(&script, &more), id, &ProgressRecorder::default()).await;
        assert_eq!(answer(&outcome), "done");
        let problem = outcome.report.workspace.unwrap().problem.unwrap_or_default();
        let expected = match workspace {
            "copy" => "FOLDER_DEPTH_MAX",
            _ => "git could not read all folders",
        };
        assert!(problem.contains(expected), "{workspace}: {problem}");
        assert!(problem.len() < 1000, "{problem}");
        let left_out = &outcome.report.artifacts.left_out;
        assert!(left_out[0].reason.contains("FOLDER_DEPTH_MAX"), "{left_out:?}");
        fixture.driver.remove_workspace(id).unwrap();
        assert_eq!(workspaces(&fixture), 0, "{workspace}");
    }
}

#[tokio::test]
async fn too_deep_original_is_not_copied() {
    let fixture = project();
    let mut folder = fixture.path("project");
    for _ in 0..1001 {
        folder.push("d");
    }
    fs::create_dir_all(folder).unwrap();
    let outcome = fixture.run(&agent("echo done", "copy"), "").await;
    let message = &failure(&outcome).message;
    assert!(message.contains("nested more than 1000 deep (FOLDER_DEPTH_MAX)"), "{message}");
    assert_eq!(workspaces(&fixture), 0);
}

#[tokio::test]
async fn fifo_in_the_git_configuration_does_not_hold_a_stopped_run() {
    use rustix::fs::{CWD, Mode, OFlags};

    // A stopped removal leaves the branch, so each run has its own repository.
    for (exit, has_answer) in [("exit 0", true), ("exit 3", false)] {
        let fixture = project();
        let script = format!(
            "folder=$(git rev-parse --git-common-dir); mkfifo $folder/pipe; \
             printf '[include]\\npath = pipe\\n' >> $folder/config; echo done; {exit}"
        );
        let pipe = fixture.path("project/.git/pipe");
        let (stopper, stop) = tokio::sync::watch::channel(false);
        let stop_when_git_hangs = async {
            // Git waits for a writer. With one it waits for text.
            let open =
                || rustix::fs::openat(CWD, &pipe, OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty());
            let writer = eventually("Git reads the FIFO", || open().ok()).await;
            stopper.send_replace(true);
            writer
        };
        let (agent, progress) = (agent(&script, "worktree"), ProgressRecorder::default());
        let run = fixture.run_stoppable(&agent, "", &progress, &stop, new_execution());
        let (outcome, _writer) = tokio::join!(run, stop_when_git_hangs);
        if has_answer {
            assert_eq!(answer(&outcome), "done");
            let problem = outcome.report.workspace.unwrap().problem.unwrap();
            assert!(problem.contains("it was stopped"), "{problem}");
        } else {
            failure(&outcome);
            assert_eq!(workspaces(&fixture), 0);
        }
    }
}
