//! Agents with models over HTTP.

use polity_testkit::mcp::fixture;
use polity_testkit::model_server::{
    ModelCall, ModelEnding, ModelFault, ModelServer, ModelTurn, UsageForm, WireFormat,
};
use serde_json::json;

use crate::sandbox::{CommandOutput, HomeSandbox, command_output};

/// A variable that the environment does not set.
const KEY_VARIABLE: &str = "POLITY_TEST_MODEL_KEY";

const KEY: &str = "sk-test-0123456789";

fn home(provider: &str, endpoint: &str) -> HomeSandbox {
    let sandbox = HomeSandbox::bare();
    let agent = format!(
        "kind: llm\nname: caller\nrole: Calls\nsystem_prompt: Answer.\n\
         llm_config: {{provider: {provider}, model: m-1, endpoint: \"{endpoint}\", \
         api_key_env: {KEY_VARIABLE}}}\n"
    );
    sandbox.write("agents/caller.yaml", &agent);
    sandbox
}

fn run(sandbox: &HomeSandbox) -> CommandOutput {
    run_with(sandbox, &[])
}

fn run_with(sandbox: &HomeSandbox, options: &[&str]) -> CommandOutput {
    let mut command = sandbox.command(&[&["run", "caller", "Hello"], options].concat());
    command_output(&command.env(KEY_VARIABLE, KEY).output().unwrap())
}

#[test]
fn every_provider_retries_and_answers() {
    for provider in ["openai", "openai_compatible", "ollama", "anthropic", "gemini"] {
        let server =
            ModelServer::with([ModelTurn::retry_after(429, "0"), ModelTurn::text("From afar.")]);
        let answered = run(&home(provider, &server.url()));
        let expected = (0, "From afar.\n");
        assert_eq!((answered.code, answered.out.as_str()), expected, "{provider}: {answered:?}");
        let keys: Vec<_> =
            server.requests().iter().map(|request| request.key().map(str::to_owned)).collect();
        assert_eq!(keys, [Some(KEY.to_owned()), Some(KEY.to_owned())], "{provider}");
    }
}

#[test]
fn api_key_appears_nowhere() {
    for wire in WireFormat::ALL {
        let provider = match wire {
            WireFormat::OpenAi | WireFormat::OpenAiResponses => "openai",
            WireFormat::Anthropic => "anthropic",
            WireFormat::Gemini => "gemini",
        };
        let server = ModelServer::with([ModelTurn::fault(ModelFault::EchoKey)]);
        let sandbox = home(provider, &server.url());
        let failed = run(&sandbox).fails(1, "check the key in POLITY_TEST_MODEL_KEY");
        let traced = sandbox.polity(&["task", "trace", "last", "--json"]);
        for text in [&failed.err, &failed.out, &traced.out] {
            assert!(!text.contains(KEY), "{text}");
        }
    }
}

/// A server with one slot gives up a running answer when another request comes.
#[test]
fn answer_given_up_by_the_server_is_retried() {
    for provider in ["openai_compatible", "anthropic", "gemini"] {
        for text in ["half an answer", ""] {
            let given_up = ModelTurn::fault(ModelFault::EndWithoutReason).saying(text);
            let server = ModelServer::with([given_up, ModelTurn::text("From afar.")]);
            let answered = run(&home(provider, &server.url()));
            let expected = (0, "From afar.\n");
            let found = (answered.code, answered.out.as_str());
            assert_eq!(found, expected, "{provider} {text:?}: {answered:?}");
        }
    }
}

#[test]
fn half_an_answer_is_no_success() {
    for (provider, ending, code) in [
        ("openai", ModelEnding::Truncated, "truncated"),
        ("openai", ModelEnding::Refused, "refused"),
        ("openai", ModelEnding::Filtered, "filtered"),
        ("anthropic", ModelEnding::Truncated, "truncated"),
        ("anthropic", ModelEnding::Refused, "refused"),
        ("gemini", ModelEnding::Truncated, "truncated"),
        ("gemini", ModelEnding::Filtered, "filtered"),
    ] {
        let server =
            ModelServer::answering(move |_| ModelTurn::text("Half a sente").ending(ending));
        let sandbox = home(provider, &server.url());
        let failed = run_with(&sandbox, &["--json"]).exits(1);
        let task: serde_json::Value = serde_json::from_str(&failed.out).unwrap();
        assert_eq!(task["error_code"], code, "{provider}: {task}");
        assert_eq!(task["result"], "Half a sente", "{provider}: {task}");

        let agent = std::fs::read_to_string(sandbox.file("agents/caller.yaml")).unwrap();
        sandbox.write("agents/caller.yaml", &format!("{agent}on_truncation: accept\n"));
        assert_eq!(run(&sandbox).exits(0).out, "Half a sente\n", "{provider} {code}");
    }
}

