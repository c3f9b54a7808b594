//! A2A servers that send more than memory can hold.

use std::io;
use std::num::NonZeroU64;

use polity_definition::AgentDefinition;
use polity_drivers::EnvSource;
use polity_drivers::remote::{A2aAgents, RemoteOptions};
use polity_engine::driver::{
    CallSite, MessageDelivery, NullTextSink, RemoteDriver, RemoteEnd, RemoteMessage, RemoteOutcome,
    RemoteWork,
};
use polity_model::remote::RemoteTask;
use polity_testkit::raw_http::{RawHttpServer, RawRequest, RawResponse};
use serde_json::{Map, json};

use crate::waiting::wait_until;

/// `limits.output_bytes` in these tests.
const OUTPUT_BYTES: u64 = 1 << 20;

/// Data that may be on its way when a connection is closed.
const IN_FLIGHT_BYTES: u64 = 32 << 20;

const JSON: [(&str, &str); 1] = [("content-type", "application/json")];
const EVENTS: [(&str, &str); 1] = [("content-type", "text/event-stream")];

/// Starts a server with a card. `answer` returns false for requests that it leaves to the default
/// answers: the card, and a task that never ends.
fn start(
    answer: impl Fn(&RawRequest, &mut RawResponse<'_>) -> io::Result<bool> + Send + Sync + 'static,
) -> RawHttpServer {
    RawHttpServer::start(move |request, response| {
        if answer(request, response)? {
            return Ok(());
        }
        if request.method == "GET" {
            let host = request.header("host").unwrap_or_default();
            let interface = json!({"url": format!("http://{host}/rpc"),
                "protocolBinding": "JSONRPC", "protocolVersion": "1.0"});
            let card = json!({"name": "painter", "description": "paints", "version": "1",
                "supportedInterfaces": [interface], "capabilities": {"streaming": true},
                "defaultInputModes": [], "defaultOutputModes": [], "skills": []});
            return response.send(200, &JSON, &card.to_string());
        }
        let task = json!({"id": "t-1", "status": {"state": "TASK_STATE_WORKING"}});
        let body = json!({"jsonrpc": "2.0", "id": 1, "result": task});
        response.send(200, &JSON, &body.to_string())
    })
}

fn agents() -> A2aAgents {
    let output_bytes = NonZeroU64::new(OUTPUT_BYTES).unwrap();
    A2aAgents::new(RemoteOptions { environment: EnvSource::empty(), output_bytes })
}

fn painter(server: &RawHttpServer) -> AgentDefinition {
    let card_url = server.url("/card.json");
    let file = json!({"name": "painter", "kind": "remote", "role": "paints", "card_url": card_url});
    AgentDefinition::from_canonical(&file.to_string()).unwrap()
}

async fn send(server: &RawHttpServer) -> MessageDelivery {
    let (agent, parameters) = (painter(server), Map::new());
    let message = RemoteMessage {
        agent: &agent,
        call_site: CallSite::OUTSIDE,
        id: "m-1",
        text: "a house",
        parameters: &parameters,
        task: None,
    };
    agents().send(message).await
}

async fn assert_refused(outcome: RemoteOutcome, server: &RawHttpServer, limit: &str) {
    let RemoteEnd::Failed { failure, .. } = outcome.end else { panic!("{outcome:?}") };
    assert!(failure.message.contains(limit), "{failure}");
    wait_until("the client has closed the connection", || server.ended_bodies() == 1).await;
    let sent = server.sent_bytes();
    assert!(sent < OUTPUT_BYTES + IN_FLIGHT_BYTES, "{sent} bytes were accepted");
}

#[tokio::test]
async fn endless_card_is_refused_at_its_limit() {
    let server = start(|request, response| {
        if request.method != "GET" {
            return Ok(false);
        }
        response.start(200, &JSON)?;
        response.write(b"{\"name\": \"")?;
        response.write_forever(b'a').map(|()| true)
    });
    let MessageDelivery::Over(outcome) = send(&server).await else { panic!("accepted") };
    assert_refused(outcome, &server, "1048576 bytes, the most that a card may have").await;
}

#[tokio::test]
async fn endless_answer_is_refused_at_its_limit() {
    let server = start(|request, response| {
        if request.rpc_method() != "SendMessage" {
            return Ok(false);
        }
        response.start(200, &JSON)?;
        response.write(b"{\"jsonrpc\": \"2.0\", \"result\": \"")?;
        response.write_forever(b'a').map(|()| true)
    });
    let MessageDelivery::Over(outcome) = send(&server).await else { panic!("accepted") };
    assert_refused(outcome, &server, "limits.output_bytes allows, which is 1048576").await;
}

#[tokio::test]
async fn endless_event_is_refused_at_its_limit() {
    let server = start(|request, response| {
        if request.rpc_method() != "SubscribeToTask" {
            return Ok(false);
        }
        response.start(200, &EVENTS)?;
        response.write(b"data: {\"jsonrpc\": \"2.0\", \"result\": \"")?;
        response.write_forever(b'a').map(|()| true)
    });
    let (agent, task) =
        (painter(&server), RemoteTask { task_id: "t-1".to_owned(), context_id: None });
    let work = RemoteWork { agent: &agent, call_site: CallSite::OUTSIDE, task: &task };
    let outcome = agents().follow(work, &NullTextSink).await;
    assert_refused(outcome, &server, "limits.output_bytes allows, which is 1048576").await;
}
