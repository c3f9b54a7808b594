//! Runs every console block of the README, the guides and the examples, and compares the output.
//!
//! A shell runs each line that begins with `$ `. The lines after it are its expected stdout and
//! stderr, in which `[..]` matches any text within a line. The blocks of a file run in order in one
//! folder, which is empty or a copy of the example.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use polity_testkit::peers;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

#[test]
fn readme_commands_work() {
    assert!(check(&root().join("README.md"), None) > 0, "the README shows no command");
}

#[test]
fn guide_commands_work() {
    let guides = root().join("docs/guides");
    let mut blocks = 0;
    for guide in fs::read_dir(guides).unwrap() {
        blocks += check(&guide.unwrap().path(), None);
    }
    assert!(blocks > 0);
}

#[test]
fn example_commands_work() {
    for example in fs::read_dir(root().join("examples")).unwrap() {
        let folder = example.unwrap().path();
        if folder.is_dir() {
            let blocks = check(&folder.join("README.md"), Some(&folder));
            assert!(blocks > 0, "{} shows nothing", folder.display());
        }
    }
}

/// Runs the blocks of a file and returns the number of commands.
fn check(file: &Path, copy_of: Option<&Path>) -> usize {
    let text = fs::read_to_string(file).unwrap();
    let scratch = tempfile::tempdir().unwrap();
    if let Some(folder) = copy_of {
        copy(folder, scratch.path());
    }
    let commands = commands(&text);
    for (command, expected) in &commands {
        let printed = run(command, scratch.path());
        assert!(
            matches(&printed, expected),
            "{}: `{command}` printed\n{printed}\nand not\n{}",
            file.display(),
            expected.join("\n")
        );
    }
    commands.len()
}

fn commands(text: &str) -> Vec<(String, Vec<String>)> {
    let mut commands: Vec<(String, Vec<String>)> = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        match line {
            "```console" => inside = true,
            "```" => inside = false,
            _ if !inside => {}
            _ => match (line.strip_prefix("$ "), commands.last_mut()) {
                (Some(command), _) => commands.push((command.to_owned(), Vec::new())),
                (None, Some((_, expected))) => expected.push(line.to_owned()),
                (None, None) => panic!("a console block begins with a command: {line}"),
            },
        }
    }
    commands
}

fn run(command: &str, folder: &Path) -> String {
    let programs = Path::new(env!("CARGO_BIN_EXE_polity")).parent().unwrap();
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{path}:{}", programs.display(), peers::typescript().display());
    let output = Command::new("sh")
        .args(["-c", &format!("({command}) 2>&1")])
        .current_dir(folder)
        .env("PATH", path)
        .env("HOME", folder)
        .env_remove("POLITY_HOME")
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

fn matches(printed: &str, expected: &[String]) -> bool {
    let trimmed = |line: &str| line.trim_end().to_owned();
    let printed: Vec<_> = printed.trim_end().lines().map(trimmed).collect();
    let expected: Vec<_> = expected.join("\n").trim_end().lines().map(trimmed).collect();
    printed.len() == expected.len()
        && printed.iter().zip(&expected).all(|(line, pattern)| line_matches(line, pattern))
}

/// Returns true if a line matches a pattern in which `[..]` matches any text.
fn line_matches(line: &str, pattern: &str) -> bool {
    let mut parts = pattern.split("[..]");
    let Some(mut rest) = parts.next().and_then(|first| line.strip_prefix(first)) else {
        return false;
    };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    true
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::copy(&path, &target).unwrap();
        }
    }
}

#[test]
fn pattern_wildcard_matches_any_text() {
    for (line, pattern, fit) in [
        ("abc", "abc", true),
        ("abc", "ab", false),
        ("task 12 done", "task [..] done", true),
        ("task 12 done", "task [..]", true),
        ("task 12 done", "[..]12[..]", true),
        ("task 12 done", "task [..] gone", false),
    ] {
        assert_eq!(line_matches(line, pattern), fit, "{line} {pattern}");
    }
}
