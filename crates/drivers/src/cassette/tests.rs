//! Recording and playback without files and without a runtime.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use polity_definition::{AgentDefinition, TokenPrice};
use polity_engine::driver::{
    AnswerEnding, AskedArguments, AskedTool, BoxFuture, CallSite, ConversationHistory, ModelDriver,
    ModelFailure, ModelReply, ModelRequest, NotReady, NullTextSink, ToolDriver, ToolFailure,
    ToolReply, ToolRequest,
};
use polity_engine::pinned::PinnedAgent;
use polity_model::failure::{AttemptFailure, ErrorCategory};
use polity_model::ids::ToolCallId;
use polity_model::message::{Message, ToolCall};
use polity_model::review::ReviewVerdict;
use polity_model::tool::{ToolName, ToolPattern};
use polity_model::usage::Usage;
use polity_testkit::tools::{FakeToolAct, FakeTools, ToolEffects};
use serde_json::{Map, Value, json};

use super::{
    Cassette, CassetteError, CassettePlayer, CassetteRecorder, CassetteVerdict, ReviewQuestion,
};
use crate::secrets::SecretSet;

/// A model that answers each request with a function's result.
struct FnModel<F>(F);

impl<F> ModelDriver for FnModel<F>
where
    F: Fn(&ModelRequest<'_>) -> Result<ModelReply, ModelFailure> + Send + Sync,
{
    fn ready(&self, _pinned: &PinnedAgent) -> Result<(), NotReady> {
        Ok(())
    }

    fn price(&self, _pinned: &PinnedAgent) -> Option<TokenPrice> {
        Some(TokenPrice::FREE)
    }

    fn call<'a>(
        &'a self,
        request: ModelRequest<'a>,
    ) -> BoxFuture<'a, Result<ModelReply, ModelFailure>> {
        Box::pin(async move {
            tokio::task::yield_now().await;
            self.0(&request)
        })
    }
}

fn answer(content: &str, calls: &[(&str, Value)]) -> ModelReply {
    let asked = |(name, arguments): &(&str, Value)| {
        let (server, tool) = name.split_once('/').unwrap();
        AskedTool {
            server: server.to_owned(),
            tool: tool.to_owned(),
            arguments: match arguments {
                Value::Object(fields) => AskedArguments::Object(fields.clone()),
                other => AskedArguments::Unreadable {
                    text: other.to_string(),
                    reason: "no object".to_owned(),
                },
            },
            signature: None,
        }
    };
    ModelReply {
        content: content.to_owned(),
        tool_calls: calls.iter().map(asked).collect(),
        usage: Usage { input_tokens: 3, output_tokens: 1, ..Usage::default() },
        ending: AnswerEnding::Complete,
        stop_reason: None,
        mark: Some(7),
    }
}

fn failure(category: ErrorCategory, message: &str) -> ModelFailure {
    ModelFailure::new(AttemptFailure { category, message: message.to_owned() })
}

fn pinned(prompt: &str) -> PinnedAgent {
    let agent = json!({
        "kind": "llm", "name": "editor", "role": "Edits", "system_prompt": prompt,
        "tools": ["files/*"],
        "llm_config": {"provider": "openai", "model": "m-1"},
    });
    let agent = AgentDefinition::from_canonical(&agent.to_string()).unwrap();
    PinnedAgent::alone(Arc::new(agent), None)
}

/// One conversation, as a task holds it. Ids and times depend on the run.
struct TestConversation {
    session: &'static str,
    turn: u32,
    run: u8,
    messages: Vec<Message>,
    sent_from: usize,
    pinned: PinnedAgent,
}

impl TestConversation {
    fn new(session: &'static str, run: u8, input: &str) -> Self {
        let pinned = pinned("You edit.\nYou are brief.");
        let mut conversation =
            Self { session, turn: 1, run, messages: Vec::new(), sent_from: 0, pinned };
        let timestamp = conversation.now();
        conversation.messages.push(Message::User { content: input.to_owned(), timestamp });
        conversation
    }

    fn now(&self) -> jiff::Timestamp {
        jiff::Timestamp::from_second(i64::from(self.run) * 1000 + i64::from(self.turn)).unwrap()
    }

