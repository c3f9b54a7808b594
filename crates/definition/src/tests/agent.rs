//! Tests of LLM and remote agents, and of common fields.

use super::{check, check_in, home};
use crate::{AgentDefinition, AgentKind, LlmProvider, NameLookup};

const SCRIPT: (&str, &str) = ("scripts/greeter.yaml", "default: {reply: hi}\n");

/// A valid agent, to which each case adds a line or two.
const BASE: &str = "\
kind: llm
name: writer
role: Writes
system_prompt: You write.
llm_config: {provider: openai, model: m}
";

#[track_caller]
fn check_with(lines: &str, expected: &[&str]) {
    let servers = (
        "config/mcp_servers.yaml",
        "servers:\n  - {name: files, transport: stdio, config: {command: c}}\n",
    );
    let other = ("agents/helper.yaml", "kind: cli\nname: helper\nexecutable_path: x\n");
    check_in("agents/writer.yaml", &format!("{BASE}{lines}"), [servers, other, SCRIPT], expected);
}

#[test]
fn defaults_are_filled_in() {
    let home = home([("agents/writer.yaml", BASE)]);
    let NameLookup::Agent(agent) = home.find("writer") else { panic!("{:?}", home.problems) };
    assert_eq!(agent.role(), Some("Writes"));
    let AgentKind::Llm(llm) = &agent.kind else { panic!("{agent:?}") };
    assert_eq!(llm.identity.name.as_str(), "writer");
    assert_eq!(llm.max_iterations.get(), 10);
    assert_eq!(llm.temperature.get().to_string(), "0.7");
    assert_eq!(llm.max_retries, 3);
    assert_eq!(llm.llm_config.provider, LlmProvider::OpenAi);
    assert_eq!(llm.llm_config.timeout_seconds.get(), 120);
    assert!(llm.tools.is_empty() && llm.sub_agents.is_empty() && llm.approval.is_empty());
}

#[test]
fn rejects_unknown_kinds() {
    for (text, expected) in [
        ("name: writer\n", "1:1: missing field \"kind\"; allowed: llm, cli, remote"),
        ("kind: lm\n", "1:7: kind: unknown value \"lm\", did you mean \"llm\"?"),
        ("kind: robot\n", "1:7: kind: unknown value \"robot\"; allowed: llm, cli, remote"),
        ("kind: 7\n", "1:7: kind must be one of llm, cli, remote, found the number 7"),
        ("kind:\n", "1:1: kind must be one of llm, cli, remote, found nothing"),
    ] {
        check("agents/writer.yaml", text, &[expected]);
    }
}

#[test]
fn reports_all_missing_fields_at_once() {
    check(
        "agents/writer.yaml",
        "kind: llm\n",
        &[
            "1:1: missing field \"name\"",
            "1:1: missing field \"role\"",
            "1:1: missing field \"system_prompt\"",
            "1:1: missing field \"llm_config\"",
        ],
    );
    check(
        "agents/writer.yaml",
        "kind: remote\nname: writer\n",
        &["1:1: missing field \"card_url\""],
    );
}

