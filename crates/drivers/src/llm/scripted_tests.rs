use jiff::Timestamp;
use polity_engine::driver::{CallSite, ConversationHistory, ModelDriver, NullTextSink, Toolbox};
use polity_engine::pinned::PinnedAgent;
use polity_model::failure::ErrorCategory;
use polity_model::ids::ToolCallId;

use super::super::{EnvSource, LanguageModels};
use super::*;

const SCRIPT: &str = r#"{
    "rules": [
        {"when": "overload", "error": {"status": 429, "retry_after_seconds": 1}, "times": 2},
        {"when": "forbidden", "error": {"status": 403}},
        {"when": "(?i)weather in (\\w+)", "role": "user",
         "tool_calls": [{"tool": "weather/forecast", "arguments": {"city": "$1", "days": [1, "$1"]}}]},
        {"when": "sunny", "role": "tool", "reply": "Take sunglasses.",
         "usage": {"input_tokens": 40, "output_tokens": 6}},
        {"when": "^cost (?P<amount>\\d+)", "reply": "$$${amount} for $input, $unknown and $"},
        {"when": "overload", "reply": "recovered"}
    ],
    "default": {"reply": "Hello, $input.", "delay_ms": 5}
}"#;

fn message(role: &str, content: &str) -> Message {
    let (content, timestamp) = (content.to_owned(), Timestamp::UNIX_EPOCH);
    match role {
        "user" => Message::User { content, timestamp },
        "tool" => {
            let tool_call_id = ToolCallId::from_random_bytes([1; 16]);
            Message::Tool { tool_call_id, content, is_error: false, timestamp }
        }
        other => panic!("{other}"),
    }
}

async fn ask(messages: &[Message], marks: &[u32]) -> Result<ModelReply, ModelFailure> {
    let name = "greeter".parse().unwrap();
    let script = ScriptDefinition::from_canonical(&name, SCRIPT).unwrap();
    let pinned = PinnedAgent::alone(polity_testkit::runtime::pinned().agent, Some(script.into()));
    let request = ModelRequest {
        pinned: &pinned,
        history: ConversationHistory::whole(messages),
        toolbox: &Toolbox::default(),
        marks,
        call_site: CallSite::OUTSIDE,
        progress: &NullTextSink,
    };
    LanguageModels::new(EnvSource::empty()).call(request).await
}

#[tokio::test(start_paused = true)]
async fn default_answer_interpolates_input() {
    let reply = ask(&[message("user", "Ada")], &[]).await.unwrap();
    assert_eq!((reply.content.as_str(), reply.mark), ("Hello, Ada.", None));
}

#[tokio::test(start_paused = true)]
async fn captures_fill_replies_and_arguments() {
    let reply = ask(&[message("user", "Weather in Oslo?")], &[]).await.unwrap();
    assert_eq!(reply.tool_calls[0].tool, "forecast");
    let AskedArguments::Object(arguments) = reply.tool_calls[0].arguments.clone() else { panic!() };
    let arguments = Value::Object(arguments);
    assert_eq!(arguments, serde_json::json!({"city": "Oslo", "days": [1, "Oslo"]}));

    let reply = ask(&[message("user", "cost 12")], &[]).await.unwrap();
    assert_eq!(reply.content, "$12 for cost 12, $unknown and $");
}

#[tokio::test(start_paused = true)]
async fn rule_matches_only_its_role() {
    let messages = [message("user", "Weather in Oslo?"), message("tool", "sunny")];
    let reply = ask(&messages, &[]).await.unwrap();
    assert_eq!(reply.content, "Take sunglasses.");
    assert_eq!((reply.usage.input_tokens, reply.usage.output_tokens), (40, 6));
    let reply = ask(&[message("user", "sunny")], &[]).await.unwrap();
    assert_eq!(reply.content, "Hello, sunny.");
}

#[tokio::test(start_paused = true)]
async fn rule_applies_at_most_times_per_task() {
    let messages = [message("user", "overload")];
    let failure = ask(&messages, &[0]).await.unwrap_err();
    assert_eq!(failure.failure.category, ErrorCategory::Transient);
    assert_eq!((failure.retry_after, failure.mark), (Some(Duration::from_secs(1)), Some(0)));
    let reply = ask(&messages, &[0, 0]).await.unwrap();
    assert_eq!((reply.content.as_str(), reply.mark), ("recovered", Some(5)));
}

#[tokio::test(start_paused = true)]
async fn status_403_is_permanent() {
    let failure = ask(&[message("user", "forbidden")], &[]).await.unwrap_err();
    assert_eq!(failure.failure.category, ErrorCategory::Permanent);
    assert_eq!(failure.failure.message, "the scripted model answered with status 403");
}
