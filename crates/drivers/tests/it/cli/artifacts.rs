//! Artifacts of the working directory.

use std::fs;
use std::os::unix::fs::symlink;

use polity_model::digest::Digest;
use polity_model::run::RunArtifacts;
use serde_json::json;

use super::fixture::{CliFixture, SECRET, answer, sh};

async fn collect(fixture: &CliFixture, script: &str, patterns: &[&str]) -> RunArtifacts {
    let more = json!({"artifacts": patterns, "envs": {"TOKEN": "${TOKEN}"}});
    let outcome = fixture.run(&sh(script, &more), "").await;
    answer(&outcome);
    outcome.report.artifacts
}

#[tokio::test]
async fn collects_matching_files_with_secrets_masked() {
    let fixture = CliFixture::new();
    let script = "mkdir -p docs/deep; printf one > docs/a.md; printf \"is $TOKEN here\" > \
                  docs/deep/b.md; echo no > docs/c.txt; echo no > d.md; echo done";
    let artifacts = collect(&fixture, script, &["docs/**/*.md"]).await;
    let paths: Vec<_> = artifacts.files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(paths, ["docs/a.md", "docs/deep/b.md"]);
    assert_eq!((artifacts.left_out_count, artifacts.left_out.len()), (0, 0));
    let [first, second] = artifacts.files.as_slice() else { panic!("{artifacts:?}") };
    assert_eq!((first.bytes, first.masked), (3, false));
    assert_eq!(first.sha256, Digest::of(b"one"));
    assert!(second.masked);
    let text =
        fs::read(fixture.path("data").join(&artifacts.folder).join("docs/deep/b.md")).unwrap();
    assert_eq!(second.sha256, Digest::of(&text));
    let text = String::from_utf8(text).unwrap();
    assert!(text.starts_with("is ***") && !text.contains(SECRET), "{text}");
}

#[tokio::test]
async fn secrets_in_artifact_names_are_masked_on_disk_too() {
    let fixture = CliFixture::new();
    let script = "mkdir -p \"out/$TOKEN\"; printf one > \"out/$TOKEN/a\"; \
                  printf two > \"out/$TOKEN-1\"; printf three > \"out/$TOKEN-2\"; echo done";
    let artifacts = collect(&fixture, script, &["out/**"]).await;
    assert_eq!((artifacts.files.len(), artifacts.left_out_count), (3, 0), "{artifacts:?}");
    let folder = fixture.path("data").join(&artifacts.folder);
    for file in &artifacts.files {
        assert!(file.path.contains("***") && !file.path.contains(SECRET), "{file:?}");
        assert_eq!(file.sha256, Digest::of(&fs::read(folder.join(&file.path)).unwrap()));
    }
    let names: Vec<_> = fs::read_dir(folder.join("out"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(names.len() == 3 && names.iter().all(|name| !name.contains(SECRET)), "{names:?}");
}

#[tokio::test]
async fn copies_binary_files_without_secrets() {
    let fixture = CliFixture::new();
    // The secret is split between two chunks.
    let script = "printf '\\0\\1\\2' > good.bin; \
                  { head -c 65530 /dev/zero; printf %s \"$TOKEN\"; } > bad.bin; echo done";
    let artifacts = collect(&fixture, script, &["*.bin"]).await;
    let [good] = artifacts.files.as_slice() else { panic!("{artifacts:?}") };
    assert_eq!((good.path.as_str(), good.bytes, good.masked), ("good.bin", 3, false));
    let [bad] = artifacts.left_out.as_slice() else { panic!("{artifacts:?}") };
    assert_eq!(bad.path, "bad.bin");
    assert!(!fixture.path("data").join(&artifacts.folder).join("bad.bin").exists());
}

#[tokio::test]
async fn collects_nothing_outside_the_folder() {
    let fixture = CliFixture::new();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("x"), "outside").unwrap();
    symlink(outside.path().join("x"), fixture.path("link")).unwrap();
    symlink(outside.path(), fixture.path("folder")).unwrap();
    fs::write(fixture.path("real"), "inside").unwrap();
    symlink("real", fixture.path("alias")).unwrap();
    let artifacts = collect(&fixture, "echo done", &["link", "folder/*", "alias", "data/**"]).await;
    let paths: Vec<_> = artifacts.files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(paths, ["alias"]);
    let [link] = artifacts.left_out.as_slice() else { panic!("{artifacts:?}") };
    assert_eq!((link.path.as_str(), link.reason.as_str()), ("link", "it leads out of the folder"));
}

#[tokio::test]
async fn leaves_out_files_over_a_limit() {
    let fixture = CliFixture::new();
    let script = "printf 1 > a; head -c 2000 /dev/zero > b; printf 2 > c; printf 3 > d; \
                  printf 4 > e; printf 5 > f; echo done";
    let artifacts = collect(&fixture, script, &["?"]).await;
    let paths: Vec<_> = artifacts.files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(paths, ["a", "c", "d"]);
    let reasons: Vec<_> = artifacts.left_out.iter().map(|left| left.reason.as_str()).collect();
    assert_eq!(
        reasons,
        ["limits.artifact_bytes allows 1000 in all", "limits.artifact_files allows 3"]
    );
}

#[tokio::test]
async fn missing_folder_is_reported() {
    let fixture = CliFixture::new();
    let more = json!({"artifacts": ["*"], "workspace": "copy"});
    let outcome = fixture.run(&sh("rm -rf \"$PWD\"; echo done", &more), "").await;
    assert_eq!(answer(&outcome), "done");
    let [gone] = outcome.report.artifacts.left_out.as_slice() else { panic!("{outcome:?}") };
    assert_eq!(gone.path, ".");
    assert!(outcome.report.workspace.unwrap().problem.is_some());
}
