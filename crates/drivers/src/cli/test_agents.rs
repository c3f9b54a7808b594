//! Agent definitions for tests.

use polity_definition::{CliAgent, Home, HomeFile, NameLookup};

/// The agent with these lines in its file.
pub(crate) fn agent(lines: &str) -> CliAgent {
    let text = Ok(format!("kind: cli\nname: coder\n{lines}"));
    let home = Home::parse(vec![HomeFile { path: "agents/coder.yaml".into(), text }]);
    assert_eq!(home.problems, []);
    let NameLookup::Agent(agent) = home.find("coder") else { panic!("there is no such agent") };
    agent.program().unwrap().clone()
}