    fn call_site(&self) -> CallSite<'static> {
        CallSite { session: self.session, turn: self.turn }
    }

    /// Calls the model once with the listed tools.
    async fn ask(
        &self,
        models: &dyn ModelDriver,
        tools: &dyn ToolDriver,
    ) -> Result<ModelReply, ModelFailure> {
        let patterns: [ToolPattern; 1] = ["files/*".parse().unwrap()];
        let toolbox = tools.toolbox(&patterns, self.call_site()).await;
        let toolbox = toolbox.map_err(|error| ModelFailure::new(error.failure))?;
        let request = ModelRequest {
            pinned: &self.pinned,
            history: ConversationHistory::shortened(&self.messages, self.sent_from),
            toolbox: &toolbox,
            marks: &[],
            call_site: self.call_site(),
            progress: &NullTextSink,
        };
        models.call(request).await
    }

    /// Makes all tool calls of an answer in parallel and starts the next turn.
    async fn act(&mut self, reply: &ModelReply, tools: &dyn ToolDriver) {
        let timestamp = self.now();
        let calls: Vec<ToolCall> = (0..)
            .zip(&reply.tool_calls)
            .map(|(number, asked)| ToolCall {
                id: ToolCallId::from_random_bytes([self.run * 100 + number; 16]),
                server: asked.server.clone(),
                tool: asked.tool.clone(),
                arguments: match &asked.arguments {
                    AskedArguments::Object(fields) => fields.clone(),
                    AskedArguments::Unreadable { .. } => Map::new(),
                },
                signature: None,
            })
            .collect();
        let call_site = self.call_site();
        let made = calls.iter().enumerate().map(|(index, call)| async move {
            let tool: ToolName = call.name().parse().unwrap();
            let (arguments, limit) = (&call.arguments, Duration::from_secs(1));
            let limited_by = None;
            let request =
                ToolRequest { tool: &tool, arguments, limit, limited_by, call_site, index };
            tools.call(request).await
        });
        let outcomes = futures_util::future::join_all(made).await;
        let content = reply.content.clone();
        self.messages.push(Message::Assistant { content, tool_calls: calls.clone(), timestamp });
        for (call, outcome) in calls.iter().zip(outcomes) {
            let (content, is_error) = match outcome {
                Ok(ToolReply { content, is_error, .. }) => (content, is_error),
                Err(ToolFailure { failure, .. }) => (format!("error: {}", failure.message), true),
            };
            let tool_call_id = call.id;
            self.messages.push(Message::Tool { tool_call_id, content, is_error, timestamp });
        }
        self.turn += 1;
    }
}

