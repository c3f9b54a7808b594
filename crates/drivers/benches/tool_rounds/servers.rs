//! The model and the tool, each in its own process.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write, stdin, stdout};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use polity_definition::McpServerDefinition;
use polity_testkit::mcp::stdio_server;
use polity_testkit::model_server::{ModelCall, ModelServer, ModelTurn, RecordedRequest};
use serde_json::{Value, json};

/// The argument that starts the model server.
pub(crate) const MODEL_SERVER: &str = "__model";

/// The argument that starts the tool server.
pub(crate) const TOOL_SERVER: &str = "__tools";

/// A model in another process. Dropping it ends the process.
pub(crate) struct ModelProcess {
    child: Child,
    pub(crate) url: String,
}

impl ModelProcess {
    pub(crate) fn start() -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .arg(MODEL_SERVER)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut url = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut url).unwrap();
        Self { child, url: url.trim().to_owned() }
    }
}

impl Drop for ModelProcess {
    fn drop(&mut self) {
        // Closing its input ends it.
        drop(self.child.stdin.take());
        self.child.wait().unwrap();
    }
}

/// The name of a model that calls its tool `rounds` times and pauses halfway.
pub(crate) fn model_name(rounds: u32, pause: Duration) -> String {
    format!("rounds-{rounds}-{}", pause.as_millis())
}

/// Runs the model server until its input closes.
pub(crate) fn serve_model() {
    let server = ModelServer::answering(answer);
    println!("{}", server.url());
    stdin().read_to_end(&mut Vec::new()).unwrap();
}

/// Calls the only tool with a new argument each time, then answers "done".
fn answer(request: &RecordedRequest) -> ModelTurn {
    let model = request.body["model"].as_str().unwrap();
    let (rounds, pause_ms) = model.strip_prefix("rounds-").unwrap().split_once('-').unwrap();
    let (rounds, pause_ms): (usize, u64) = (rounds.parse().unwrap(), pause_ms.parse().unwrap());
    let n = request.tool_answers();
    if n >= rounds {
        return ModelTurn::text("done").in_one_piece();
    }
    let messages = request.body["messages"].as_array().unwrap();
    let who = messages.iter().find(|message| message["role"] == "user").unwrap();
    let arguments = json!({"who": who["content"], "n": n}).to_string();
    let pause = if n == rounds / 2 { Duration::from_millis(pause_ms) } else { Duration::ZERO };
    let turn = ModelTurn::calls([ModelCall::new(request.tool_names()[0], &arguments)]);
    turn.in_one_piece().slow(pause, Duration::ZERO)
}

/// The tool server's definition: `notes/note` records its arguments, `notes/total` counts the
/// notes.
pub(crate) fn tool_server() -> McpServerDefinition {
    let this = std::env::current_exe().unwrap();
    stdio_server("notes", this.to_str().unwrap(), &[TOOL_SERVER])
}

/// Runs the tool server until its input closes.
pub(crate) fn serve_tools() {
    let mut calls = 0_u64;
    let mut distinct = BTreeSet::new();
    for line in stdin().lock().lines() {
        let message: Value = serde_json::from_str(&line.unwrap()).unwrap();
        let Some(id) = message.get("id") else { continue };
        let params = &message["params"];
        let result = match message["method"].as_str().unwrap_or_default() {
            "initialize" => json!({"protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}}, "serverInfo": {"name": "notes", "version": "1"}}),
            "ping" => json!({}),
            "tools/list" => tools(),
            "tools/call" if params["name"] == "total" => {
                text(&format!("{calls} calls, {} distinct", distinct.len()))
            }
            "tools/call" => {
                calls += 1;
                let note = params["arguments"].to_string();
                distinct.insert(note.clone());
                text(&format!("noted {note}"))
            }
            _ => {
                let error = json!({"code": -32601, "message": "there is no such method"});
                say(&json!({"jsonrpc": "2.0", "id": id, "error": error}));
                continue;
            }
        };
        say(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
    }
}

fn tools() -> Value {
    let properties = json!({"who": {"type": "string"}, "n": {"type": "integer"}});
    let schema = json!({"type": "object", "properties": properties, "required": ["who", "n"]});
    json!({"tools": [
        {"name": "note", "description": "Notes a number.", "inputSchema": schema},
        {"name": "total", "inputSchema": {"type": "object"}},
    ]})
}

fn text(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}

fn say(message: &Value) {
    let mut out = stdout().lock();
    writeln!(out, "{message}").unwrap();
    out.flush().unwrap();
}