#[test]
fn fields_list_their_allowed_values() {
    for (lines, expected) in [
        ("tool: []\n", "6:1: unknown field \"tool\", did you mean \"tools\"?"),
        (
            "colour: red\n",
            "6:1: unknown field \"colour\"; allowed: kind, name, role, system_prompt, tools, \
             max_iterations, temperature, llm_config, sub_agents, approval, output_schema, budget, \
             max_retries, a2a",
        ),
        ("temperature: 2.5\n", "6:14: temperature must be from 0 to 2, found 2.5"),
        ("temperature: -1\n", "6:14: temperature must be from 0 to 2, found -1"),
        ("temperature: warm\n", "6:14: temperature must be a number, found the text \"warm\""),
        (
            "max_iterations: 3.5\n",
            "6:17: max_iterations must be a whole number from 1 to 4294967295, found the number 3.5",
        ),
        (
            "max_iterations: 0\n",
            "6:17: max_iterations must be a whole number from 1 to 4294967295, found the number 0",
        ),
        (
            "max_iterations: 1.5\n",
            "6:17: max_iterations must be a whole number from 1 to 4294967295, found the number 1.5",
        ),
        (
            "max_retries: -1\n",
            "6:14: max_retries must be a whole number from 0 to 4294967295, found the number -1",
        ),
        ("tools: files/read\n", "6:8: tools must be a list, found the text \"files/read\""),
        ("tools: [read]\n", "6:9: tools[0]: \"read\" is not a tool: write server/tool or server/*"),
        ("tools: [files/a, files/a]\n", "6:18: tools: \"files/a\" is listed twice"),
        (
            "tools: [file/a]\n",
            "6:9: tools[0]: there is no MCP server \"file\", did you mean \"files\"?",
        ),
        ("tools: [web/a]\n", "6:9: tools[0]: there is no MCP server \"web\"; allowed: files"),
        (
            "tools: [files/read]\napproval: [files/red]\n",
            "7:12: approval: \"files/red\" is none of the agent's tools, did you mean \"files/read\"?",
        ),
        ("output_schema: text\n", "6:16: output_schema must be a mapping, found the text \"text\""),
        ("budget: {}\n", "6:9: budget limits nothing: give max_cost_usd or max_tokens"),
        (
            "tools: [agent/writer]\n",
            "6:9: tools: \"agent/writer\" is no tool; name agents in sub_agents",
        ),
        ("budget: {max_cost_usd: 0}\n", "6:24: budget.max_cost_usd must be above 0, found 0"),
        (
            "budget: {max_tokens: 0}\n",
            "6:22: budget.max_tokens must be a whole number above 0, found the number 0",
        ),
        (
            "budget: {max_token: 5}\n",
            "6:10: unknown field \"max_token\" in budget, did you mean \"max_tokens\"?",
        ),
        (
            "sub_agents: [helpr]\n",
            "6:14: sub_agents[0]: there is no agent \"helpr\", did you mean \"helper\"?",
        ),
        (
            "sub_agents: [Helper]\n",
            "6:14: sub_agents[0]: \"Helper\" is not a valid name: a name starts with a lower-case \
             letter and holds only lower-case letters, digits and underscores (^[a-z][a-z0-9_]*$), \
             100 characters at most",
        ),
        ("sub_agents: [writer]\n", "6:14: agents delegate in a cycle: writer -> writer"),
        ("a2a: {base_path: x}\n", "6:18: a2a.base_path: \"x\" must start with \"/\""),
        (
            "a2a: {transport_protocols: [http-json]}\n",
            "6:29: a2a.transport_protocols[0]: unknown value \"http-json\", did you mean \
             \"http_json\"?",
        ),
        (
            "a2a: {authentication: {type: bearer_token}}\n",
            "6:23: missing field \"a2a.authentication.token_env\", which is needed unless the type \
             is none",
        ),
        (
            "a2a: {authentication: {type: none, required: true}}\n",
            "6:46: a2a.authentication.required is true, but the type is none: nothing could be sent",
        ),
        (
            "a2a: {authentication: {type: bearer_token, token_env: T, token: secret}}\n",
            "6:58: \"token\" in a2a.authentication may not be written in a file: put the secret \
             into an environment variable and its name into \"token_env\"",
        ),
        (
            "a2a: {rate_limiting: {burst: 3}}\n",
            "6:22: missing field \"a2a.rate_limiting.requests_per_minute\"",
        ),
    ] {
        check_with(lines, &[expected]);
    }
}

/// Problems of a schema, which begins in line 7 and is two spaces in.
#[track_caller]
fn check_schema(schema: &str, expected: &[&str]) {
    let lines = schema.lines().fold(String::new(), |lines, line| format!("{lines}  {line}\n"));
    check_with(&format!("output_schema:\n{lines}"), expected);
}

#[test]
fn an_output_schema_is_a_json_schema() {
    check_schema("type: object\nproperties: {age: {type: integer}}\nrequired: [age]", &[]);
    check_schema("$ref: \"#/$defs/a\"\n$defs: {a: {$anchor: here}, b: {$ref: \"#here\"}}", &[]);
    check_schema("$schema: http://json-schema.org/draft-07/schema#\nitems: [{type: string}]", &[]);
    for (schema, expected) in [
        (
            "properties: {age: {type: intger}}",
            "7:28: output_schema.properties.age.type: unknown value \"intger\", did you mean \
             \"integer\"?",
        ),
        (
            "type: [text, \"null\"]",
            "7:10: output_schema.type[0]: unknown value \"text\"; allowed: array, boolean, integer, \
             null, number, object, string",
        ),
        ("required: age", "7:13: output_schema.required must be a list, found the text \"age\""),
        (
            "items: 7",
            "7:10: output_schema.items must be a mapping, true or false, found the number 7",
        ),
        (
            "properties: {a: {maxLength: -1}}",
            "7:31: output_schema.properties.a.maxLength: -1 is less than the minimum of 0",
        ),
        (
            "anyOf: [{pattern: \"(\"}]",
            "7:21: output_schema.anyOf[0].pattern: \"(\" is not a regular expression",
        ),
        (
            "anyOf: [{}, {$ref: \"#/$defs/a\"}]",
            "7:22: output_schema.anyOf[1].$ref: \"#/$defs/a\" leads nowhere",
        ),
        (
            "properties:\n  a: {$ref: \"https://example.com/a.json\"}",
            "8:15: output_schema.properties.a.$ref: \"https://example.com/a.json\" is another \
             document, and no other is read: put what it says under $defs",
        ),
        (
            "$schema: my",
            "7:12: output_schema.$schema: \"my\" is no known version of JSON Schema; allowed: \
             https://json-schema.org/draft/2020-12/schema, \
             https://json-schema.org/draft/2019-09/schema, \
             http://json-schema.org/draft-07/schema#, http://json-schema.org/draft-06/schema#, \
             http://json-schema.org/draft-04/schema#",
        ),
    ] {
        check_schema(schema, &[expected]);
    }
    check_schema(
        "properties:\n  age: {type: int}\n  name: text\nrequired: yes\ntype: objekt",
        &[
            "8:17: output_schema.properties.age.type: unknown value \"int\"; allowed: array, \
             boolean, integer, null, number, object, string",
            "9:11: output_schema.properties.name must be a mapping, true or false, found the text \
             \"text\"",
            "10:13: output_schema.required must be a list, found the text \"yes\"",
            "11:9: output_schema.type: unknown value \"objekt\", did you mean \"object\"?",
        ],
    );
}

