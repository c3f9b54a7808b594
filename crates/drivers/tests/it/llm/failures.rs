//! Failed calls.

use std::time::Duration;

use polity_drivers::EnvSource;
use polity_drivers::llm::LanguageModels;
use polity_engine::driver::ModelDriver;
use polity_model::failure::ErrorCategory;
use polity_testkit::model_server::{ModelFault, ModelServer, ModelTurn, WireFormat};

use super::harness::{KEY, ModelHarness, agent, provider, user};

const TRANSIENT: ErrorCategory = ErrorCategory::Transient;
const PERMANENT: ErrorCategory = ErrorCategory::Permanent;

#[tokio::test]
async fn status_decides_category_and_message_quotes_provider() {
    for wire in WireFormat::ALL {
        for (status, category) in [
            (400, PERMANENT),
            (403, PERMANENT),
            (422, PERMANENT),
            (408, TRANSIENT),
            (429, TRANSIENT),
            (500, TRANSIENT),
            (529, TRANSIENT),
        ] {
            let server = ModelServer::with([ModelTurn::status(status, "the provider's own words")]);
            let failure = ModelHarness::new(wire, &server).failure().await;
            assert_eq!(failure.failure.category, category, "{wire:?} {status}");
            let message = &failure.failure.message;
            let beginning = format!("{}, model m-1, at {}/v1", provider(wire), server.url());
            assert!(message.starts_with(&beginning), "{message}");
            let expected = format!(": status {status}: the provider's own words");
            assert!(message.contains(&expected), "{message}");
            assert!(!failure.context_full);
        }
    }
}

#[tokio::test]
async fn broken_stream_has_unknown_usage_and_a_rejected_call_none() {
    for wire in WireFormat::ALL {
        let server = ModelServer::with([
            ModelTurn::fault(ModelFault::Cut).saying("half"),
            ModelTurn::fault(ModelFault::NoEvents),
            ModelTurn::status(429, "slow down"),
        ]);
        let harness = ModelHarness::new(wire, &server);
        for what in ["cut", "no events"] {
            let usage = harness.failure().await.usage;
            assert!(usage.tokens_unknown && usage.cost_unknown, "{wire:?} {what}: {usage:?}");
            // This provider reports the input at the start of a stream.
            if wire == WireFormat::Anthropic && what == "cut" {
                assert!(usage.input_tokens > 0, "{usage:?}");
            }
        }
        assert!(harness.failure().await.usage.is_zero(), "{wire:?}");
    }
    let gone = ModelHarness::at("openai", "http://127.0.0.1:1").failure().await;
    assert!(gone.usage.is_zero(), "{gone:?}");
}

#[tokio::test]
async fn reports_the_requested_retry_delay() {
    for wire in WireFormat::ALL {
        let server = ModelServer::with([
            ModelTurn::retry_after(429, "7"),
            ModelTurn::retry_after(529, "Wed, 21 Oct 2015 07:28:00 GMT"),
            ModelTurn::status(500, "no idea"),
        ]);
        let harness = ModelHarness::new(wire, &server);
        assert_eq!(harness.failure().await.retry_after, Some(Duration::from_secs(7)));
        assert_eq!(harness.failure().await.retry_after, Some(Duration::ZERO));
        assert_eq!(harness.failure().await.retry_after, None);
    }
}

#[tokio::test]
async fn recognizes_full_context() {
    for wire in WireFormat::ALL {
        let server = ModelServer::with([ModelTurn::fault(ModelFault::ContextFull)]);
        let failure = ModelHarness::new(wire, &server).failure().await;
        assert!(failure.context_full, "{wire:?}: {failure:?}");
        assert_eq!(failure.failure.category, PERMANENT);
    }
}

#[tokio::test]
async fn faults_within_an_answer_are_transient() {
    for wire in WireFormat::ALL {
        for (fault, expected) in [
            (ModelFault::Cut, "the stream ended before the answer was complete"),
            (ModelFault::Unfinished, "the stream ended before the answer was complete"),
            (ModelFault::InvalidJson, "the stream had an event that cannot be read"),
            (ModelFault::ErrorInStream, "an error within the stream: Overloaded"),
        ] {
            let server = ModelServer::with([ModelTurn::fault(fault.clone())]);
            let harness = ModelHarness::new(wire, &server);
            let failure = harness.failure().await;
            assert_eq!(failure.failure.category, TRANSIENT, "{wire:?} {fault:?}");
            assert!(failure.failure.message.contains(expected), "{wire:?}: {failure:?}");
            let text = harness.pieces.0.lock().unwrap().concat();
            assert!(!text.is_empty() && "half an answer".starts_with(&text), "{wire:?}: {text}");
            // The next call succeeds.
            assert_eq!(harness.hello().await.unwrap().content, "done", "{wire:?} {fault:?}");
        }
    }
}

#[tokio::test]
async fn redacts_key_echoed_by_the_provider() {
    for (wire, variable) in [
        (WireFormat::OpenAi, "OPENAI_API_KEY"),
        (WireFormat::Anthropic, "ANTHROPIC_API_KEY"),
        (WireFormat::Gemini, "GEMINI_API_KEY"),
    ] {
        let server = ModelServer::with([ModelTurn::fault(ModelFault::EchoKey)]);
        let harness = ModelHarness::new(wire, &server);
        let failure = harness.failure().await;
        let expected =
            format!("status 401: Incorrect API key provided: ***.; check the key in {variable}");
        assert!(failure.failure.message.ends_with(&expected), "{failure:?}");
        assert!(!format!("{:?}", harness.models).contains(KEY));
    }
}