#[test]
fn cut_answer_is_continued() {
    for provider in ["openai", "anthropic", "gemini"] {
        let server = ModelServer::with([
            ModelTurn::text("Half a sente").ending(ModelEnding::Truncated),
            ModelTurn::text("nce."),
        ]);
        let sandbox = home(provider, &server.url());
        let agent = std::fs::read_to_string(sandbox.file("agents/caller.yaml")).unwrap();
        sandbox.write("agents/caller.yaml", &format!("{agent}on_truncation: continue\n"));
        assert_eq!(run(&sandbox).exits(0).out, "Half a sentence.\n", "{provider}");
        let second = server.requests()[1].body.to_string();
        assert!(second.contains("Continue exactly where it stopped"), "{provider}: {second}");
    }
}

#[test]
fn unreported_usage_is_unknown_and_not_zero() {
    for provider in ["openai", "anthropic", "gemini"] {
        let silent = ModelTurn::text("From afar.").usage_form(UsageForm::Missing);
        let server = ModelServer::answering(move |_| silent.clone());
        let sandbox = home(provider, &server.url());
        run(&sandbox).exits(0);
        let (task, _) = sandbox.json(&["task", "show", "last"]);
        let usage = &task["usage"];
        for field in ["input_tokens", "output_tokens", "cost_usd"] {
            assert!(usage[field].is_null(), "{provider}: {usage}");
        }
        assert!(usage["estimated_tokens"].as_u64().unwrap() > 0, "{provider}: {usage}");
        let shown = sandbox.polity(&["task", "show", "last"]);
        assert!(shown.out.contains("unknown tokens, cost unknown"), "{provider}: {shown:?}");
        let traced = sandbox.polity(&["task", "trace", "last"]);
        assert!(traced.out.contains("unknown tokens, cost unknown"), "{provider}: {traced:?}");
        let cost = sandbox.polity(&["cost"]);
        let row = cost.out.lines().find(|line| line.starts_with("caller")).unwrap();
        assert_eq!(row.matches("unknown").count(), 3, "{provider}: {cost:?}");

        let over = run_with(&sandbox, &["--max-tokens", "5"]).exits(6);
        assert!(over.err.contains("estimated because they were not reported"), "{over:?}");
    }
}

#[test]
fn broken_answers_count_towards_a_budget() {
    for provider in ["openai", "anthropic", "gemini"] {
        let server = ModelServer::answering(move |_| {
            ModelTurn::fault(ModelFault::Cut).usage_form(UsageForm::Missing)
        });
        let sandbox = home(provider, &server.url());
        let over = run_with(&sandbox, &["--max-tokens", "40"]).exits(6);
        assert!(over.err.contains("estimated because they were not reported"), "{over:?}");
        let (task, _) = sandbox.json(&["task", "show", "last"]);
        assert_eq!(task["error_code"], "budget", "{provider}: {task}");
        assert!(task["usage"]["estimated_tokens"].as_u64().unwrap() >= 40, "{provider}: {task}");
    }
}

#[test]
fn usage_with_a_fraction_counts() {
    for provider in ["openai", "anthropic", "gemini"] {
        let turn = ModelTurn::text("From afar.").usage(100, 20).usage_form(UsageForm::Floats);
        let sandbox_server = ModelServer::with([turn]);
        let sandbox = home(provider, &sandbox_server.url());
        run(&sandbox).exits(0);
        let (task, _) = sandbox.json(&["task", "show", "last"]);
        assert_eq!(task["usage"]["input_tokens"], 100, "{provider}: {task}");
        assert_eq!(task["usage"]["output_tokens"], 20, "{provider}: {task}");
    }
}

#[test]
fn missing_key_creates_no_task() {
    let server = ModelServer::with([]);
    let sandbox = home("openai", &server.url());
    let refused = sandbox.polity(&["run", "caller", "Hello"]);
    assert_ne!(refused.code, 0);
    for expected in ["POLITY_TEST_MODEL_KEY is not set", "`export POLITY_TEST_MODEL_KEY=...`"] {
        assert!(refused.err.contains(expected), "{refused:?}");
    }
    assert_eq!(sandbox.tasks().len(), 0);
    assert_eq!(server.requests().len(), 0);
}

/// Gives the agent the tools of the faulty test server, named `kit`.
fn with_tools(sandbox: &HomeSandbox, more: &str) {
    let server = json!({"name": "kit", "transport": "stdio",
        "config": {"command": "python3", "args": [fixture()]}});
    sandbox.write("config/mcp_servers.yaml", &json!({"servers": [server]}).to_string());
    let agent = std::fs::read_to_string(sandbox.file("agents/caller.yaml")).unwrap();
    sandbox.write("agents/caller.yaml", &format!("{agent}tools: [kit/*]\n{more}"));
}