#[test]
fn the_instruction_describes_the_schema() {
    let instruction = |lines: &str| {
        let home = home([("agents/writer.yaml", format!("{BASE}{lines}").as_str())]);
        let NameLookup::Agent(agent) = home.find("writer") else { panic!("{:?}", home.problems) };
        let AgentKind::Llm(llm) = &agent.kind else { panic!("{agent:?}") };
        llm.instruction().into_owned()
    };
    assert_eq!(instruction(""), "You write.");
    assert_eq!(
        instruction("output_schema: {type: array, items: {type: string}}\n"),
        "You write.\n\nYour final answer must be JSON that fits this JSON Schema, and nothing else: \
         no other words, no Markdown.\n{\"items\":{\"type\":\"string\"},\"type\":\"array\"}"
    );
}

#[test]
fn a_whole_number_may_be_written_with_a_point() {
    check("agents/writer.yaml", &format!("{BASE}max_iterations: 3.0\n"), &[]);
    check("agents/writer.yaml", &format!("{BASE}max_iterations: 1e1\n"), &[]);
}

#[test]
fn texts_are_texts() {
    for (value, expected) in [
        ("42", "3:7: role must be a text, found the number 42; put it in quotes"),
        ("1.10", "3:7: role must be a text, found the number 1.1; put it in quotes"),
        ("true", "3:7: role must be a text, found true; put it in quotes"),
        ("[a]", "3:7: role must be a text, found a list"),
        ("\"  \"", "3:7: role must not be empty"),
        ("", "3:1: missing field \"role\""),
    ] {
        let text = BASE.replace("Writes", value);
        check("agents/writer.yaml", &text, &[expected]);
    }
    check("agents/writer.yaml", &BASE.replace("Writes", "yes"), &[]);
}

#[test]
fn the_model_must_be_reachable() {
    for (config, expected) in [
        ("{model: m}", "5:13: missing field \"llm_config.provider\""),
        (
            "{provider: opnai, model: m}",
            "5:24: llm_config.provider: unknown value \"opnai\", did you mean \"openai\"?",
        ),
        (
            "{provider: anthropic}",
            "5:13: missing field \"llm_config.model\", which is needed when the provider is anthropic",
        ),
        (
            "{provider: openai_compatible, model: m}",
            "5:13: missing field \"llm_config.endpoint\", which is needed when the provider is \
             openai_compatible",
        ),
        (
            "{provider: ollama, model: m, endpoint: localhost}",
            "5:52: llm_config.endpoint: \"localhost\" is not an address that starts with http:// or \
             https://",
        ),
        (
            "{provider: scripted}",
            "5:13: missing field \"llm_config.script\", which is needed when the provider is scripted",
        ),
        (
            "{provider: scripted, script: greter}",
            "5:42: llm_config.script: there is no script \"greter\" in scripts/, did you mean \
             \"greeter\"?",
        ),
        (
            "{provider: openai, model: m, script: greeter}",
            "5:50: \"llm_config.script\" has a meaning only when the provider is scripted",
        ),
        (
            "{provider: openai, model: m, api_key: sk-secret}",
            "5:42: \"api_key\" in llm_config may not be written in a file: put the secret into an \
             environment variable and its name into \"api_key_env\"",
        ),
        (
            "{provider: openai, model: m, api_key_env: MY-KEY}",
            "5:55: llm_config.api_key_env must be the name of an environment variable: letters, \
             digits and underscores, not starting with a digit",
        ),
        (
            "{provider: openai, model: m, price: {input_per_million_usd: 1}}",
            "5:49: missing field \"llm_config.price.output_per_million_usd\"",
        ),
        (
            "{provider: openai, model: m, price: {input_per_million_usd: -1, output_per_million_usd: 1}}",
            "5:73: llm_config.price.input_per_million_usd must be 0 or above, found -1",
        ),
        (
            "{provider: openai, model: m, timeout_seconds: 0}",
            "5:59: llm_config.timeout_seconds must be a whole number above 0, found the number 0",
        ),
    ] {
        let text = BASE.replace("{provider: openai, model: m}", config);
        check_in("agents/writer.yaml", &text, [SCRIPT], &[expected]);
    }
    let scripted =
        BASE.replace("{provider: openai, model: m}", "{provider: scripted, script: greeter}");
    check_in("agents/writer.yaml", &scripted, [SCRIPT], &[]);
}

