use polity_definition::{AgentDefinition, AgentKind};
use serde_json::{Value, json};

use super::*;

fn agent(provider: &str, more: &Value) -> LlmAgent {
    let mut config = json!({"provider": provider, "model": "m-1"});
    config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let agent = json!({"kind": "llm", "name": "greeter", "role": "greets",
        "system_prompt": "Greet.", "llm_config": config});
    let agent = AgentDefinition::from_canonical(&agent.to_string()).unwrap();
    let AgentKind::Llm(llm) = agent.kind else { panic!("{agent:?}") };
    llm
}

fn every_key() -> EnvSource {
    EnvSource::new(|name| Some(format!("key-of-{name}")))
}

#[test]
fn completes_endpoint_urls() {
    let cases = [
        ("openai", "", "https://api.openai.com/v1/chat/completions"),
        ("openai", "http://h:9", "http://h:9/v1/chat/completions"),
        ("openai_compatible", "http://h:9/v1/", "http://h:9/v1/chat/completions"),
        ("openai_compatible", "http://h/api/v3", "http://h/api/v3/chat/completions"),
        ("openai_compatible", "http://h/a/chat/completions", "http://h/a/chat/completions"),
        ("openai_compatible", "http://h/x?v=1", "http://h/x/chat/completions?v=1"),
        ("ollama", "", "http://127.0.0.1:11434/v1/chat/completions"),
        ("ollama", "http://h:1/", "http://h:1/v1/chat/completions"),
        ("anthropic", "", "https://api.anthropic.com/v1/messages"),
        ("anthropic", "http://h", "http://h/v1/messages"),
        ("anthropic", "http://h/v1/", "http://h/v1/messages"),
        ("anthropic", "http://h/anthropic", "http://h/anthropic/v1/messages"),
        (
            "gemini",
            "",
            "https://generativelanguage.googleapis.com/v1beta/models/m-1:streamGenerateContent?alt=sse",
        ),
        ("gemini", "http://h/v1/", "http://h/v1/models/m-1:streamGenerateContent?alt=sse"),
    ];
    for (provider, base, expected) in cases {
        let more = if base.is_empty() { json!({}) } else { json!({"endpoint": base}) };
        let llm = agent(provider, &more);
        let endpoint = ModelEndpoint::resolve(&llm, &every_key()).unwrap().unwrap();
        assert_eq!(endpoint.url.as_str(), expected, "{provider} {base}");
    }
}

#[test]
fn sends_key_in_the_header_of_each_provider() {
    let cases = [
        ("openai", json!({}), "authorization", Some("Bearer key-of-OPENAI_API_KEY")),
        ("openai", json!({"api_key_env": "MINE"}), "authorization", Some("Bearer key-of-MINE")),
        ("anthropic", json!({}), "x-api-key", Some("key-of-ANTHROPIC_API_KEY")),
        ("gemini", json!({}), "x-goog-api-key", Some("key-of-GEMINI_API_KEY")),
        ("ollama", json!({}), "authorization", None),
        ("openai_compatible", json!({"endpoint": "http://h"}), "authorization", None),
    ];
    for (provider, more, header, expected) in cases {
        let llm = agent(provider, &more);
        let headers =
            ModelEndpoint::resolve(&llm, &every_key()).unwrap().unwrap().headers().unwrap();
        let found = headers.get(header);
        assert_eq!(found.map(|value| value.to_str().unwrap()), expected, "{provider}");
        assert!(found.is_none_or(HeaderValue::is_sensitive));
    }
}

#[test]
fn gemini_falls_back_to_google_api_key() {
    let environment = EnvSource::new(|name| (name == "GOOGLE_API_KEY").then(|| "g-1".into()));
    let llm = agent("gemini", &json!({}));
    let headers = ModelEndpoint::resolve(&llm, &environment).unwrap().unwrap().headers().unwrap();
    assert_eq!(headers["x-goog-api-key"], "g-1");
}

#[test]
fn missing_key_error_names_variable_and_fix() {
    for (provider, more, message) in [
        ("openai", json!({}), "openai: OPENAI_API_KEY is not set"),
        ("gemini", json!({}), "gemini: GEMINI_API_KEY or GOOGLE_API_KEY is not set"),
        ("ollama", json!({"api_key_env": "MINE"}), "ollama: MINE is not set"),
    ] {
        let llm = agent(provider, &more);
        let not_ready = ModelEndpoint::resolve(&llm, &EnvSource::empty()).unwrap_err();
        let expected = format!("agent \"greeter\" needs a key for the provider {message}");
        assert_eq!(not_ready.message, expected);
    }
    let llm = agent("openai", &json!({}));
    assert_eq!(
        ModelEndpoint::resolve(&llm, &EnvSource::empty()).unwrap_err().hint,
        "`export OPENAI_API_KEY=...`, or set OPENAI_API_KEY_FILE to the path of a file that holds \
         the key"
    );
}

#[test]
fn failures_name_endpoint_and_fix_without_secrets() {
    let llm = agent("openai", &json!({"endpoint": "http://me:pass@h/v1?token=t"}));
    let endpoint = ModelEndpoint::resolve(&llm, &every_key()).unwrap().unwrap();
    let body = br#"{"error": {"message": "Incorrect key: key-of-OPENAI_API_KEY"}}"#;
    let failure = endpoint.failure(&ModelCallError::from_status(401, body, None));
    assert_eq!(
        failure.failure.message,
        "openai, model m-1, at http://h/v1/chat/completions: status 401: Incorrect key: ***; \
         check the key in OPENAI_API_KEY"
    );
    assert_eq!(format!("{endpoint:?}"), "openai, model m-1, at http://h/v1/chat/completions");
}