/// Every outcome of a tool call in one conversation. Like the providers, the model server rejects a
/// history with an unanswered call.
#[test]
fn history_stays_valid_after_failed_tool_calls() {
    for provider in ["openai", "anthropic", "gemini"] {
        let server = ModelServer::with([
            ModelTurn::calls([
                ModelCall::new("kit__echo", r#"{"text": "one"}"#),
                ModelCall::new("kit__fail", "{}"),
                ModelCall::new("kit__nothing", "{}"),
                ModelCall::new("kit__add", r#"{"a": 1}"#),
                ModelCall::new("kit__add", r#"{"a": 1, "b": 2}"#),
            ]),
            ModelTurn::status(529, "overloaded"),
            ModelTurn::calls([ModelCall::new("kit__die", "{}")]),
            ModelTurn::calls([ModelCall::new("kit__echo", "{\"text\": \"cut o")]).saying("Hm."),
            ModelTurn::calls([ModelCall::new("kit__count", r#"{"file": "a"}"#)]),
            ModelTurn::text("All done."),
        ]);
        let sandbox = home(provider, &server.url());
        with_tools(&sandbox, "approval: [kit/count]\n");
        let asked = run(&sandbox);
        assert_eq!(asked.code, 3, "{provider}: {asked:?}");
        let mut reject = sandbox.command(&["review", "reject", "last", "--message", "no"]);
        let done = command_output(&reject.env(KEY_VARIABLE, KEY).output().unwrap());
        assert_eq!((done.code, done.out.as_str()), (0, "All done.\n"), "{provider}: {done:?}");
        assert_eq!(server.requests().len(), 6, "{provider}: none was refused");
        let (cost, _) = sandbox.json(&["cost"]);
        assert_eq!(cost[0]["model_calls"], 5, "{provider}: {cost}");
    }
}

#[test]
fn long_conversation_is_shortened_to_fit() {
    for provider in ["openai", "anthropic", "gemini"] {
        let turn = |text: &str| {
            ModelTurn::calls([ModelCall::new("kit__echo", &json!({ "text": text }).to_string())])
        };
        let server = ModelServer::with([
            turn("one"),
            turn("two"),
            turn("three"),
            ModelTurn::fault(ModelFault::ContextFull),
            ModelTurn::text("Short enough."),
        ]);
        let sandbox = home(provider, &server.url());
        with_tools(&sandbox, "");
        let done = run(&sandbox);
        assert_eq!((done.code, done.out.as_str()), (0, "Short enough.\n"), "{provider}: {done:?}");
        assert!(done.err.contains("exceeds the model's context"), "{done:?}");
        let requests = server.requests();
        let (full, short) = (requests[3].body.to_string(), requests[4].body.to_string());
        assert!(full.contains("one") && !short.contains("one"), "{provider}: {short}");
        assert!(short.contains("three") && short.contains("Hello"), "{provider}: {short}");
    }
}

#[test]
fn wrong_endpoint_and_empty_answer_are_errors() {
    let empty = ModelServer::with([ModelTurn::empty()]);
    run(&home("openai", &empty.url())).fails(1, "empty_answer");
    let sandbox = home("openai_compatible", "http://127.0.0.1:9/v1");
    let agent = std::fs::read_to_string(sandbox.file("agents/caller.yaml")).unwrap();
    sandbox.write("agents/caller.yaml", &format!("{agent}max_retries: 0\n"));
    let unreachable = run(&sandbox).exits(1);
    for expected in ["127.0.0.1:9", "llm_config.endpoint"] {
        assert!(unreachable.err.contains(expected), "{unreachable:?}");
    }
}

/// A missing key stops the agent, but does not fail its task.
#[test]
fn review_answer_without_the_key_changes_nothing() {
    let server = ModelServer::with([
        ModelTurn::calls([ModelCall::new("kit__count", r#"{"file": "a"}"#)]),
        ModelTurn::text("Counted."),
    ]);
    let sandbox = home("openai", &server.url());
    with_tools(&sandbox, "approval: [kit/count]\n");
    assert_eq!(run(&sandbox).code, 3);
    sandbox.polity(&["review", "approve", "last"]).fails(2, KEY_VARIABLE);
    assert_eq!(sandbox.tasks()[0]["status"], "awaiting_human");
    assert!(!sandbox.file("a").exists());
    // The answer is stored for later. Resuming fails, and the task stays resumable.
    sandbox.polity(&["review", "approve", "last", "--detach"]).exits(0);
    sandbox.polity(&["task", "resume", "last"]).exits(2);
    let mut resume = sandbox.command(&["task", "resume", "last"]);
    command_output(&resume.env(KEY_VARIABLE, KEY).output().unwrap()).prints("Counted.\n");
}

#[test]
fn api_key_in_a_model_answer_is_masked() {
    let server = ModelServer::with([ModelTurn::text(&format!("Your key is {KEY}."))]);
    let sandbox = home("openai", &server.url());
    assert_eq!(run(&sandbox).out, "Your key is ***.\n");
}
