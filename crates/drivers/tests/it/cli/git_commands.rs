//! Commands that an agent hides in its repository. Polity's own Git must not run them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use polity_engine::driver::RunCleanup;
use polity_model::run::SavedWorkspace;
use serde_json::json;

use super::fixture::{CliFixture, ProgressRecorder, failure, new_execution, sh};
use super::workspaces::{git, project};

/// Ways to have Git run the executable `$TRAP`. Each is a script of an agent in a worktree.
const TRAPS: [(&str, &str); 15] = [
    ("file system monitor", "git config core.fsmonitor \"$TRAP\""),
    (
        "hooks",
        "for hook in pre-commit prepare-commit-msg commit-msg post-commit post-checkout \
         post-index-change reference-transaction pre-auto-gc post-rewrite; do \
         cp \"$TRAP\" \"$(git rev-parse --git-common-dir)/hooks/$hook\"; done",
    ),
    (
        "folder of hooks",
        "mkdir hooks; cp \"$TRAP\" hooks/post-index-change; cp \"$TRAP\" hooks/post-checkout; \
         git config core.hooksPath \"$PWD/hooks\"",
    ),
    (
        "filter",
        "git config filter.evil.clean \"$TRAP\"; git config filter.evil.smudge \"$TRAP\"; \
         echo '* filter=evil' | tee .gitattributes > \
         \"$(git rev-parse --git-common-dir)/info/attributes\"",
    ),
    (
        "filter process",
        "git config filter.e.v=il.process \"$TRAP\"; git config filter.e.v=il.required true; \
         echo '* filter=e.v=il' | tee .gitattributes > \
         \"$(git rev-parse --git-common-dir)/info/attributes\"",
    ),
    (
        "included file",
        "git config -f evil.conf filter.evil.clean \"$TRAP\"; \
         git config -f evil.conf core.fsmonitor \"$TRAP\"; \
         git config include.path \"$PWD/evil.conf\"; echo '* filter=evil' > .gitattributes",
    ),
    (
        "file included for a branch",
        "git config -f evil.conf filter.evil.clean \"$TRAP\"; \
         git config -f evil.conf filter.evil.smudge \"$TRAP\"; \
         git config 'includeIf.onbranch:polity/**.path' \"$PWD/evil.conf\"; \
         echo '* filter=evil' | tee .gitattributes > \
         \"$(git rev-parse --git-common-dir)/info/attributes\"",
    ),
    (
        "configuration of a worktree",
        "git config extensions.worktreeConfig true; git config --worktree core.fsmonitor \"$TRAP\"",
    ),
    ("external diff", "git config diff.external \"$TRAP\"; echo new >> a.txt"),
    (
        "text conversion",
        "git config diff.evil.textconv \"$TRAP\"; echo '* diff=evil' > .gitattributes; \
         git add --all; git -c user.name=a -c user.email=a@a commit -qm mine; echo new >> a.txt",
    ),
    (
        "signature",
        "git config commit.gpgSign true; git config gpg.program \"$TRAP\"; \
         git config user.signingKey x; echo new >> a.txt",
    ),
    ("editor", "git config core.editor \"$TRAP\"; git config commit.status false"),
    (
        "submodule",
        "git init -q nested; cd nested; echo x > x; git add x; \
         git -c user.name=a -c user.email=a@a commit -qm x; \
         git config filter.evil.clean \"$TRAP\"; echo '* filter=evil' > .git/info/attributes; \
         cd ..; git add nested 2> /dev/null; touch -d 2001-01-01 nested/x",
    ),
    (
        "configuration of the user",
        "git config --global core.fsmonitor \"$TRAP\"; \
         git config --global filter.evil.clean \"$TRAP\"; \
         git config --global core.attributesFile \"$HOME/attributes\"; \
         echo '* filter=evil' > ~/attributes; git config --global user.name a",
    ),
    (
        "another repository",
        "git init -q other; git -C other config core.fsmonitor \"$TRAP\"; \
         echo \"gitdir: $PWD/other/.git\" > .git",
    ),
];

