//! Every stored input runs without breaking a promise.

use std::fs;
use std::path::Path;

use polity_fuzz::TARGETS;

#[test]
fn stored_inputs_break_no_promise() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for target in TARGETS {
        let folder = corpus.join(target.name);
        let mut files: Vec<_> = fs::read_dir(&folder)
            .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
            .map(|entry| entry.unwrap().path())
            .collect();
        files.sort();
        assert!(!files.is_empty(), "{} has no input", folder.display());
        for file in files {
            eprintln!("{}", file.display());
            (target.run)(&fs::read(&file).unwrap());
        }
    }
}

#[test]
fn every_corpus_belongs_to_a_target() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for entry in fs::read_dir(corpus).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(TARGETS.iter().any(|target| target.name == name), "no target is called {name}");
    }
}

/// An input that is refused early tests only the reader.
#[test]
fn stored_archives_pass_the_check_of_an_import() {
    let archives = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/archive");
    let count =
        |name: &str| polity_host::fuzz::count_valid_tasks(&fs::read(archives.join(name)).unwrap());
    assert_eq!(["family", "fork"].map(count), [2, 2]);
    // The parent of these is missing.
    assert_eq!(["sub_agent_1", "sub_agent_2"].map(count), [0, 0]);
}
