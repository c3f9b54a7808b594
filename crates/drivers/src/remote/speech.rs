//! What is asked of an A2A server, as each binding spells it.

use std::fmt;

use polity_engine::driver::RemoteMessage;
use reqwest::Url;
use serde_json::{Map, Value, json};

use super::fault::Fault;

/// A way of speaking, the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Binding {
    JsonRpc1,
    HttpJson1,
    JsonRpc03,
}

impl Binding {
    /// All that are spoken.
    pub(super) const ALL: [Self; 3] = [Self::JsonRpc1, Self::HttpJson1, Self::JsonRpc03];

    /// The version of the protocol.
    pub(super) fn version(self) -> &'static str {
        match self {
            Self::JsonRpc1 | Self::HttpJson1 => "1.0",
            Self::JsonRpc03 => "0.3",
        }
    }
}

impl fmt::Display for Binding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::JsonRpc1 | Self::JsonRpc03 => "JSONRPC",
            Self::HttpJson1 => "HTTP+JSON",
        };
        write!(f, "{name} {}", self.version())
    }
}

/// A way to reach an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Interface {
    pub(super) url: Url,
    pub(super) binding: Binding,
    /// Who is meant, where one address serves several.
    pub(super) tenant: Option<String>,
}

/// What is asked of a server.
#[derive(Clone, Copy)]
pub(super) enum Ask<'a> {
    /// To take a message.
    Send(&'a RemoteMessage<'a>),
    /// How a task is.
    Get(&'a str),
    /// To end a task.
    Cancel(&'a str),
    /// To tell of a task as it goes on.
    Subscribe(&'a str),
}

/// A request.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Request {
    pub(super) url: Url,
    /// What is posted; nothing where the request only asks.
    pub(super) body: Option<Value>,
    pub(super) version: &'static str,
}

impl Interface {
    /// The request that asks it.
    pub(super) fn request(&self, ask: Ask<'_>) -> Request {
        let version = self.binding.version();
        let (url, body) = match self.binding {
            Binding::JsonRpc1 => {
                let (method, params) = match ask {
                    Ask::Send(message) => ("SendMessage", send_1(message)),
                    Ask::Get(id) => ("GetTask", json!({"id": id})),
                    Ask::Cancel(id) => ("CancelTask", json!({"id": id})),
                    Ask::Subscribe(id) => ("SubscribeToTask", json!({"id": id})),
                };
                (self.url.clone(), Some(rpc(method, &self.for_tenant(params))))
            }
            Binding::JsonRpc03 => {
                let (method, params) = match ask {
                    Ask::Send(message) => ("message/send", send_03(message)),
                    Ask::Get(id) => ("tasks/get", json!({"id": id})),
                    Ask::Cancel(id) => ("tasks/cancel", json!({"id": id})),
                    Ask::Subscribe(id) => ("tasks/resubscribe", json!({"id": id})),
                };
                (self.url.clone(), Some(rpc(method, &params)))
            }
            Binding::HttpJson1 => match ask {
                Ask::Send(message) => (self.path(&["message:send"]), Some(send_1(message))),
                Ask::Get(id) => (self.path(&["tasks", id]), None),
                Ask::Cancel(id) => (self.path(&["tasks", &format!("{id}:cancel")]), Some(empty())),
                Ask::Subscribe(id) => {
                    (self.path(&["tasks", &format!("{id}:subscribe")]), Some(empty()))
                }
            },
        };
        Request { url, body, version }
    }

    /// What a server answered, without what the binding wraps it in.
    pub(super) fn answer(&self, mut json: Value) -> Result<Value, Fault> {
        match self.binding {
            Binding::HttpJson1 => Ok(json),
            Binding::JsonRpc1 | Binding::JsonRpc03 => {
                if let Some(error) = json.get("error").filter(|error| error.is_object()) {
                    let code = error["code"].as_i64().unwrap_or_default();
                    let message = error["message"].as_str().unwrap_or_default().to_owned();
                    return Err(Fault::Rpc { code, message });
                }
                match json.get_mut("result") {
                    Some(result) => Ok(result.take()),
                    None => Err(Fault::Unreadable("it has neither result nor error".to_owned())),
                }
            }
        }
    }

    fn for_tenant(&self, mut params: Value) -> Value {
        if let Some(tenant) = &self.tenant {
            params["tenant"] = json!(tenant);
        }
        params
    }

    fn path(&self, more: &[&str]) -> Url {
        let mut url = self.url.clone();
        // Addresses with a host can have a path, and all that get here have one.
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(&self.tenant).extend(more);
        }
        url
    }
}

fn empty() -> Value {
    Value::Object(Map::new())
}

fn rpc(method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
}

fn send_1(message: &RemoteMessage<'_>) -> Value {
    let parts = json!([{"text": message.text}]);
    let message = with_rest(json!({"role": "ROLE_USER", "parts": parts}), message);
    json!({"message": message, "configuration": {"returnImmediately": true}})
}

fn send_03(said: &RemoteMessage<'_>) -> Value {
    let parts = json!([{"kind": "text", "text": said.text}]);
    let message = json!({"kind": "message", "role": "user", "parts": parts});
    let message = with_rest(message, said);
    json!({"message": message, "configuration": {"blocking": false}})
}

/// What both versions call alike.
fn with_rest(mut json: Value, message: &RemoteMessage<'_>) -> Value {
    json["messageId"] = json!(message.id);
    if !message.parameters.is_empty() {
        json["metadata"] = Value::Object(message.parameters.clone());
    }
    if let Some(task) = message.task {
        json["taskId"] = json!(task.task_id);
        if let Some(context_id) = &task.context_id {
            json["contextId"] = json!(context_id);
        }
    }
    json
}

#[cfg(test)]
#[path = "speech_tests.rs"]
mod tests;
