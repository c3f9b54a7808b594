//! Settings, MCP servers and retention.

use super::{check, home};
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
    for (text, expected) in [
        ("sever: {}\n", "1:1: unknown field \"sever\", did you mean \"server\"?"),
        (
            "store: {durability: ful}\n",
            "1:21: store.durability: unknown value \"ful\", did you mean \"full\"?",
        ),
        (
            "server: {listen: localhost}\n",
            "1:18: server.listen: \"localhost\" is not an IP address and a port such as \
             127.0.0.1:7070",
        ),
        (
            "server: {default_agent: writer}\n",
            "1:25: server.default_agent: there is no agent or workflow \"writer\"",
        ),
        (
            "limits: {concurrent_tasks: 0}\n",
            "1:28: limits.concurrent_tasks must be a whole number from 1 to 4294967295, found the \
             number 0",
        ),
        (
            "redaction: {patterns: [\"a\", \"[\"]}\n",
            "1:29: redaction.patterns[1]: not a regular expression: unclosed character class",
        ),
        (
            "notify: {on_review: {webhok: x}}\n",
            "1:22: unknown field \"webhok\" in notify.on_review, did you mean \"webhook\"?",
        ),
        (
            "notify: {on_review: {webhook: example.com}}\n",
            "1:31: notify.on_review.webhook must be an address that starts with http:// or \
             https://, or with ${NAME} for what an environment variable holds",
        ),
        (
            "notify: {on_review: {command: []}}\n",
            "1:31: notify.on_review.command must begin with the name of a program",
        ),
        (
            "notify: {on_review: {command: \"tell 'me\"}}\n",
            "1:31: notify.on_review.command: has a quote that is not closed: '",
        ),
        (
            "notify: {on_review: {command: 3}}\n",
            "1:31: notify.on_review.command must be a text, or a list of texts: a program and its \
             arguments, found the number 3",
        ),
    ] {
        check("polity.yaml", text, &[expected]);
    }
}

#[test]
fn servers_list_their_allowed_values() {
    for (server, expected) in [
        ("{transport: stdio, config: {command: x}}", "1:11: missing field \"servers[0].name\""),
        ("{name: a, config: {command: x}}", "1:11: missing field \"servers[0].transport\""),
        ("{name: a, transport: stdio}", "1:11: missing field \"servers[0].config\""),
        (
            "{name: a, transport: stdo, config: {command: x}}",
            "1:32: servers[0].transport: unknown value \"stdo\", did you mean \"stdio\"?",
        ),
        (
            "{name: a, transport: stdio, config: {url: \"http://x\"}}",
            "1:47: missing field \"servers[0].config.command\", which is needed with the transport \
             stdio|1:53: \"servers[0].config.url\" has a meaning only with the transports sse and \
             streamable_http",
        ),
        (
            "{name: a, transport: sse, config: {command: x}}",
            "1:45: missing field \"servers[0].config.url\", which is needed with the transport \
             sse|1:55: \"servers[0].config.command\" has a meaning only with the transport stdio",
        ),
        (
            "{name: a, transport: stdio, config: {command: x}, tools: {\"b/c\": {}}}",
            "1:76: \"b/c\" is not the name of a tool within its server",
        ),
        (
            "{name: a, transport: stdio, config: {command: x}, tools: {t: {timeout_seconds: 0}}}",
            "1:90: servers[0].tools.t.timeout_seconds must be a whole number above 0, found the \
             number 0",
        ),
        (
            "{name: a, transport: stdio, config: {command: x}, tools: {t: {fallback_tools: [b/c]}}}",
            "1:90: servers[0].tools.t.fallback_tools[0]: there is no MCP server \"b\"; allowed: a",
        ),
    ] {
        let text = format!("servers: [{server}]\n");
        let expected: Vec<&str> = expected.split('|').collect();
        check("config/mcp_servers.yaml", &text, &expected);
    }
    let twice = "servers:\n- {name: a, transport: sse, config: {url: \"http://x\"}}\n- {name: a, transport: sse, config: {url: \"http://x\"}}\n";
    check("config/mcp_servers.yaml", twice, &["3:10: two servers have the name \"a\""]);
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
    for (text, expected) in [
        (
            "by_status: {complete: 3}\n",
            "1:13: by_status.complete: unknown value \"complete\", did you mean \"completed\"?",
        ),
        (
            "by_task: {a: -3}\n",
            "1:14: by_task.a must be a whole number from 0 to 4294967295, found the number -3",
        ),
        ("default_day: 3\n", "1:1: unknown field \"default_day\", did you mean \"default_days\"?"),
    ] {
        check("config/retention_policy.yaml", text, &[expected]);
    }
}
