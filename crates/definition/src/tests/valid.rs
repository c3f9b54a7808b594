//! A valid home that uses every field.

/// The path and text of each file.
pub(super) const FILES: &[(&str, &str)] = &[
    (
        "polity.yaml",
        r#"
store: {durability: relaxed}
server: {listen: "127.0.0.1:7070", public_url: null, default_agent: writer, auth: {tokens_file: tokens}, rate_limits: {per_token: {requests_per_minute: 600, burst: 50}, per_agent: {requests_per_minute: 60}}, tls: {certificate: tls/cert.pem, key: tls/key.pem}}
limits: {concurrent_tasks: 64, input_bytes: 10485760, output_bytes: 104857600, sub_agent_depth: 4}
redaction: {emails: true, patterns: ["[0-9]{16}"]}
notify: {on_review: {command: [notify-send, Polity], webhook: "https://example.com/${HOOK}"}, webhooks: [{url: "https://example.com/${HOOK}", events: [task_ended, review_waits], secret_env: HOOK_SECRET, allow_private: [intranet]}]}
"#,
    ),
    (
        "config/mcp_servers.yaml",
        r#"
servers:
  - name: files
    transport: stdio
    config: {command: mcp-server-filesystem, args: ["./docs"], env: {TOKEN: "${TOKEN}"}}
    tools: {read_file: {timeout_seconds: 300, fallback_tools: [web/fetch], idempotent: true}}
  - {name: web, transport: sse, config: {url: "http://localhost:1/sse"}}
  - {name: time, transport: streamable_http, config: {url: "https://example.com/mcp"}}
"#,
    ),
    (
        "config/retention_policy.yaml",
        "default_days: 7\nby_task: {critical: 30, debug: 3}\nby_status: {completed: 7, failed: 14}\n",
    ),
    (
        "agents/writer.yaml",
        r#"
kind: llm
name: writer
role: Writes things.
system_prompt: |
  You write.
  "Well."
tools: ["files/*", time/now]
max_iterations: 20
temperature: 1
llm_config:
  provider: openai_compatible
  endpoint: http://localhost:8080/v1
  model: small
  api_key_env: MY_KEY
  timeout_seconds: 30
  price: {input_per_million_usd: 0.15, output_per_million_usd: 6e-1}
sub_agents: [coder, far]
approval: [files/write_file]
output_schema: {type: object, properties: {z: {const: null}, a: {type: string}}}
budget: {max_cost_usd: 1.5, max_tokens: 100000}
max_retries: 0
max_retry_seconds: 60
a2a:
  base_path: /writers/writer
  transport_protocols: [grpc]
  authentication: {type: api_key, token_env: A2A_TOKEN, header_name: X-Key, required: false}
  rate_limiting: {requests_per_minute: 60, burst: 10}
  capabilities:
    supported_methods: [message/send]
    max_input_size: 1000
    max_output_size: 2000
    streaming_support: false
    concurrent_execution: false
    supported_content_types: [text/plain, application/json]
"#,
    ),
    (
        "agents/greeter.yml",
        "kind: llm\nname: greeter\nrole: Greets\nsystem_prompt: Hi\nllm_config: {provider: scripted, script: greeter}\n",
    ),
    (
        "agents/coder.yaml",
        r#"
kind: cli
name: coder
role: Codes
agent_type: file-input
executable_path: /usr/bin/coder
cli_args: {--model: "{{model}}", --verbose: true, --limit: 5, --size: "{{param.size}}", --resume: "{{session_id}}"}
model: big
envs: {HOME_DIR: "${HOME}", DEBUG: "1"}
env_allow: [PATH]
env_unset: [SECRET]
working_directory: ./work
mode: interactive
input_pattern: file
output_pattern: file
input_file_template: "{{ input }}"
output_file_template: "{{workdir}}/{{{{out}}.json"
parser:
  format: stream-json
  strip_ansi: true
  answer: {at: /result, when: {/type: result, /is_error: false, /turns: 1}}
  join_answers: true
  shown: /message/content
  error: {at: /error}
  status: /is_error
  terminal: {at: /type, when: {/type: result}}
  session_id: /session_id
  input_tokens: /usage/input
  output_tokens: /usage/output
  cost: /cost
access_type: read-only
max_concurrent_executions: 3
timeout: 60
start_timeout: 5
idle_timeout: 20
session_timeout: 3600
keep_alive: false
enabled: false
max_retries: 1
permission_policy: allow
lock_key: repository
workspace: worktree
idempotent: true
deduplicate_seconds: 10
queue_full: refuse
queue_limit: 0
queue_timeout_seconds: 60
grace_seconds: 0
stop_signal: SIGINT
success_exit_codes: [0, 3]
empty_output: accept
error_rules: [{pattern: "rate limit|overloaded", category: transient, stream: both}]
resource_limits: {memory_mb: 512, cpu_seconds: 60, processes: 20, output_bytes: 1000000}
artifacts: ["*.md"]
"#,
    ),
    ("agents/claude.yaml", "kind: cli\nname: claude\npreset: claude\ncli_args: []\n"),
    (
        "agents/far.json",
        "{\"kind\": \"remote\", \"name\": \"far\", \"card_url\": \"https://example.com/card\",\n\t\"auth\": {\"type\": \"bearer_token\", \"token_env\": \"FAR\"}}",
    ),
    (
        "workflows/newsroom.yaml",
        r#"
name: newsroom
nodes:
  zeta: {type: agent, agent: writer, sub_agents: [greeter], input: "{{ input }}", inputs: [topic], outputs: [draft]}
  route: {type: condition, expression: "size(last) > 10"}
  ask: {type: human, question: "Good?\n{{ last }}", deadline_seconds: 60, default_action: reject}
  fan: {type: parallel, branches: [beta, alpha], join: first}
  beta: {type: tool, tool: files/read_file, arguments: {path: "{{ last }}", deep: [1, {x: null}]}}
  alpha: {type: workflow, workflow: simple, input: x, idempotent: true, max_retries: 2, timeout_seconds: 9}
edges:
  - {from: zeta, to: route}
  - {from: route, to: {"true": ask, "false": fan, default: ask}}
  - {from: ask, to: zeta, condition: "routing_key == 'reject'", max_loops: 3}
entry_point: zeta
checkpoints: [fan]
max_iterations: 9
"#,
    ),
    (
        "workflows/simple.yaml",
        "name: simple\npatterns: [react, reflection]\nrounds: 2\n\
         agents: {agent: writer, generator: writer, critic: greeter}\n",
    ),
    (
        "schedules/nightly.yaml",
        r#"
name: nightly
workflow: newsroom
cron_expression: "30 2 * * MON-FRI"
time_zone: Europe/Berlin
enabled: false
input_parameters: {input: news, count: 3, nested: {a: [1.5, null]}}
overlap: queue_one
catch_up: last
catch_up_window_seconds: 3600
jitter_seconds: 60
pause_after_failures: 5
dst: {missing: skip, repeated: both}
"#,
    ),
    ("schedules/hourly.yaml", "name: hourly\nagent: greeter\ncron_expression: \"@hourly\"\n"),
    (
        "scripts/greeter.yaml",
        r#"
rules:
  - when: "(?i)weather in (\\w+)"
    role: user
    tool_calls: [{tool: weather/forecast, arguments: {city: "$1"}}]
  - when: "sunny"
    role: tool
    reply: "Take sunglasses."
    usage: {input_tokens: 40, output_tokens: 6}
    delay_ms: 5
  - when: "overload"
    error: {status: 429, retry_after_seconds: 1}
    times: 2
default: {reply: "Hello, $input."}
"#,
    ),
];
