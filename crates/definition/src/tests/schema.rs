//! Tests that the JSON Schemas agree with the decoder.

use serde_json::Value;

use super::home;
use super::valid::FILES;
use crate::{DefinitionKind, schema};

fn kind_of(path: &str) -> DefinitionKind {
    match path.split('/').next() {
        Some("agents") => DefinitionKind::Agent,
        Some("workflows") => DefinitionKind::Workflow,
        Some("schedules") => DefinitionKind::Schedule,
        Some("scripts") => DefinitionKind::Script,
        Some("config") if path.contains("mcp") => DefinitionKind::McpServers,
        Some("config") => DefinitionKind::RetentionPolicy,
        _ => DefinitionKind::Settings,
    }
}

fn to_json(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}

fn errors(kind: DefinitionKind, document: &Value) -> Vec<String> {
    let validator = jsonschema::draft202012::new(&schema(kind)).unwrap();
    validator.iter_errors(document).map(|error| error.to_string()).collect()
}

#[test]
fn valid_files_and_canonical_json_are_accepted() {
    for (path, text) in FILES {
        assert_eq!(errors(kind_of(path), &to_json(text)), Vec::<String>::new(), "{path}");
    }
    let home = home(FILES.iter().copied());
    for agent in home.agents.values() {
        let document = to_json(&agent.canonical_json());
        assert_eq!(
            errors(DefinitionKind::Agent, &document),
            Vec::<String>::new(),
            "{}",
            agent.name
        );
    }
    for workflow in home.workflows.values() {
        let document = to_json(&workflow.canonical_json());
        assert_eq!(
            errors(DefinitionKind::Workflow, &document),
            Vec::<String>::new(),
            "{}",
            workflow.name
        );
    }
    for kind in
        [DefinitionKind::Settings, DefinitionKind::McpServers, DefinitionKind::RetentionPolicy]
    {
        assert_eq!(errors(kind, &to_json("{}")), Vec::<String>::new(), "{kind}");
    }
}

#[test]
fn rejects_invalid_files() {
    let llm =
        "kind: llm\nname: a\nrole: r\nsystem_prompt: s\nllm_config: {provider: openai, model: m}\n";
    let cli = "kind: cli\nname: a\nexecutable_path: x\n";
    let flow = "name: a\nentry_point: x\nnodes: {x: {type: agent, agent: b}}\n";
    let schedule = "name: a\nagent: b\ncron_expression: \"@daily\"\n";
    assert_eq!(errors(DefinitionKind::Agent, &to_json(llm)), Vec::<String>::new());
    assert_eq!(errors(DefinitionKind::Agent, &to_json(cli)), Vec::<String>::new());
    assert_eq!(errors(DefinitionKind::Workflow, &to_json(flow)), Vec::<String>::new());
    assert_eq!(errors(DefinitionKind::Schedule, &to_json(schedule)), Vec::<String>::new());
    for (kind, base, wrong) in [
        (DefinitionKind::Agent, "", "name: a"),
        (DefinitionKind::Agent, "", "kind: llm"),
        (DefinitionKind::Agent, "", "kind: robot"),
        (DefinitionKind::Agent, llm, "tool: []"),
        (DefinitionKind::Agent, llm, "tools: [a]"),
        (DefinitionKind::Agent, llm, "tools: [a/b, a/b]"),
        (DefinitionKind::Agent, llm, "temperature: 3"),
        (DefinitionKind::Agent, llm, "max_iterations: 0"),
        (DefinitionKind::Agent, llm, "max_iterations: 1.5"),
        (DefinitionKind::Agent, llm, "max_retries: -1"),
        (DefinitionKind::Agent, llm, "output_schema: text"),
        (DefinitionKind::Agent, llm, "budget: {max_cost_usd: 0}"),
        (DefinitionKind::Agent, llm, "executable_path: x"),
        (DefinitionKind::Agent, llm, "a2a: {authentication: {type: bearer}}"),
        (DefinitionKind::Agent, cli, "timeout: 0"),
        (DefinitionKind::Agent, cli, "mode: tasks"),
        (DefinitionKind::Agent, cli, "enabled: \"yes\""),
        (DefinitionKind::Agent, cli, "envs: {A: 1}"),
        (DefinitionKind::Agent, cli, "cli_args: [1]"),
        (DefinitionKind::Agent, cli, "cli_args: {a: [1]}"),
        (DefinitionKind::Agent, cli, "parser: {format: xml}"),
        (DefinitionKind::Agent, "", "{kind: remote, name: a, card_url: nowhere}"),
        (DefinitionKind::Agent, "", "{kind: remote, name: A, card_url: \"http://x\"}"),
        (DefinitionKind::Workflow, "", "{}"),
        (DefinitionKind::Workflow, flow, "max_iterations: 0"),
        (DefinitionKind::Workflow, flow, "edges: [{from: a}]"),
        (DefinitionKind::Workflow, flow, "edges: [{from: a, to: 1}]"),
        (DefinitionKind::Workflow, flow, "edges: [{from: a, to: b, when: c}]"),
        (DefinitionKind::Workflow, "name: a\n", "nodes: {x: {type: agnt}}"),
        (DefinitionKind::Workflow, "name: a\n", "nodes: {x: {agent: b}}"),
        (DefinitionKind::Workflow, "name: a\n", "nodes: {x: {type: agent, agent: b, tool: c/d}}"),
        (DefinitionKind::Workflow, "name: a\n", "nodes: {X: {type: agent, agent: b}}"),
        (DefinitionKind::Schedule, "", "name: a"),
        (DefinitionKind::Schedule, schedule, "overlap: never"),
        (DefinitionKind::Schedule, schedule, "jitter_seconds: -1"),
        (DefinitionKind::Schedule, schedule, "cron: x"),
        (DefinitionKind::Script, "", "rules: [{reply: x}]"),
        (DefinitionKind::Script, "", "rules: [{when: x, role: robot}]"),
        (DefinitionKind::Script, "", "default: {when: x}"),
        (DefinitionKind::Script, "", "default: {error: {status: 200}}"),
        (DefinitionKind::McpServers, "", "servers: [{name: a}]"),
        (DefinitionKind::McpServers, "", "servers: [{name: a, transport: pipe, config: {}}]"),
        (DefinitionKind::Settings, "", "store: {durability: fast}"),
        (DefinitionKind::Settings, "", "limits: {concurrent_tasks: 0}"),
        (DefinitionKind::Settings, "", "sever: {}"),
        (DefinitionKind::RetentionPolicy, "", "by_status: {done: 3}"),
        (DefinitionKind::RetentionPolicy, "", "default_days: -1"),
    ] {
        let document = to_json(&format!("{base}{wrong}"));
        assert!(!errors(kind, &document).is_empty(), "{kind} accepts {document}");
    }
}

#[test]
fn schemas_help_editors() {
    let agent = schema(DefinitionKind::Agent);
    assert_eq!(agent["$schema"], "https://json-schema.org/draft/2020-12/schema");
    let text = agent.to_string();
    for part in [
        "\"default\":10",
        "\"default\":\"read-write\"",
        "The iteration limit: model calls with tools",
    ] {
        assert!(text.contains(part), "{part}");
    }
    for kind in DefinitionKind::ALL {
        assert_eq!(kind.as_str().parse(), Ok(kind));
        assert_eq!(schema(kind)["title"], kind.as_str());
    }
    assert_eq!(
        "agents".parse::<DefinitionKind>().unwrap_err().to_string(),
        "there is no kind of definition \"agents\", did you mean \"agent\"?"
    );
}
