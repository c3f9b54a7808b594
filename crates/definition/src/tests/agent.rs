//! Tests of LLM and remote agents, and of common fields.

use super::{home, problems, report};
use crate::{AgentDefinition, AgentKind, LlmProvider, NameLookup};

const SCRIPT: (&str, &str) = ("scripts/greeter.yaml", "default: {reply: hi}\n");

/// A valid agent to which each case adds lines.
const BASE: &str = "\
kind: llm
name: writer
role: Writes
system_prompt: You write.
llm_config: {provider: openai, model: m}
";

fn of_file(text: &str) -> Vec<String> {
    problems("agents/writer.yaml", text, [])
}

/// The problems of [`BASE`] with more lines.
fn of_lines(lines: &str) -> Vec<String> {
    let servers = (
        "config/mcp_servers.yaml",
        "servers:\n  - {name: files, transport: stdio, config: {command: c}}\n",
    );
    let other = ("agents/helper.yaml", "kind: cli\nname: helper\nexecutable_path: x\n");
    problems("agents/writer.yaml", &format!("{BASE}{lines}\n"), [servers, other, SCRIPT])
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
    assert_eq!((llm.max_retries, llm.max_retry_seconds), (None, 600));
    assert_eq!(llm.tool_retries_max(), 3);
    assert_eq!(llm.llm_config.provider, LlmProvider::OpenAi);
    assert_eq!(llm.llm_config.timeout_seconds.get(), 120);
    assert!(llm.tools.is_empty() && llm.sub_agents.is_empty() && llm.approval.is_empty());
}

#[test]
fn rejects_unknown_kinds() {
    insta::assert_snapshot!(report(
        ["name: writer", "kind: lm", "kind: robot", "kind: 7", "kind:"],
        of_file
    ));
}

#[test]
fn reports_all_missing_fields_at_once() {
    insta::assert_snapshot!(report(["kind: llm", "kind: remote\nname: writer"], of_file));
}

#[test]
fn fields_list_their_allowed_values() {
    insta::assert_snapshot!(report(
        [
            "tool: []",
            "colour: red",
            "temperature: 2.5",
            "temperature: -1",
            "temperature: warm",
            "max_iterations: 3.5",
            "max_iterations: 0",
            "max_iterations: 1.5",
            "max_retries: -1",
            "tools: files/read",
            "tools: [read]",
            "tools: [files/a, files/a]",
            "tools: [file/a]",
            "tools: [web/a]",
            "tools: [files/read]\napproval: [files/red]",
            "output_schema: text",
            "budget: {}",
            "tools: [agent/writer]",
            "budget: {max_cost_usd: 0}",
            "budget: {max_tokens: 0}",
            "budget: {max_token: 5}",
            "sub_agents: [helpr]",
            "sub_agents: [Helper]",
            "sub_agents: [writer]",
            "a2a: {base_path: x}",
            "a2a: {transport_protocols: [http-json]}",
            "a2a: {authentication: {type: bearer_token}}",
            "a2a: {authentication: {type: none, required: true}}",
            "a2a: {authentication: {type: bearer_token, token_env: T, token: secret}}",
            "a2a: {rate_limiting: {burst: 3}}",
            "tools: [1, files/a, 2, web/b]",
        ],
        of_lines
    ));
}

/// The problems of a schema that starts in line 7, indented by two spaces.
fn of_schema(schema: &str) -> Vec<String> {
    of_lines(&format!("output_schema:\n  {}", schema.replace('\n', "\n  ")))
}

#[test]
fn an_output_schema_is_a_json_schema() {
    insta::assert_snapshot!(report(
        [
            "type: object\nproperties: {age: {type: integer}}\nrequired: [age]",
            "$ref: \"#/$defs/a\"\n$defs: {a: {$anchor: here}, b: {$ref: \"#here\"}}",
            "$schema: http://json-schema.org/draft-07/schema#\nitems: [{type: string}]",
            "properties: {age: {type: intger}}",
            "type: [text, \"null\"]",
            "required: age",
            "items: 7",
            "properties: {a: {maxLength: -1}}",
            "anyOf: [{pattern: \"(\"}]",
            "anyOf: [{}, {$ref: \"#/$defs/a\"}]",
            "properties:\n  a: {$ref: \"https://example.com/a.json\"}",
            "$schema: my",
            "properties:\n  age: {type: int}\n  name: text\nrequired: yes\ntype: objekt",
        ],
        of_schema
    ));
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
    for number in ["3.0", "1e1"] {
        assert_eq!(of_lines(&format!("max_iterations: {number}")), [""; 0], "{number}");
    }
}

#[test]
fn texts_are_texts() {
    insta::assert_snapshot!(report(["42", "1.10", "true", "[a]", "\"  \"", "", "yes"], |role| {
        of_file(&BASE.replace("Writes", role))
    }));
}