/// Writes an executable that leaves a mark, and then runs a command.
fn write_trap(fixture: &CliFixture, command: &str) {
    let mark = fixture.path("mark");
    let script = format!("#!/bin/sh\necho \"$0 $*\" >> '{}'\n{command}\n", mark.display());
    fs::write(fixture.path("trap.sh"), script).unwrap();
    fs::set_permissions(fixture.path("trap.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir_all(fixture.path("user")).unwrap();
}

/// Runs an agent in a worktree and checks that no trap was sprung.
async fn run(fixture: &CliFixture, script: &str, trap: &str) -> (SavedWorkspace, impl Drop) {
    let more = json!({
        "workspace": "worktree", "working_directory": "project",
        "envs": {"TRAP": fixture.path("trap.sh"), "HOME": fixture.path("user")},
    });
    // The agent's own Git may spring the trap; only what follows counts.
    let script = format!("{script}; echo change > change.txt; rm -f {}; echo done", mark(fixture));
    let id = new_execution();
    let outcome = fixture.run_as(&sh(&script, &more), id, &ProgressRecorder::default()).await;
    let kept = outcome.report.workspace.unwrap_or_else(|| panic!("{trap}: {:?}", outcome.end));
    assert_unsprung(fixture, trap);
    (kept, WorkspaceRemoval(fixture, id))
}

fn mark(fixture: &CliFixture) -> String {
    fixture.path("mark").to_str().unwrap().to_owned()
}

fn assert_unsprung(fixture: &CliFixture, trap: &str) {
    let sprung = fs::read_to_string(mark(fixture)).unwrap_or_default();
    assert_eq!(sprung, "", "{trap}: Polity's Git ran it");
}

/// Removes the workspace of an execution.
struct WorkspaceRemoval<'a>(&'a CliFixture, polity_model::ids::ExecutionId);

impl Drop for WorkspaceRemoval<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.0.driver.remove_workspace(self.1).unwrap();
        }
    }
}

/// Runs the usual commands of a person, which spring every trap.
fn spring(fixture: &CliFixture, worktree: &Path) {
    let script = "echo more >> a.txt; git status; git diff; git add --all; git diff HEAD; git commit --allow-empty -m x; \
                  git commit --amend --allow-empty; git diff HEAD^ HEAD; git log -p; \
                  git worktree add \"$0\" -b polity/other; \
                  git -C \"$0\" status";
    #[expect(clippy::disallowed_methods, reason = "the test needs an ordinary Git")]
    let status = Command::new("sh")
        .args(["-c", script])
        .arg(fixture.path("other"))
        .current_dir(worktree)
        .env("HOME", fixture.path("user"))
        .env("GIT_AUTHOR_NAME", "t")
        .env("GIT_AUTHOR_EMAIL", "t@t")
        .env("GIT_COMMITTER_NAME", "t")
        .env("GIT_COMMITTER_EMAIL", "t@t")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.unwrap();
}

#[tokio::test]
async fn own_git_runs_nothing_that_an_agent_set_up() {
    for (trap, script) in TRAPS {
        let fixture = project();
        // A filter passes the file on.
        write_trap(&fixture, "cat");
        let (kept, first) = run(&fixture, script, trap).await;
        let folder = fixture.path("data").join(&kept.folder);
        if trap == "another repository" {
            assert!(kept.problem.is_some(), "{trap}: {kept:?}");
        } else {
            assert_eq!(kept.problem, None, "{trap}");
            let shown = format!("{}:change.txt", kept.branch.unwrap());
            // The trap would be sprung by an ordinary `git show`.
            assert_eq!(git(&fixture.path("project"), &["cat-file", "-p", &shown]), "change");
        }
        // Settings of the repository hold in the next worktree, too.
        let (_, second) = run(&fixture, "true", trap).await;
        drop(second);
        assert_unsprung(&fixture, trap);
        spring(&fixture, &folder);
        assert!(fs::exists(mark(&fixture)).unwrap(), "{trap}: it is no trap");
        fs::remove_file(mark(&fixture)).unwrap();
        drop(first);
        assert_unsprung(&fixture, trap);
    }
}

#[tokio::test]
async fn own_git_fetches_nothing() {
    let fixture = project();
    write_trap(&fixture, "exit 1");
    let folder = fixture.path("project");
    let trap = fixture.path("trap.sh");
    let blob = git(&folder, &["rev-parse", "HEAD:a.txt"]);
    let (first, rest) = blob.split_at(2);
    for (key, value) in [
        ("core.repositoryFormatVersion", "1"),
        ("extensions.partialClone", "origin"),
        ("remote.origin.promisor", "true"),
        ("remote.origin.url", &format!("ext::{}", trap.display())),
        ("protocol.allow", "always"),
        ("protocol.ext.allow", "always"),
        ("core.sshCommand", trap.to_str().unwrap()),
        ("credential.helper", &format!("!{}", trap.display())),
    ] {
        git(&folder, &["config", key, value]);
    }
    // A partial clone lacks files until they are needed.
    fs::remove_file(folder.join(".git/objects").join(first).join(rest)).unwrap();
    for url in [format!("ext::{}", trap.display()), "ssh://nowhere.invalid/x".to_owned()] {
        git(&folder, &["config", "remote.origin.url", &url]);
        let more = json!({"workspace": "worktree", "working_directory": "project"});
        let outcome = fixture.run(&sh("true", &more), "").await;
        assert!(failure(&outcome).message.contains("check out the files"), "{:?}", outcome.end);
        assert_unsprung(&fixture, &url);
        #[expect(clippy::disallowed_methods, reason = "the test needs an ordinary Git")]
        let fetch =
            Command::new("git").current_dir(&folder).args(["cat-file", "-p", &blob]).output();
        assert!(!fetch.unwrap().status.success());
        assert!(fs::exists(mark(&fixture)).unwrap(), "{url}: it is no trap");
        fs::remove_file(mark(&fixture)).unwrap();
    }
}
