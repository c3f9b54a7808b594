//! Agents whose models are called over HTTP.

use polity_testkit::model_server::{Fault, ModelServer, Turn, Wire};

use crate::sandbox::{Said, Sandbox, said};

/// A variable that no one sets by chance.
const KEY_VARIABLE: &str = "POLITY_TEST_MODEL_KEY";

const KEY: &str = "sk-test-0123456789";

fn home(provider: &str, endpoint: &str) -> Sandbox {
    let sandbox = Sandbox::empty();
    sandbox.write("polity.yaml", "");
    let agent = format!(
        "kind: llm\nname: caller\nrole: Calls\nsystem_prompt: Answer.\n\
         llm_config: {{provider: {provider}, model: m-1, endpoint: \"{endpoint}\", \
         api_key_env: {KEY_VARIABLE}}}\n"
    );
    sandbox.write("agents/caller.yaml", &agent);
    sandbox
}

fn run(sandbox: &Sandbox) -> Said {
    let mut command = sandbox.command(&["run", "caller", "Hello"]);
    said(&command.env(KEY_VARIABLE, KEY).output().unwrap())
}

#[test]
fn every_provider_answers_after_a_retry() {
    for provider in ["openai", "openai_compatible", "ollama", "anthropic", "gemini"] {
        let server = ModelServer::with([Turn::retry_after(429, "0"), Turn::text("From afar.")]);
        let answered = run(&home(provider, &server.url()));
        let expected = (0, "From afar.\n");
        assert_eq!((answered.code, answered.out.as_str()), expected, "{provider}: {answered:?}");
        let keys: Vec<_> =
            server.requests().iter().map(|request| request.key().map(str::to_owned)).collect();
        assert_eq!(keys, [Some(KEY.to_owned()), Some(KEY.to_owned())], "{provider}");
    }
}

#[test]
fn a_key_is_shown_nowhere() {
    for wire in Wire::ALL {
        let provider = match wire {
            Wire::OpenAi => "openai",
            Wire::Anthropic => "anthropic",
            Wire::Gemini => "gemini",
        };
        let server = ModelServer::with([Turn::fault(Fault::EchoKey)]);
        let sandbox = home(provider, &server.url());
        let failed = run(&sandbox);
        assert_eq!(failed.code, 1, "{failed:?}");
        assert!(failed.err.contains("check the key in POLITY_TEST_MODEL_KEY"), "{failed:?}");
        let traced = sandbox.polity(&["task", "trace", "last", "--json"]);
        for text in [&failed.err, &failed.out, &traced.out] {
            assert!(!text.contains(KEY), "{text}");
        }
    }
}

#[test]
fn a_missing_key_is_told_before_there_is_a_task() {
    let server = ModelServer::with([]);
    let sandbox = home("openai", &server.url());
    let refused = sandbox.polity(&["run", "caller", "Hello"]);
    assert_ne!(refused.code, 0);
    for words in ["POLITY_TEST_MODEL_KEY is not set", "`export POLITY_TEST_MODEL_KEY=...`"] {
        assert!(refused.err.contains(words), "{refused:?}");
    }
    assert_eq!(sandbox.tasks().len(), 0);
    assert_eq!(server.requests().len(), 0);
}