#[test]
fn the_model_must_be_reachable() {
    insta::assert_snapshot!(report(
        [
            "{model: m}",
            "{provider: opnai, model: m}",
            "{provider: anthropic}",
            "{provider: openai_compatible, model: m}",
            "{provider: ollama, model: m, endpoint: localhost}",
            "{provider: scripted}",
            "{provider: scripted, script: greter}",
            "{provider: openai, model: m, script: greeter}",
            "{provider: openai, model: m, api_key: sk-secret}",
            "{provider: openai, model: m, api_key_env: MY-KEY}",
            "{provider: openai, model: m, price: {input_per_million_usd: 1}}",
            "{provider: openai, model: m, price: {input_per_million_usd: -1, output_per_million_usd: 1}}",
            "{provider: openai, model: m, timeout_seconds: 0}",
            "{provider: scripted, script: greeter}",
        ],
        |config| {
            let text = BASE.replace("{provider: openai, model: m}", config);
            problems("agents/writer.yaml", &text, [SCRIPT])
        }
    ));
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
fn literal_secret_in_a_variable_is_refused() {
    let program = "kind: cli\nname: writer\nexecutable_path: wc\n";
    let token = concat!("xai", "-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOP");
    for (variable, value, is_refused) in [
        ("DB_PASSWORD", "hunter2", true),
        ("OPENAI_API_KEY", "abcdef0123456789abcdef", true),
        ("LABEL", token, true),
        ("URL", "postgres://ada:hunter2@db/x", true),
        ("HEADER", "Bearer abcdef123456", true),
        ("DB_PASSWORD", "${MY_PASSWORD}", false),
        ("URL", "postgres://ada:${MY_PASSWORD}@db/x", false),
        ("HEADER", "Bearer ${MY_TOKEN}", false),
        // Words that local servers take for a key, paths and numbers.
        ("OPENAI_API_KEY", "ollama", false),
        ("OPENAI_API_KEY", "not-needed", false),
        ("GOOGLE_APPLICATION_CREDENTIALS", "/home/ada/key-1.json", false),
        ("SSH_KEY", "~/.ssh/id_ed25519", false),
        ("MAX_OUTPUT_TOKENS", "32000", false),
        ("SORT_KEY", "name", false),
        ("DEBUG", "1", false),
    ] {
        let file = format!("{program}envs: {{{variable}: {value:?}}}\n");
        let home = home([("agents/writer.yaml", file.as_str())]);
        let told = format!("{:?}", home.problems);
        assert_eq!(home.problems.len(), usize::from(is_refused), "{variable}: {value}: {told}");
        assert!(!is_refused || told.contains(&format!("${{{variable}}}")), "{told}");
        assert!(!told.contains(value), "{told}");
        let server = format!(
            "servers: [{{name: a, transport: stdio, config: {{command: x, env: {{{variable}: \
             {value:?}}}}}}}]\n"
        );
        let found = problems("config/mcp_servers.yaml", &server, []).join("\n");
        assert_eq!(found.contains("looks like a secret"), is_refused, "{found}");
        assert!(!found.contains(value), "{found}");
    }
}

#[test]
fn literal_secret_in_an_argument_is_refused() {
    let token = concat!("gsk", "_abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOP");
    for (argument, is_refused) in
        [(format!("--key={token}"), true), ("--key={{param.key}}".to_owned(), false)]
    {
        let file =
            format!("kind: cli\nname: writer\nexecutable_path: wc\ncli_args: [{argument:?}]\n");
        let home = home([("agents/writer.yaml", file.as_str())]);
        let told = format!("{:?}", home.problems);
        assert_eq!(told.contains("looks like a secret"), is_refused, "{told}");
        assert!(!told.contains(token), "{told}");
    }
}

#[test]
fn literal_secret_in_the_address_of_a_server_or_in_a_prompt_is_refused() {
    let token = concat!("gsk", "_abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOP");
    for (address, is_refused) in [
        (format!("https://tools.test/mcp?api_key={token}"), true),
        ("https://ada:hunter2hunter@tools.test/mcp".to_owned(), true),
        ("https://tools.test/mcp?api_key=${KEY}".to_owned(), false),
    ] {
        let server = format!(
            "servers: [{{name: a, transport: streamable_http, config: {{url: {address:?}}}}}]\n"
        );
        let found = problems("config/mcp_servers.yaml", &server, []).join("\n");
        assert_eq!(found.contains("looks like a secret"), is_refused, "{address}: {found}");
        assert!(!found.contains("hunter2hunter") && !found.contains(token), "{found}");
    }
    let text = BASE.replacen("system_prompt: ", &format!("system_prompt: Use {token} "), 1);
    let home = home([("agents/writer.yaml", text.as_str())]);
    let told = format!("{:?}", home.problems);
    assert!(told.contains("the prompt contains a secret") && !told.contains(token), "{told}");
}

#[test]
fn pinned_agent_with_a_literal_secret_stays_readable() {
    let file = "kind: cli\nname: writer\nexecutable_path: wc\nenvs: {DB_PASSWORD: \"${X}\"}\n";
    let home = home([("agents/writer.yaml", file)]);
    let NameLookup::Agent(agent) = home.find("writer") else { panic!("{:?}", home.problems) };
    let json = agent.canonical_json().replace("${X}", "hunter2");
    let AgentKind::Cli(agent) = AgentDefinition::from_canonical(&json).unwrap().kind else {
        panic!("{json}")
    };
    assert_eq!(agent.envs.values().collect::<Vec<_>>(), ["hunter2"]);
}

#[test]
fn reports_all_errors_of_a_file_in_order() {
    let text = "\
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
";
    insta::assert_snapshot!(report([text], of_file));
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
    insta::assert_snapshot!(report(
        [
            "card_url: example.com\nauth: {type: bearer}",
            "card_url: https://ada:s3cret@example.com/card\nauth: {type: api_key, token_env: FAR, header_name: Bad Header}",
        ],
        |lines| problems("agents/far.yaml", &format!("kind: remote\nname: far\n{lines}\n"), []),
    ));
}

#[test]
fn pinned_definitions_round_trip_or_fail_with_a_reason() {
    let problems = AgentDefinition::from_canonical("{\"kind\": \"llm\"}").unwrap_err();
    assert_eq!(problems.len(), 4);
    assert_eq!(problems[0].to_string(), "(pinned definition):1:1: missing field \"name\"");
}