#[tokio::test]
async fn errors_point_at_a_wrong_endpoint() {
    let server = ModelServer::with([ModelTurn::fault(ModelFault::Page)]);
    let page = ModelHarness::at("openai", &server.url()).failure().await;
    assert_eq!(page.failure.category, PERMANENT);
    assert!(page.failure.message.contains("answered with text/html"), "{page:?}");

    let lost = ModelHarness::at("openai", &format!("{}/wrong", server.url())).failure().await;
    assert_eq!(lost.failure.category, PERMANENT);
    let expected = "status 404: 404 page not found; check llm_config.endpoint";
    assert!(lost.failure.message.ends_with(expected), "{lost:?}");

    let server = ModelServer::with([ModelTurn::status(404, "no such model")]);
    let unknown = ModelHarness::at("anthropic", &server.url()).failure().await;
    let expected = "no such model; check llm_config.model and llm_config.endpoint";
    assert!(unknown.failure.message.ends_with(expected), "{unknown:?}");

    // A free port.
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for wire in WireFormat::ALL {
        let failure = ModelHarness::at(provider(wire), &format!("http://{closed}")).failure().await;
        assert_eq!(failure.failure.category, TRANSIENT);
        let message = &failure.failure.message;
        assert!(message.contains("cannot be reached: "), "{message}");
        assert!(message.ends_with("; check llm_config.endpoint"), "{message}");
    }
}

#[tokio::test]
async fn does_not_follow_redirects() {
    for wire in WireFormat::ALL {
        let elsewhere = ModelServer::with([]);
        let headers = vec![("location", format!("{}/v1/messages", elsewhere.url()))];
        let moved = ModelFault::Status { status: 307, message: "moved".to_owned(), headers };
        let server = ModelServer::with([ModelTurn::fault(moved)]);
        let failure = ModelHarness::new(wire, &server).failure().await;
        assert_eq!(failure.failure.category, PERMANENT);
        let expected = "status 307: moved; check llm_config.endpoint";
        assert!(failure.failure.message.ends_with(expected), "{failure:?}");
        assert_eq!(elsewhere.requests().len(), 0, "{wire:?}");
    }
}

#[tokio::test]
async fn limits_the_size_of_an_answer() {
    let server = ModelServer::with([ModelTurn::fault(ModelFault::Endless)]);
    let failure = ModelHarness::new(WireFormat::OpenAi, &server).failure().await;
    assert_eq!(failure.failure.category, PERMANENT);
    assert!(failure.failure.message.contains("more than 67108864 bytes"), "{failure:?}");
}

#[tokio::test]
async fn dropping_the_future_abandons_the_call() {
    const HOUR: Duration = Duration::from_hours(1);
    for wire in WireFormat::ALL {
        let server = ModelServer::answering(|request| match request.body.to_string() {
            body if body.contains("wait first") => ModelTurn::text("x").slow(HOUR, Duration::ZERO),
            body if body.contains("wait later") => ModelTurn::text("x").slow(Duration::ZERO, HOUR),
            _ => ModelTurn::text("done"),
        });
        let harness = ModelHarness::new(wire, &server);
        for (count, text) in [(1, "wait first"), (2, "wait later")] {
            let arrived = async {
                while server.requests().len() < count {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            let messages = [user(text)];
            tokio::select! {
                reply = harness.call(&messages) => panic!("{wire:?}: {reply:?}"),
                () = arrived => {}
            }
        }
        assert_eq!(harness.hello().await.unwrap().content, "done", "{wire:?}");
    }
}

#[tokio::test]
async fn sends_nothing_without_a_key() {
    let server = ModelServer::with([]);
    for wire in WireFormat::ALL {
        let mut harness = ModelHarness::new(wire, &server);
        harness.models = LanguageModels::new(EnvSource::empty());
        let not_ready = harness.models.ready(&harness.pinned).unwrap_err();
        let failure = harness.failure().await;
        assert_eq!(failure.failure.category, PERMANENT);
        let expected = format!("{}; {}", not_ready.message, not_ready.hint);
        assert_eq!(failure.failure.message, expected);
    }
    assert_eq!(server.requests().len(), 0);
    let ollama = agent("ollama", &server.url());
    assert_eq!(LanguageModels::new(EnvSource::empty()).ready(&ollama), Ok(()));
}

#[tokio::test]
async fn uses_proxy_except_for_localhost() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let environment = EnvSource::new(move |name| match name {
        "HTTP_PROXY" => Some(format!("http://{closed}")),
        name => name.ends_with("_API_KEY").then(|| KEY.to_owned()),
    });
    let server = ModelServer::with([]);
    let mut harness = ModelHarness::new(WireFormat::OpenAi, &server);
    harness.models = LanguageModels::new(environment);
    assert_eq!(harness.hello().await.unwrap().content, "done");
    // An unresolvable host: only the missing proxy can have refused.
    harness.pinned = agent("openai", "http://model.invalid/v1");
    let failure = harness.failure().await;
    assert!(failure.failure.message.contains("refused"), "{failure:?}");
}
