//! OTLP export of spans to a third-party collector.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use polity_testkit::model_server::{ModelServer, ModelTurn};
use polity_testkit::peers::collector;
use serde_json::json;

use crate::sandbox::{CommandOutput, HomeSandbox, command_output, kill};
use crate::tools::{calls, home};

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

/// The collector Rotel, which logs everything it receives.
struct OtlpCollector {
    process: Child,
    port: u16,
    log: PathBuf,
}

/// A span as the collector prints it.
#[derive(Debug, Default)]
struct ReceivedSpan {
    fields: BTreeMap<String, String>,
    attributes: BTreeMap<String, String>,
}

impl OtlpCollector {
    fn start(sandbox: &HomeSandbox) -> Self {
        let port = free_port();
        let log = sandbox.file("collector.log");
        let process = Command::new(collector())
            .args(["start", "--exporter", "blackhole", "--disable-batching"])
            .args(["--debug-log", "traces", "--debug-log-verbosity", "detailed"])
            .args(["--otlp-http-endpoint", &format!("127.0.0.1:{port}")])
            .args(["--otlp-grpc-endpoint", "127.0.0.1:0", "--pid-file"])
            .arg(sandbox.file("collector.pid"))
            .stdin(Stdio::null())
            .stdout(File::create(&log).unwrap())
            .stderr(File::create(sandbox.file("collector.err")).unwrap())
            .spawn()
            .unwrap();
        let collector = Self { process, port, log };
        sandbox.wait_until("the collector listens", || {
            TcpStream::connect(("127.0.0.1", port)).ok().map(drop)
        });
        collector
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    fn polity(&self, sandbox: &HomeSandbox, args: &[&str]) -> CommandOutput {
        command_output(&sandbox.command(args).env(ENDPOINT, self.url()).output().unwrap())
    }

    /// Waits for the expected number of spans and returns them.
    fn spans(&self, sandbox: &HomeSandbox, count: usize) -> Vec<ReceivedSpan> {
        let mut written = 0;
        sandbox.wait_until(&format!("the collector has {count} spans"), || {
            let before = std::mem::replace(&mut written, fs::metadata(&self.log).unwrap().len());
            let spans = self.received();
            (before == written && spans.len() >= count).then_some(spans)
        })
    }

    fn received(&self) -> Vec<ReceivedSpan> {
        let log = fs::read_to_string(&self.log).unwrap();
        let mut spans = Vec::new();
        for line in log.lines() {
            if line.starts_with("Span #") {
                spans.push(ReceivedSpan::default());
            }
            let Some(span) = spans.last_mut() else { continue };
            if let Some((key, value)) = attribute(line) {
                span.attributes.insert(key, value);
            } else if let Some((field, value)) = line.split_once(':') {
                span.fields.insert(field.trim().to_owned(), value.trim().to_owned());
            }
        }
        spans
    }

    /// Returns the received resource attributes.
    fn resource(&self) -> BTreeMap<String, String> {
        let log = fs::read_to_string(&self.log).unwrap();
        let resource = log.lines().skip_while(|line| !line.starts_with("Resource attributes"));
        resource.skip(1).map_while(attribute).collect()
    }
}

impl Drop for OtlpCollector {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl ReceivedSpan {
    fn name(&self) -> &str {
        &self.fields["Name"]
    }

    fn is_below(&self, parent: &ReceivedSpan) -> bool {
        self.fields["Parent ID"] == parent.fields["ID"]
            && self.fields["Trace ID"] == parent.fields["Trace ID"]
    }

    fn status(&self) -> &str {
        self.fields["Status code"].strip_prefix("STATUS_CODE_").unwrap()
    }

