//! Agent definitions for tests.

use polity_definition::{AgentKind, CliAgent, Home, HomeFile, NameLookup};

/// The agent with these lines in its file.
pub(crate) fn agent(lines: &str) -> CliAgent {
    let text = Ok(format!("kind: cli\nname: coder\n{lines}"));
    let home = Home::parse(vec![HomeFile { path: "agents/coder.yaml".into(), text }]);
    assert_eq!(home.problems, []);
    match home.find("coder") {
        NameLookup::Agent(agent) => match &agent.kind {
            AgentKind::Cli(cli) => cli.clone(),
            AgentKind::Llm(_) | AgentKind::Remote(_) => panic!("{agent:?}"),
        },
        other => panic!("{other:?}"),
    }
}