fn recorder(
    answers: impl IntoIterator<Item = Result<ModelReply, ModelFailure>>,
    acts: impl IntoIterator<Item = FakeToolAct>,
    secrets: SecretSet,
    cassette: Cassette,
) -> CassetteRecorder {
    let answers: Mutex<VecDeque<_>> = Mutex::new(answers.into_iter().collect());
    let models = FnModel(move |_: &ModelRequest<'_>| answers.lock().unwrap().pop_front().unwrap());
    let tools = FakeTools::new(&Arc::new(ToolEffects::default()), acts, Duration::ZERO);
    CassetteRecorder::new(Arc::new(models), Arc::new(tools), secrets, cassette)
}

/// A recorder without secrets.
fn plain_recorder(
    answers: impl IntoIterator<Item = Result<ModelReply, ModelFailure>>,
    acts: impl IntoIterator<Item = FakeToolAct>,
) -> CassetteRecorder {
    recorder(answers, acts, SecretSet::default(), Cassette::new("editor", "Hi"))
}

fn play(cassette: Cassette) -> CassettePlayer {
    CassettePlayer::new(cassette, SecretSet::default())
}

/// A run of two turns: two tool calls, one of which fails, then an answer.
async fn two_turns(
    run: u8,
    models: &dyn ModelDriver,
    tools: &dyn ToolDriver,
    input: &str,
) -> Result<(Vec<String>, String), ModelFailure> {
    let mut conversation = TestConversation::new("editor", run, input);
    let reply = conversation.ask(models, tools).await?;
    conversation.act(&reply, tools).await;
    let last = conversation.ask(models, tools).await?;
    let texts = conversation.messages.iter().map(|message| message.content().to_owned()).collect();
    Ok((texts, last.content))
}

fn answers() -> [Result<ModelReply, ModelFailure>; 3] {
    [
        Err(failure(ErrorCategory::Transient, "overloaded")),
        Ok(answer("", &[("files/read", json!({"n": 0.1})), ("files/write", json!({"n": 2}))])),
        Ok(answer("All\ndone.\n", &[])),
    ]
}

async fn recorded(run: u8) -> (Cassette, (Vec<String>, String)) {
    let recorder = plain_recorder(answers(), [FakeToolAct::Answer, FakeToolAct::Lost]);
    let conversation = TestConversation::new("editor", run, "Hi");
    conversation.ask(&recorder, &recorder).await.unwrap_err();
    let went = two_turns(run, &recorder, &recorder, "Hi").await.unwrap();
    (recorder.cassette(), went)
}

#[tokio::test]
async fn replays_a_run_as_recorded() {
    let (cassette, went) = recorded(1).await;
    let text = cassette.to_text().unwrap();
    let read = Cassette::parse(&text).unwrap();
    assert_eq!(read, cassette);
    assert_eq!(read.to_text().unwrap(), text);
    let player = play(read);
    assert_eq!(two_turns(2, &player, &player, "Hi").await.unwrap(), went);
    assert_eq!(player.unused_answers(), Vec::<String>::new());
}

#[tokio::test]
async fn cassette_is_deterministic_and_stores_messages_once() {
    let (cassette, _) = recorded(1).await;
    let text = cassette.to_text().unwrap();
    assert_eq!(recorded(2).await.0.to_text().unwrap(), text);
    assert!(!text.contains("overloaded"), "retried attempts are not recorded: {text}");
    assert!(!text.contains("timestamp") && !text.contains("\"id\""), "{text}");
    let session: Value = serde_json::from_str(&text).unwrap();
    let session = &session["sessions"]["editor"];
    assert_eq!(session["listings"].as_array().unwrap().len(), 1, "{text}");
    assert_eq!(
        session["turns"][1]["exchanges"][0],
        json!({
            "messages": [
                {"role": "tool", "call": 0},
                {
                    "role": "tool", "call": 1, "is_error": true,
                    "content": "error: the connection was lost",
                },
            ],
            "answer": {
                "content": ["All", "done.", ""],
                "usage": {"input_tokens": 3, "output_tokens": 1, "cost_pico_usd": 0},
            },
        }),
        "{text}"
    );
}

#[tokio::test]
async fn mismatch_shows_a_diff_and_ends_the_replay() {
    let (cassette, _) = recorded(1).await;
    let player = play(cassette.clone());
    let mismatch = two_turns(2, &player, &player, "Ho").await.unwrap_err().failure;
    assert_eq!(mismatch.category, ErrorCategory::Permanent);
    insta::assert_snapshot!(mismatch.message, @r#"
    the model is asked something else in turn 1 of session "editor" than when the cassette was recorded (-):
        …
        tool offered: files/write
        tool offered: files/delete
      - user: Hi
      + user: Ho
    if the current run is right, record it again with --record
    "#);
    let again = two_turns(2, &player, &player, "Hi").await.unwrap_err().failure;
    assert_eq!(again.message, mismatch.message);
    let player = play(cassette.clone());
    let mut conversation = TestConversation::new("editor", 2, "Hi");
    conversation.pinned = pinned("You edit.\nYou are verbose.");
    let mismatch = conversation.ask(&player, &player).await.unwrap_err().failure.message;
    assert!(mismatch.contains("  -   You are brief.\n  +   You are verbose.\n"), "{mismatch}");
    let player = play(cassette);
    let mut conversation = TestConversation::new("editor", 2, "Hi");
    conversation.turn = 3;
    let ends = conversation.ask(&player, &player).await.unwrap_err().failure.message;
    assert!(ends.contains("no answer for turn 3 of session \"editor\""), "{ends}");
    assert!(ends.contains("its last answer there is that of turn 2"), "{ends}");
    assert_eq!(play(Cassette::new("editor", "")).unused_answers().len(), 0);
}

#[tokio::test]
async fn other_tool_arguments_end_the_replay_at_the_next_model_call() {
    let (cassette, _) = recorded(1).await;
    let player = play(cassette);
    let mut conversation = TestConversation::new("editor", 2, "Hi");
    let mut reply = conversation.ask(&player, &player).await.unwrap();
    reply.tool_calls[1].arguments =
        AskedArguments::Object(Map::from_iter([("n".to_owned(), json!(3))]));
    conversation.act(&reply, &player).await;
    let mismatch = conversation.ask(&player, &player).await.unwrap_err().failure.message;
    assert!(
        mismatch.starts_with("files/write is called with other arguments in turn 1"),
        "{mismatch}"
    );
    assert!(mismatch.contains("  -   \"n\": 2\n  +   \"n\": 3\n"), "{mismatch}");
    assert_eq!(player.unused_answers(), Vec::<String>::new(), "the mismatch was already reported");
}

#[tokio::test]
async fn lists_unused_answers() {
    let (cassette, _) = recorded(1).await;
    let player = play(cassette);
    TestConversation::new("editor", 2, "Hi").ask(&player, &player).await.unwrap();
    assert_eq!(
        player.unused_answers(),
        [
            "files/read in turn 1 of session \"editor\"",
            "files/write in turn 1 of session \"editor\"",
            "the model in turn 2 of session \"editor\"",
        ]
    );
}

#[tokio::test]
async fn shortened_conversation_is_another_exchange_of_the_turn() {
    let full = || {
        Err(ModelFailure { context_full: true, ..failure(ErrorCategory::Permanent, "too long") })
    };
    let read = || Ok(answer("look", &[("files/read", json!({"n": 1}))]));
    let script = [read(), read(), read(), full(), full(), Ok(answer("short", &[])), read()];
    let recorder = plain_recorder(script, []);
    for run in [1, 2] {
        let player = play(recorder.cassette());
        let (models, tools): (&dyn ModelDriver, &dyn ToolDriver) =
            if run == 1 { (&recorder, &recorder) } else { (&player, &player) };
        let mut conversation = TestConversation::new("editor", run, "Hi");
        for _ in 0..3 {
            let reply = conversation.ask(models, tools).await.unwrap();
            conversation.act(&reply, tools).await;
        }
        for sent_from in [0, 3] {
            conversation.sent_from = sent_from;
            let failed = conversation.ask(models, tools).await.unwrap_err();
            assert!(failed.context_full, "{failed:?}");
        }
        conversation.sent_from = 5;
        let reply = conversation.ask(models, tools).await.unwrap();
        assert_eq!(reply.content, "short");
        conversation.act(&reply, tools).await;
        assert_eq!(conversation.ask(models, tools).await.unwrap().content, "look");
    }
    let cassette: Value = serde_json::from_str(&recorder.cassette().to_text().unwrap()).unwrap();
    let turns = cassette["sessions"]["editor"]["turns"].as_array().unwrap();
    let exchanges = turns[3]["exchanges"].as_array().unwrap().iter();
    let left_out: Vec<_> =
        exchanges.map(|exchange| exchange["left_out"].as_u64().unwrap_or(0)).collect();
    assert_eq!(left_out, [0, 2, 4], "{cassette:#}");
}

#[tokio::test]
async fn parallel_sessions_replay_independently() {
    const SESSIONS: [&str; 3] = ["editor", "editor/1.0/writer", "editor/1.1/writer"];
    // First calls a tool, then answers with the name of the session.
    let models = FnModel(|request: &ModelRequest<'_>| {
        let CallSite { session, turn } = request.call_site;
        let calls = [("files/read", json!({"n": session.len()}))];
        Ok(if turn == 1 { answer("", &calls) } else { answer(session, &[]) })
    });
    let recorder = Arc::new(CassetteRecorder::new(
        Arc::new(models),
        Arc::new(FakeTools::default()),
        SecretSet::default(),
        Cassette::new("editor", "Hi"),
    ));
    let run = |number: u8, models: Arc<dyn ModelDriver>, tools: Arc<dyn ToolDriver>| async move {
        let conversations = SESSIONS.map(|session| {
            let (models, tools) = (Arc::clone(&models), Arc::clone(&tools));
            async move {
                let mut conversation = TestConversation::new(session, number, session);
                let reply = conversation.ask(&*models, &*tools).await.unwrap();
                conversation.act(&reply, &*tools).await;
                conversation.ask(&*models, &*tools).await.unwrap().content
            }
        });
        futures_util::future::join_all(conversations).await
    };
    let live = run(1, recorder.clone(), recorder.clone()).await;
    let player = Arc::new(play(recorder.cassette()));
    assert_eq!(run(2, player.clone(), player).await, live);
}

#[tokio::test]
async fn redacts_secrets_and_still_matches() {
    let secrets = || SecretSet::new(["canary-1234"]);
    let calls = [("files/read", json!({"n": 1, "canary-1234": "a canary-1234"}))];
    let script = [
        Ok(answer("my key is canary-1234", &calls)),
        Ok(answer("done", &[("files/canary-1234", json!("canary-1234"))])),
    ];
    let cassette = Cassette::new("editor", "use canary-1234");
    let recorder = recorder(script, [], secrets(), cassette);
    two_turns(1, &recorder, &recorder, "use canary-1234").await.unwrap();
    let cassette = recorder.cassette();
    let text = cassette.to_text().unwrap();
    assert!(text.contains("use ***") && !text.contains("canary"), "{text}");
    let player = CassettePlayer::new(cassette, secrets());
    let (_, last) = two_turns(2, &player, &player, "use canary-1234").await.unwrap();
    assert_eq!(last, "done");
    let mismatch = two_turns(3, &player, &player, "use canary-1234 now").await.unwrap_err();
    assert!(mismatch.failure.message.contains("  - user: use ***\n  + user: use *** now\n"));
}

#[test]
fn parameters_and_answers_to_reviews_are_redacted_and_replayed_once() {
    let secrets = || SecretSet::new(["canary-1234"]);
    let map = |value: Value| value.as_object().unwrap().clone();
    let cassette = Cassette::new("editor", "Hi").with_parameters(map(json!({"k": "canary-1234"})));
    let recorder = recorder([], [], secrets(), cassette);
    let review = ReviewQuestion { place: "flow/ask", question: "Use canary-1234?" };
    let answer = |verdict, message: &str| CassetteVerdict {
        verdict,
        message: Some(message.to_owned()),
        state_updates: map(json!({"metadata.key": "canary-1234"})).try_into().unwrap(),
    };
    let arguments = map(json!({"with": "canary-1234"}));
    recorder.record_review(review, answer(ReviewVerdict::Modify { arguments }, "not canary-1234"));
    recorder.record_review(review, answer(ReviewVerdict::Approve, "now"));
    let text = recorder.cassette().to_text().unwrap();
    assert!(!text.contains("canary"), "{text}");
    let cassette = Cassette::parse(&text).unwrap();
    assert_eq!(*cassette.parameters(), map(json!({"k": "***"})));
    assert_eq!(cassette.size().reviews, 2);

    let player = CassettePlayer::new(cassette, secrets());
    let other = ReviewQuestion { question: "Really?", ..review };
    assert_eq!(player.review_answer(other), None);
    let first = player.review_answer(review).unwrap();
    let arguments = map(json!({"with": "***"}));
    assert_eq!(first.verdict, ReviewVerdict::Modify { arguments });
    assert_eq!(first.message.as_deref(), Some("not ***"));
    assert_eq!(player.unused_answers(), ["the person at flow/ask"]);
    assert_eq!(player.review_answer(review).unwrap().verdict, ReviewVerdict::Approve);
    assert_eq!((player.review_answer(review), player.unused_answers().len()), (None, 0));
}

#[tokio::test]
async fn replays_failures_as_final() {
    let script = [Err(failure(ErrorCategory::Transient, "overloaded"))];
    let recorder = plain_recorder(script, []);
    let conversation = TestConversation::new("editor", 1, "Hi");
    conversation.ask(&recorder, &recorder).await.unwrap_err();
    let player = play(recorder.cassette());
    let failed = conversation.ask(&player, &player).await.unwrap_err();
    assert!(failed.is_final, "{failed:?}");
    assert_eq!(failed.failure.category, ErrorCategory::Transient);
}

#[test]
fn rejects_invalid_cassettes_with_a_reason() {
    let cassette_text = Cassette::new("editor", "Hi").to_text().unwrap();
    for end in 0..cassette_text.trim_end().len() {
        let cut = Cassette::parse(&cassette_text[..end]).unwrap_err();
        assert!(matches!(cut, CassetteError::CutShort { .. }), "{end}: {cut}");
    }
    for (text, expected) in [
        ("[]", "it is not a cassette"),
        ("{\"name\": 1}", "it is not a cassette"),
        ("name: editor", "line 1, column 2: it is not JSON: expected ident"),
        ("{\"cassette\": 2}", "it is a cassette of version 2, and this Polity knows version 1"),
        (
            "{\n  \"cassette\": 1,\n  \"agent\": 7\n}",
            "line 3, column 12: invalid type: integer `7`, expected a string",
        ),
        ("{\"cassette\": 1}", "line 1, column 15: missing field `agent`"),
    ] {
        assert_eq!(Cassette::parse(text).unwrap_err().to_string(), expected);
    }
}