    #[track_caller]
    fn has_attributes(&self, attributes: &[(&str, &str)]) {
        for (name, value) in attributes {
            assert_eq!(self.attributes.get(*name).map(String::as_str), Some(*value), "{self:?}");
        }
    }
}

/// Parses an attribute in the collector's format: `     -> name: Str(value)`.
fn attribute(line: &str) -> Option<(String, String)> {
    let (name, value) = line.trim().strip_prefix("-> ")?.split_once(": ")?;
    Some((name.to_owned(), value.to_owned()))
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn names(spans: &[ReceivedSpan]) -> Vec<&str> {
    spans.iter().map(ReceivedSpan::name).collect()
}

#[test]
fn run_exports_model_and_tool_spans() {
    let sandbox = home("temperature: 0.5\n", "{}", &[]);
    calls(
        &sandbox,
        &json!([{"tool": "kit/echo", "arguments": {"text": "whisper"}}, {"tool": "kit/fail"}]),
    );
    let collector = OtlpCollector::start(&sandbox);
    let mut run = sandbox.command(&["run", "worker", "go"]);
    run.env(ENDPOINT, collector.url());
    run.env("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test");
    let output = command_output(&run.output().unwrap()).exits(0);
    assert!(!output.err.contains("telemetry"), "{output:?}");
    let spans = collector.spans(&sandbox, 5);
    let mut sorted = names(&spans);
    sorted.sort_unstable();
    let (tool, failing) = ("execute_tool kit/echo", "execute_tool kit/fail");
    assert_eq!(sorted, ["chat worker", "chat worker", tool, failing, "invoke_agent worker"]);
    let named = |name| spans.iter().find(|span| span.name() == name).unwrap();
    let root = named("invoke_agent worker");
    let id = sandbox.tasks()[0]["id"].as_str().unwrap().to_owned();
    assert_eq!(root.fields["Trace ID"], id.replace('-', ""));
    assert_eq!((root.fields["Parent ID"].as_str(), root.status()), ("", "UNSET"));
    assert_eq!(root.fields["Kind"], "SPAN_KIND_INTERNAL");
    root.has_attributes(&[
        ("gen_ai.operation.name", "Str(invoke_agent)"),
        ("gen_ai.agent.name", "Str(worker)"),
        ("gen_ai.conversation.id", &format!("Str({id})")),
        ("polity.task.status", "Str(completed)"),
    ]);
    assert!(spans.iter().all(|span| span.name() == root.name() || span.is_below(root)));
    let chat = named("chat worker");
    assert_eq!((chat.fields["Kind"].as_str(), chat.status()), ("SPAN_KIND_CLIENT", "UNSET"));
    chat.has_attributes(&[
        ("gen_ai.operation.name", "Str(chat)"),
        ("gen_ai.provider.name", "Str(scripted)"),
        ("gen_ai.request.model", "Str(worker)"),
        ("gen_ai.request.temperature", "Double(0.5)"),
        ("gen_ai.response.finish_reasons", "Slice(Str(tool_call))"),
    ]);
    assert!(chat.attributes.contains_key("gen_ai.usage.input_tokens"), "{chat:?}");
    let echo = named(tool);
    assert_eq!((echo.fields["Kind"].as_str(), echo.status()), ("SPAN_KIND_INTERNAL", "UNSET"));
    echo.has_attributes(&[
        ("gen_ai.tool.name", "Str(kit/echo)"),
        ("gen_ai.tool.type", "Str(function)"),
    ]);
    assert!(echo.attributes.contains_key("gen_ai.tool.call.id"), "{echo:?}");
    assert_eq!(named(failing).status(), "ERROR");
    named(failing).has_attributes(&[("error.type", "Str(tool_error)")]);
    let resource = collector.resource();
    assert_eq!(resource["service.name"], "Str(polity)");
    assert_eq!(resource["deployment.environment.name"], "Str(test)");
    let log = fs::read_to_string(&collector.log).unwrap();
    assert!(!log.contains("whisper"), "message texts are not exported: {log}");
}

#[test]
fn failed_run_exports_error_spans() {
    let sandbox = HomeSandbox::new();
    let collector = OtlpCollector::start(&sandbox);
    collector.polity(&sandbox, &["run", "greeter", "forbidden"]).exits(1);
    let spans = collector.spans(&sandbox, 2);
    assert_eq!(names(&spans), ["chat greeter", "invoke_agent greeter"]);
    assert_eq!((spans[0].status(), spans[1].status()), ("ERROR", "ERROR"));
    spans[0].has_attributes(&[("error.type", "Str(permanent)")]);
    spans[1].has_attributes(&[
        ("error.type", "Str(model_rejected)"),
        ("polity.task.status", "Str(failed)"),
    ]);
}

#[test]
fn reviewed_task_stays_one_trace() {
    let sandbox = home("approval: [kit/echo]\n", "{}", &[]);
    calls(&sandbox, &json!([{"tool": "kit/echo", "arguments": {"text": "x"}}]));
    let collector = OtlpCollector::start(&sandbox);
    collector.polity(&sandbox, &["run", "worker", "go"]).exits(3);
    collector.polity(&sandbox, &["review", "approve", "last"]).exits(0);
    let spans = collector.spans(&sandbox, 5);
    let (agent, chat) = ("invoke_agent worker", "chat worker");
    assert_eq!(names(&spans), [chat, agent, "execute_tool kit/echo", chat, agent]);
    spans[1].has_attributes(&[("polity.task.status", "Str(awaiting_human)")]);
    spans[4].has_attributes(&[("polity.task.status", "Str(completed)")]);
    assert!(spans[0].is_below(&spans[1]));
    assert!(spans[2].is_below(&spans[4]) && spans[3].is_below(&spans[4]));
    assert_eq!(spans[1].fields["Trace ID"], spans[4].fields["Trace ID"]);
    assert_ne!(spans[1].fields["ID"], spans[4].fields["ID"]);
}

#[test]
fn resumed_task_is_one_span() {
    let sandbox = HomeSandbox::new();
    let collector = OtlpCollector::start(&sandbox);
    let slow = "default: {reply: done, delay_ms: 2000}";
    sandbox.write("scripts/greeter.yaml", slow);
    let mut run = sandbox.command(&["run", "greeter", "Ada"]);
    let mut child = run.env(ENDPOINT, collector.url()).spawn().unwrap();
    sandbox.wait_for_status("running");
    std::thread::sleep(Duration::from_millis(200));
    kill(&mut child);
    collector.polity(&sandbox, &["task", "resume", "last"]).exits(0);
    let spans = collector.spans(&sandbox, 3);
    assert_eq!(names(&spans), ["chat greeter", "chat greeter", "invoke_agent greeter"]);
    spans[0].has_attributes(&[("error.type", "Str(interrupted)")]);
    assert_eq!((spans[1].status(), spans[2].status()), ("UNSET", "UNSET"));
    assert!(spans[0].is_below(&spans[2]) && spans[1].is_below(&spans[2]));
    assert_eq!(spans[0].fields["Parent ID"], spans[1].fields["Parent ID"]);
    let nanoseconds = |span: &ReceivedSpan, field| span.fields[field].parse::<u64>().unwrap();
    assert!(nanoseconds(&spans[2], "Start time") <= nanoseconds(&spans[0], "Start time"));
}

#[test]
fn unreachable_receiver_is_only_a_warning() {
    let sandbox = HomeSandbox::new();
    let down = format!("http://user:secret@127.0.0.1:{}", free_port());
    for (input, code, out) in [("Ada", 0, "Hello, Ada.\n"), ("forbidden", 1, "")] {
        let mut run = sandbox.command(&["run", "greeter", input]);
        let output = command_output(&run.env(ENDPOINT, &down).output().unwrap());
        assert_eq!((output.code, output.out.as_str()), (code, out), "{output:?}");
        let warning = "warning: telemetry: 2 spans were not sent to http://127.0.0.1:";
        assert!(output.err.contains(warning) && !output.err.contains("secret"), "{output:?}");
    }
    let mut run = sandbox.command(&["run", "greeter", "Ada", "--json"]);
    let output = command_output(&run.env(ENDPOINT, &down).output().unwrap());
    assert_eq!((output.code, output.err.as_str()), (0, ""), "{output:?}");
}

#[test]
fn invalid_endpoint_is_reported_at_start() {
    let sandbox = HomeSandbox::new();
    for (variables, warning) in [
        (vec![(ENDPOINT, "localhost:4318")], "OTEL_EXPORTER_OTLP_ENDPOINT is not an address"),
        (
            vec![(ENDPOINT, "http://127.0.0.1:4317"), ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")],
            "OTEL_EXPORTER_OTLP_PROTOCOL asks for grpc",
        ),
    ] {
        let mut run = sandbox.command(&["run", "greeter", "Ada"]);
        let output = command_output(&run.envs(variables).output().unwrap()).prints("Hello, Ada.\n");
        assert!(output.err.starts_with("warning: telemetry: no spans are sent"), "{output:?}");
        assert!(output.err.contains(warning), "{output:?}");
    }
}

/// The receiver accepts the request and never answers.
#[test]
fn hanging_receiver_does_not_delay_the_exit() {
    let sandbox = HomeSandbox::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/otlp", listener.local_addr().unwrap());
    let receiver = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let lines = BufReader::new(&stream).lines().map(Result::unwrap);
        let head: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
        (head, stream)
    });
    let mut run = sandbox.command(&["run", "greeter", "Ada"]);
    run.env(ENDPOINT, &url).env("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20token");
    let output = command_output(&run.output().unwrap());
    output.prints("Hello, Ada.\n").err_has("did not take the last spans within 2 seconds");
    let (head, _stream) = receiver.join().unwrap();
    assert_eq!(head[0], "POST /otlp/v1/traces HTTP/1.1");
    for header in ["authorization: Bearer token", "content-type: application/x-protobuf"] {
        assert!(head.iter().any(|line| line == header), "{header} is not in {head:?}");
    }
}

#[test]
fn rejected_and_cancelled_reviews_end_their_traces() {
    let sandbox = home("approval: [kit/echo]\n", "{}", &[]);
    calls(&sandbox, &json!([{"tool": "kit/echo", "arguments": {"text": "x"}}]));
    let collector = OtlpCollector::start(&sandbox);
    collector.polity(&sandbox, &["run", "worker", "go"]).exits(3);
    collector.polity(&sandbox, &["task", "cancel", "last"]).exits(0);
    let spans = collector.spans(&sandbox, 3);
    let agent = "invoke_agent worker";
    assert_eq!(names(&spans), ["chat worker", agent, agent]);
    spans[2].has_attributes(&[("polity.task.status", "Str(cancelled)")]);
    assert_eq!(spans[1].fields["Trace ID"], spans[2].fields["Trace ID"]);
}

/// A traceparent of the newest task.
fn is_of_last_task(sandbox: &HomeSandbox, traceparent: &str) -> bool {
    let task = sandbox.get(&["task", "show", "last"]);
    let trace = task["id"].as_str().unwrap().replace('-', "");
    let parts: Vec<&str> = traceparent.split('-').collect();
    matches!(parts.as_slice(), ["00", id, span, "01"] if *id == trace && span.len() == 16)
}

#[test]
fn programs_and_models_get_a_trace_context_only_with_telemetry() {
    let model = ModelServer::with([ModelTurn::text("hello"), ModelTurn::text("hello")]);
    let sandbox = HomeSandbox::new();
    sandbox.write_shell_agent("env", "echo \"<$TRACEPARENT>\"", "");
    sandbox.write(
        "agents/talker.yaml",
        &format!(
            "{{name: talker, kind: llm, role: r, system_prompt: p, llm_config: \
             {{provider: openai_compatible, model: m, endpoint: \"{}/v1\"}}}}",
            model.url()
        ),
    );
    sandbox.polity(&["-q", "run", "env", "x"]).prints("<>\n");
    sandbox.polity(&["-q", "run", "talker", "x"]).prints("hello\n");
    // Nobody takes the spans, which is only a warning.
    let endpoint = format!("http://127.0.0.1:{}", free_port());
    let traced = |args: &[&str]| {
        command_output(&sandbox.command(args).env(ENDPOINT, &endpoint).output().unwrap()).exits(0)
    };
    let printed = traced(&["-q", "run", "env", "x"]).out;
    let traceparent = printed.trim().trim_matches(['<', '>']);
    assert!(is_of_last_task(&sandbox, traceparent), "{printed}");
    traced(&["-q", "run", "talker", "x"]);
    let sent: Vec<_> = model
        .requests()
        .iter()
        .map(|request| request.headers.get("traceparent").cloned())
        .collect();
    assert_eq!((sent.len(), &sent[0]), (2, &None));
    assert!(is_of_last_task(&sandbox, sent[1].as_ref().unwrap()), "{sent:?}");
}

#[test]
fn remote_agents_get_a_trace_context() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let sandbox = HomeSandbox::new();
    sandbox.write(
        "agents/far.yaml",
        &format!(
            "{{name: far, kind: remote, card_url: \"http://{}/card.json\"}}",
            server.local_addr().unwrap()
        ),
    );
    let request = std::thread::spawn(move || {
        let (mut stream, _) = server.accept().unwrap();
        let lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
        let lines: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
        stream.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n").unwrap();
        lines
    });
    let endpoint = format!("http://127.0.0.1:{}", free_port());
    let mut run = sandbox.command(&["run", "far", "x"]);
    assert!(!run.env(ENDPOINT, endpoint).output().unwrap().status.success());
    let request = request.join().unwrap();
    let header = request.iter().find_map(|line| line.strip_prefix("traceparent: "));
    assert!(is_of_last_task(&sandbox, header.unwrap()), "{request:?}");
}
