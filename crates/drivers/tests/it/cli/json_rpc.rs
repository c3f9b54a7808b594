//! Agents that speak JSON-RPC.

use polity_model::failure::ErrorCategory;
use serde_json::json;

use super::fixture::{CliFixture, answer, failure, python};

/// Logs, answers one request, and waits for the end of its input.
const AGENT: &str = r#"
import json, sys
print("starting up")
request = json.loads(sys.stdin.readline())
print(json.dumps({"jsonrpc": "2.0", "method": "progress", "params": {}}))
result = {"output": request["method"] + ": " + request["params"]["input"]}
print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
sys.stdin.read()
open("left", "w").close()
"#;

#[tokio::test]
async fn agent_answers_a_request() {
    let fixture = CliFixture::new();
    let more = json!({"agent_type": "json-rpc"});
    assert_eq!(answer(&fixture.run(&python(AGENT, &more), "hi").await), "execute: hi");
    assert!(fixture.path("left").exists(), "it exits after its stdin closes");

    let stubborn = AGENT.replace("sys.stdin.read()", "import time; time.sleep(1000)");
    assert_eq!(answer(&fixture.run(&python(&stubborn, &more), "hi").await), "execute: hi");
}

#[tokio::test]
async fn invalid_responses_are_failures() {
    let fixture = CliFixture::new();
    for (script, expected) in [
        ("print('{oops', flush=True); import time; time.sleep(1000)", "{oops"),
        ("import sys; sys.stdin.readline(); print('nothing')", "without a response"),
        (
            r#"print('{"jsonrpc": "2.0", "id": 1, "error": {"code": -1, "message": "no way"}}')"#,
            "no way",
        ),
    ] {
        let outcome = fixture.run(&python(script, &json!({"agent_type": "json-rpc"})), "hi").await;
        let failure = failure(&outcome);
        assert_eq!(failure.category, ErrorCategory::AgentError, "{failure}");
        assert!(failure.message.contains(expected), "{failure}");
    }
}
