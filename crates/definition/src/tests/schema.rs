//! The JSON Schemas accept what is valid and refuse what is not.

use serde_json::Value;

use super::home;
use super::valid::FILES;
use crate::{Kind, schema};

fn kind_of(path: &str) -> Kind {
    match path.split('/').next() {
        Some("agents") => Kind::Agent,
        Some("workflows") => Kind::Workflow,
        Some("schedules") => Kind::Schedule,
        Some("scripts") => Kind::Script,
        Some("config") if path.contains("mcp") => Kind::McpServers,
        Some("config") => Kind::RetentionPolicy,
        _ => Kind::Settings,
    }
}

fn to_json(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}

fn errors(kind: Kind, document: &Value) -> Vec<String> {
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
        assert_eq!(errors(Kind::Agent, &document), Vec::<String>::new(), "{}", agent.name);
    }
    for workflow in home.workflows.values() {
        let document = to_json(&workflow.canonical_json());
        assert_eq!(errors(Kind::Workflow, &document), Vec::<String>::new(), "{}", workflow.name);
    }
    for kind in [Kind::Settings, Kind::McpServers, Kind::RetentionPolicy] {
        assert_eq!(errors(kind, &to_json("{}")), Vec::<String>::new(), "{kind}");
    }
}

#[test]
fn wrong_files_are_refused() {
    let llm =
        "kind: llm\nname: a\nrole: r\nsystem_prompt: s\nllm_config: {provider: openai, model: m}\n";
    let cli = "kind: cli\nname: a\nexecutable_path: x\n";
    let flow = "name: a\nentry_point: x\nnodes: {x: {type: agent, agent: b}}\n";
    let schedule = "name: a\nagent: b\ncron_expression: \"@daily\"\n";
    assert_eq!(errors(Kind::Agent, &to_json(llm)), Vec::<String>::new());
    assert_eq!(errors(Kind::Agent, &to_json(cli)), Vec::<String>::new());
    assert_eq!(errors(Kind::Workflow, &to_json(flow)), Vec::<String>::new());
    assert_eq!(errors(Kind::Schedule, &to_json(schedule)), Vec::<String>::new());
    for (kind, base, wrong) in [
        (Kind::Agent, "", "name: a"),
        (Kind::Agent, "", "kind: llm"),
        (Kind::Agent, "", "kind: robot"),
        (Kind::Agent, llm, "tool: []"),
        (Kind::Agent, llm, "tools: [a]"),
        (Kind::Agent, llm, "tools: [a/b, a/b]"),
        (Kind::Agent, llm, "temperature: 3"),
        (Kind::Agent, llm, "max_iterations: 0"),
        (Kind::Agent, llm, "max_iterations: 1.5"),
        (Kind::Agent, llm, "max_retries: -1"),
        (Kind::Agent, llm, "output_schema: text"),
        (Kind::Agent, llm, "budget: {max_cost_usd: 0}"),
        (Kind::Agent, llm, "executable_path: x"),
        (Kind::Agent, llm, "a2a: {authentication: {type: bearer}}"),
        (Kind::Agent, cli, "timeout: 0"),
        (Kind::Agent, cli, "mode: tasks"),
        (Kind::Agent, cli, "enabled: \"yes\""),
        (Kind::Agent, cli, "envs: {A: 1}"),
        (Kind::Agent, cli, "cli_args: [1]"),
        (Kind::Agent, cli, "cli_args: {a: [1]}"),
        (Kind::Agent, cli, "parser: {format: xml}"),
        (Kind::Agent, "", "{kind: remote, name: a, card_url: nowhere}"),
        (Kind::Agent, "", "{kind: remote, name: A, card_url: \"http://x\"}"),
        (Kind::Workflow, "", "{}"),
        (Kind::Workflow, flow, "max_iterations: 0"),
        (Kind::Workflow, flow, "edges: [{from: a}]"),
        (Kind::Workflow, flow, "edges: [{from: a, to: 1}]"),
        (Kind::Workflow, flow, "edges: [{from: a, to: b, when: c}]"),
        (Kind::Workflow, "name: a\n", "nodes: {x: {type: agnt}}"),
        (Kind::Workflow, "name: a\n", "nodes: {x: {agent: b}}"),
        (Kind::Workflow, "name: a\n", "nodes: {x: {type: agent, agent: b, tool: c/d}}"),
        (Kind::Workflow, "name: a\n", "nodes: {X: {type: agent, agent: b}}"),
        (Kind::Schedule, "", "name: a"),
        (Kind::Schedule, schedule, "overlap: never"),
        (Kind::Schedule, schedule, "jitter_seconds: -1"),
        (Kind::Schedule, schedule, "cron: x"),
        (Kind::Script, "", "rules: [{reply: x}]"),
        (Kind::Script, "", "rules: [{when: x, role: robot}]"),
        (Kind::Script, "", "default: {when: x}"),
        (Kind::Script, "", "default: {error: {status: 200}}"),
        (Kind::McpServers, "", "servers: [{name: a}]"),
        (Kind::McpServers, "", "servers: [{name: a, transport: pipe, config: {}}]"),
        (Kind::Settings, "", "store: {durability: fast}"),
        (Kind::Settings, "", "limits: {concurrent_tasks: 0}"),
        (Kind::Settings, "", "sever: {}"),
        (Kind::RetentionPolicy, "", "by_status: {done: 3}"),
        (Kind::RetentionPolicy, "", "default_days: -1"),
    ] {
        let document = to_json(&format!("{base}{wrong}"));
        assert!(!errors(kind, &document).is_empty(), "{kind} accepts {document}");
    }
}

#[test]
fn schemas_help_editors() {
    let agent = schema(Kind::Agent);
    assert_eq!(agent["$schema"], "https://json-schema.org/draft/2020-12/schema");
    let text = agent.to_string();
    for part in ["\"default\":10", "\"default\":\"read-write\"", "The most rounds of thinking"] {
        assert!(text.contains(part), "{part}");
    }
    for kind in Kind::ALL {
        assert_eq!(kind.as_str().parse(), Ok(kind));
        assert_eq!(schema(kind)["title"], kind.as_str());
    }
    assert_eq!(
        "agents".parse::<Kind>().unwrap_err().to_string(),
        "there is no kind of definition \"agents\", did you mean \"agent\"?"
    );
}
