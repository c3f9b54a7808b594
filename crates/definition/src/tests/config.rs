//! Tests of settings, MCP servers and retention.

use super::{home, problems, report};
use crate::{
    DurabilitySetting, HomeSettings, McpServerDefinition, McpTransport, RetentionPolicy,
    RetentionStatus,
};

#[test]
fn settings_may_be_missing_or_empty() {
    for files in [vec![], vec![("polity.yaml", "")], vec![("polity.yaml", "server:\nlimits: {}\n")]]
    {
        let home = home(files);
        assert_eq!((home.problems, home.settings), (vec![], HomeSettings::default()));
    }
    let settings = HomeSettings::default();
    assert_eq!(settings.durability, DurabilitySetting::Full);
    assert_eq!(settings.server.listen.to_string(), "127.0.0.1:7070");
    assert_eq!(settings.limits.concurrent_tasks.get(), 64);
    assert_eq!(settings.limits.input_bytes.get(), 10_485_760);
    assert_eq!(settings.limits.output_bytes.get(), 104_857_600);
    assert_eq!(settings.limits.sub_agent_depth.get(), 4);
}

#[test]
fn settings_list_their_allowed_values() {
    insta::assert_snapshot!(report(
        [
            "sever: {}",
            "store: {durability: ful}",
            "server: {listen: localhost}",
            "server: {default_agent: writer}",
            "limits: {concurrent_tasks: 0}",
            "redaction: {patterns: [\"a\", \"[\"]}",
            "redaction: {rules: [{regex: a}, {id: a, regex: a, secretGruop: 1}]}",
            "redaction: {rules: [{id: a, regex: a}, {id: a, regex: (}, {id: b, regex: a, secretGroup: 1}]}",
            "redaction: {disabled_rules: [sk-kee]}",
            "notify: {on_review: {webhook: \"https://hooks.slack.com/services/T01/B01/abcdefghijklmnop\"}}",
            "notify: {on_review: {webhok: x}}",
            "notify: {on_review: {webhook: example.com}}",
            "notify: {on_review: {command: []}}",
            "notify: {on_review: {command: \"tell 'me\"}}",
            "notify: {on_review: {command: 3}}",
        ],
        |text| problems("polity.yaml", text, [])
    ));
}

#[test]
fn servers_list_their_allowed_values() {
    insta::assert_snapshot!(report(
        [
            "{transport: stdio, config: {command: x}}",
            "{name: a, config: {command: x}}",
            "{name: a, transport: stdio}",
            "{name: a, transport: stdo, config: {command: x}}",
            "{name: a, transport: stdio, config: {url: \"http://x\"}}",
            "{name: a, transport: sse, config: {command: x}}",
            "{name: a, transport: stdio, config: {command: x}, tools: {\"b/c\": {}}}",
            "{name: a, transport: stdio, config: {command: x}, tools: {t: {timeout_seconds: 0}}}",
            "{name: a, transport: stdio, config: {command: x}, tools: {t: {fallback_tools: [b/c]}}}",
            "{name: a, transport: sse, config: {url: \"http://x\"}}, {name: a, transport: sse, config: {url: \"http://x\"}}",
        ],
        |servers| { problems("config/mcp_servers.yaml", &format!("servers: [{servers}]\n"), []) }
    ));
}

#[test]
fn idempotent_defaults_to_the_server_hints() {
    for (settings, idempotent) in
        [("{}", None), ("{idempotent: true}", Some(true)), ("{idempotent: false}", Some(false))]
    {
        let server = "name: a, transport: stdio, config: {command: x}";
        let text = format!("servers: [{{{server}, tools: {{t: {settings}}}}}]\n");
        let home = home([("config/mcp_servers.yaml", text.as_str())]);
        let server = &home.mcp_servers["a"];
        let settings = server.tools.values().next().unwrap();
        assert_eq!(settings.idempotent, idempotent);
        let json = server.canonical_json();
        assert_eq!(json.contains("idempotent"), idempotent.is_some(), "{json}");
        assert_eq!(McpServerDefinition::from_canonical(&json).unwrap(), **server);
    }
}

#[test]
fn one_invalid_server_keeps_the_others() {
    let text = "servers:\n- {name: a, transport: sse, config: {url: \"http://x\"}}\n- {name: b}\n";
    let agent = "kind: llm\nname: w\nrole: r\nsystem_prompt: s\ntools: [a/x, b/x]\nllm_config: {provider: openai, model: m}\n";
    let home = home([("config/mcp_servers.yaml", text), ("agents/w.yaml", agent)]);
    assert_eq!(home.problems.len(), 2, "{:?}", home.problems);
    assert!(matches!(home.mcp_servers["a"].transport, McpTransport::Sse { .. }));
    assert!(home.agents.contains_key("w"));
}

#[test]
fn retention_goes_by_class_then_status() {
    let text = "by_task: {critical: 30}\nby_status: {failed: 14}\n";
    let policy = home([("config/retention_policy.yaml", text)]).retention_policy;
    for (class, status, days) in [
        (Some("critical"), RetentionStatus::Failed, 30),
        (Some("other"), RetentionStatus::Failed, 14),
        (None, RetentionStatus::Failed, 14),
        (None, RetentionStatus::Completed, 7),
    ] {
        assert_eq!(policy.rule(class, status).days(), days, "{class:?} {status:?}");
    }
    assert_eq!(RetentionPolicy::default().rule(None, RetentionStatus::Cancelled).days(), 7);
    insta::assert_snapshot!(report(
        ["by_status: {complete: 3}", "by_task: {a: -3}", "default_day: 3"],
        |text| problems("config/retention_policy.yaml", text, [])
    ));
}
