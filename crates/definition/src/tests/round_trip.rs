//! Canonical JSON round-trips, and equal definitions have equal texts.

use proptest::prelude::*;

use super::home;
use super::valid::FILES;
use crate::{
    AgentDefinition, AgentKind, McpServerDefinition, OutputSchema, ScheduleDefinition,
    ScriptDefinition, WorkflowDefinition,
};

#[test]
fn canonical_json_round_trips() {
    let home = home(FILES.iter().copied());
    assert_eq!(home.problems, []);
    assert_eq!((home.agents.len(), home.workflows.len()), (5, 2));
    assert_eq!((home.schedules.len(), home.scripts.len(), home.mcp_servers.len()), (2, 1, 3));
    for agent in home.agents.values() {
        let json = agent.canonical_json();
        let again = AgentDefinition::from_canonical(&json).unwrap();
        assert_eq!(again, **agent);
        assert_eq!((again.canonical_json(), again.digest()), (json, agent.digest()));
    }
    for workflow in home.workflows.values() {
        let again = WorkflowDefinition::from_canonical(&workflow.canonical_json()).unwrap();
        assert_eq!(again, **workflow);
    }
    for schedule in home.schedules.values() {
        let again = ScheduleDefinition::from_canonical(&schedule.canonical_json()).unwrap();
        assert_eq!(again, **schedule);
    }
    for server in home.mcp_servers.values() {
        let again = McpServerDefinition::from_canonical(&server.canonical_json()).unwrap();
        assert_eq!((again.digest(), &again), (server.digest(), &**server));
    }
    for (name, script) in &home.scripts {
        let again = ScriptDefinition::from_canonical(name, &script.canonical_json()).unwrap();
        assert_eq!(again, **script);
    }
}

#[test]
fn nodes_keep_their_order_and_other_keys_are_sorted() {
    let home = home(FILES.iter().copied());
    let workflow = &home.workflows["newsroom"];
    let names: Vec<&str> = workflow.nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names, ["zeta", "route", "ask", "fan", "beta", "alpha"]);
    let json = workflow.canonical_json();
    assert!(json.starts_with("{\"agents\": {},\"checkpoints\": [\"fan\"],\"edges\": ["), "{json}");
    assert!(json.find("\"zeta\": {").unwrap() < json.find("\"alpha\": {").unwrap());
}

#[test]
fn the_style_of_a_file_does_not_change_the_digest() {
    let flow = "kind: cli\nname: a\nexecutable_path: x\ncli_args: {-p: 1}\nenvs: {B: x, A: y}\n";
    let full = r#"{"timeout": 300, "envs": {"A": "y", "B": "x"}, "cli_args": ["-p", "1"],
        "executable_path": "x", "name": "a", "kind": "cli"}"#;
    let (one, other) = (home([("agents/a.yaml", flow)]), home([("agents/a.json", full)]));
    assert_eq!(one.agents["a"].digest(), other.agents["a"].digest());
}

proptest! {
    /// Any text and any number round-trips.
    #[test]
    fn any_text_round_trips(prompt in "\\PC*|.*", cost in 1e-9_f64..1e12, key in "\\PC{0,40}") {
        let home = home(FILES.iter().copied());
        let mut agent = (*home.agents["writer"]).clone();
        let AgentKind::Llm(llm) = &mut agent.kind else { unreachable!() };
        llm.identity.system_prompt = format!("x{prompt}").parse().unwrap();
        // No keyword of JSON Schema has this prefix.
        let schema = [(format!("x-{key}"), serde_json::json!([prompt, cost]))];
        llm.output_schema = Some(OutputSchema::new(schema.into_iter().collect()).unwrap());
        let again = AgentDefinition::from_canonical(&agent.canonical_json());
        prop_assert_eq!(again.map_err(|problems| format!("{problems:?}")), Ok(agent));
    }
}