#[test]
fn a_secret_is_never_repeated() {
    for field in ["api_key", "api_key_env"] {
        let text = BASE.replace("model: m", &format!("model: m, {field}: sk-secret"));
        let home = home([("agents/writer.yaml", text.as_str())]);
        assert_eq!(home.problems.len(), 1);
        assert!(!format!("{:?}", home.problems).contains("sk-secret"));
    }
}

#[test]
fn reports_all_errors_of_a_file_in_order() {
    check(
        "agents/writer.yaml",
        "\
kind: llm
name: Writer
role: 42
tools: [files, 7, files/a, web/b]
temperature: hot
max_iterations: 0
llm_config:
  provider: opnai
  modle: m
  price: {input_per_million_usd: x, output_per_million_usd: -1}
aproval: []
",
        &[
            "1:1: missing field \"system_prompt\"",
            "2:7: name: \"Writer\" is not a valid name: a name starts with a lower-case letter and \
             holds only lower-case letters, digits and underscores (^[a-z][a-z0-9_]*$), 100 \
             characters at most",
            "3:7: role must be a text, found the number 42; put it in quotes",
            "4:9: tools[0]: \"files\" is not a tool: write server/tool or server/*",
            "4:16: tools[1] must be a text, found the number 7; put it in quotes",
            "4:19: tools[2]: there is no MCP server \"files\", config/mcp_servers.yaml lists none",
            "4:28: tools[3]: there is no MCP server \"web\", config/mcp_servers.yaml lists none",
            "5:14: temperature must be a number, found the text \"hot\"",
            "6:17: max_iterations must be a whole number from 1 to 4294967295, found the number 0",
            "8:13: llm_config.provider: unknown value \"opnai\", did you mean \"openai\"?",
            "9:3: unknown field \"modle\" in llm_config, did you mean \"model\"?",
            "10:34: llm_config.price.input_per_million_usd must be a number, found the text \"x\"",
            "10:61: llm_config.price.output_per_million_usd must be 0 or above, found -1",
            "11:1: unknown field \"aproval\", did you mean \"approval\"?",
        ],
    );
}

#[test]
fn positions_count_undecodable_items() {
    check_with(
        "tools: [1, files/a, 2, web/b]\n",
        &[
            "6:9: tools[0] must be a text, found the number 1; put it in quotes",
            "6:21: tools[2] must be a text, found the number 2; put it in quotes",
            "6:24: tools[3]: there is no MCP server \"web\"; allowed: files",
        ],
    );
}

#[test]
fn a_remote_agent_has_a_card() {
    let text = "kind: remote\nname: far\ncard_url: https://example.com/card.json\nauth: {type: api_key, token_env: FAR}\n";
    let home = home([("agents/far.yaml", text)]);
    let NameLookup::Agent(agent) = home.find("far") else { panic!("{:?}", home.problems) };
    let AgentKind::Remote(remote) = &agent.kind else { panic!("{agent:?}") };
    let auth = remote.auth.as_ref().unwrap();
    assert_eq!(auth.header_name.as_ref().unwrap().as_str(), "X-API-Key");
    assert!(auth.required);
    check(
        "agents/far.yaml",
        "kind: remote\nname: far\ncard_url: example.com\nauth: {type: bearer}\n",
        &[
            "3:11: card_url: \"example.com\" is not an address that starts with http:// or https://",
            "4:14: auth.type: unknown value \"bearer\", did you mean \"bearer_token\"?",
        ],
    );
    check(
        "agents/far.yaml",
        "kind: remote\nname: far\ncard_url: https://ada:s3cret@example.com/card\n\
         auth: {type: api_key, token_env: FAR, header_name: Bad Header}\n",
        &[
            "3:11: card_url: https://example.com/card has a name or a password in it, which everyone \
             sees: use auth",
            "4:52: auth.header_name: \"Bad Header\" is no name of an HTTP header",
        ],
    );
}

#[test]
fn pinned_definitions_round_trip_or_fail_with_a_reason() {
    let problems = AgentDefinition::from_canonical("{\"kind\": \"llm\"}").unwrap_err();
    assert_eq!(problems.len(), 4);
    assert_eq!(problems[0].to_string(), "(pinned definition):1:1: missing field \"name\"");
}
