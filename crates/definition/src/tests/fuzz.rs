//! Any text can be parsed: parsing ends, and problems have positions.

use std::fmt::Write as _;

use proptest::prelude::*;

use super::home;
use super::valid::FILES;
use crate::PROBLEMS_PER_FILE_MAX;

fn check_problem_positions(path: &str, text: &str) {
    let home = home([(path, text)]);
    let lines = u32::try_from(text.lines().count()).unwrap();
    for problem in &home.problems {
        assert_eq!(problem.file, path);
        assert!((1..=lines + 1).contains(&problem.line), "{problem}\n{text}");
        assert!(problem.column >= 1 && !problem.message.is_empty(), "{problem}\n{text}");
    }
}

proptest! {
    #[test]
    fn any_file_parses_or_is_rejected(text in "\\PC*|[a-z:\\- \\n\\[\\]{}&*!|>'\"#?,0-9]*") {
        for (path, _) in FILES {
            check_problem_positions(path, &text);
        }
    }

    /// Typos: a few characters of a valid file are replaced or removed.
    #[test]
    fn files_with_typos_parse_or_are_rejected(
        file in 0..FILES.len(),
        slips in prop::collection::vec((any::<prop::sample::Index>(), "[a-z:\\- \\n\\[{1]?"), 1..4),
    ) {
        let (path, valid) = FILES[file];
        let mut characters: Vec<String> = valid.chars().map(String::from).collect();
        for (place, slip) in slips {
            let place = place.index(characters.len());
            characters[place] = slip;
        }
        check_problem_positions(path, &characters.concat());
    }
}

#[test]
fn limits_the_number_of_problems() {
    let mut text = "kind: cli\nname: a\n".to_owned();
    for number in 0..PROBLEMS_PER_FILE_MAX * 2 {
        writeln!(text, "field_{number}: 1").unwrap();
    }
    let home = home([("agents/a.yaml", text.as_str())]);
    assert_eq!(home.problems.len(), PROBLEMS_PER_FILE_MAX + 1);
    assert_eq!(home.problems[0].message, "only the first 50 problems are listed");
}
