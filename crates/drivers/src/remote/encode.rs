//! Encodes A2A operations as requests, for each protocol binding.

use std::fmt;

use polity_engine::driver::RemoteMessage;
use reqwest::Url;
use serde_json::{Map, Value, json};

use super::error::RemoteError;

/// A protocol binding, in order of preference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum A2aBinding {
    JsonRpc1,
    HttpJson1,
    JsonRpc03,
}

impl A2aBinding {
    pub(super) const ALL: [Self; 3] = [Self::JsonRpc1, Self::HttpJson1, Self::JsonRpc03];

    /// True if updates of a task can be subscribed to. Servers on the Python SDK of 0.3 store each
    /// piece of an artifact once per subscriber: a subscription would double the answer.
    pub(super) fn can_subscribe(self) -> bool {
        match self {
            Self::JsonRpc1 | Self::HttpJson1 => true,
            Self::JsonRpc03 => false,
        }
    }

    pub(super) fn version(self) -> &'static str {
        match self {
            Self::JsonRpc1 | Self::HttpJson1 => "1.0",
            Self::JsonRpc03 => "0.3",
        }
    }
}

impl fmt::Display for A2aBinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::JsonRpc1 | Self::JsonRpc03 => "JSONRPC",
            Self::HttpJson1 => "HTTP+JSON",
        };
        write!(f, "{name} {}", self.version())
    }
}

/// A selected interface of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct A2aInterface {
    pub(crate) url: Url,
    pub(super) binding: A2aBinding,
    /// The tenant, if one URL serves several.
    pub(super) tenant: Option<String>,
}

#[derive(Clone, Copy)]
pub(super) enum A2aOperation<'a> {
    Send(&'a RemoteMessage<'a>),
    Get(&'a str),
    Cancel(&'a str),
    /// Streams the updates of a task.
    Subscribe(&'a str),
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct A2aRequest {
    pub(super) url: Url,
    /// The body of a POST; `None` for a GET.
    pub(super) body: Option<Value>,
    pub(super) version: &'static str,
}

impl A2aInterface {
    pub(super) fn request(&self, operation: A2aOperation<'_>) -> A2aRequest {
        let version = self.binding.version();
        let (url, body) = match self.binding {
            A2aBinding::JsonRpc1 => {
                let (method, params) = match operation {
                    A2aOperation::Send(message) => ("SendMessage", send_params_v1(message)),
                    A2aOperation::Get(id) => ("GetTask", json!({"id": id})),
                    A2aOperation::Cancel(id) => ("CancelTask", json!({"id": id})),
                    A2aOperation::Subscribe(id) => ("SubscribeToTask", json!({"id": id})),
                };
                (self.url.clone(), Some(rpc(method, &self.for_tenant(params))))
            }
            A2aBinding::JsonRpc03 => {
                let (method, params) = match operation {
                    A2aOperation::Send(message) => ("message/send", send_params_v03(message)),
                    A2aOperation::Get(id) => ("tasks/get", json!({"id": id})),
                    A2aOperation::Cancel(id) => ("tasks/cancel", json!({"id": id})),
                    A2aOperation::Subscribe(id) => ("tasks/resubscribe", json!({"id": id})),
                };
                (self.url.clone(), Some(rpc(method, &params)))
            }
            A2aBinding::HttpJson1 => match operation {
                A2aOperation::Send(message) => {
                    (self.path(&["message:send"]), Some(send_params_v1(message)))
                }
                A2aOperation::Get(id) => (self.path(&["tasks", id]), None),
                A2aOperation::Cancel(id) => {
                    (self.path(&["tasks", &format!("{id}:cancel")]), Some(empty()))
                }
                A2aOperation::Subscribe(id) => {
                    (self.path(&["tasks", &format!("{id}:subscribe")]), Some(empty()))
                }
            },
        };
        A2aRequest { url, body, version }
    }

    /// Unwraps the result from the JSON-RPC envelope.
    pub(super) fn unwrap_result(&self, mut json: Value) -> Result<Value, RemoteError> {
        match self.binding {
            A2aBinding::HttpJson1 => Ok(json),
            A2aBinding::JsonRpc1 | A2aBinding::JsonRpc03 => {
                if let Some(error) = json.get("error").filter(|error| error.is_object()) {
                    let code = error["code"].as_i64().unwrap_or_default();
                    let message = error["message"].as_str().unwrap_or_default().to_owned();
                    return Err(RemoteError::Rpc { code, message });
                }
                match json.get_mut("result") {
                    Some(result) => Ok(result.take()),
                    None => {
                        Err(RemoteError::Unreadable("it has neither result nor error".to_owned()))
                    }
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
        // Every URL here has a host, and so a path.
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

fn send_params_v1(message: &RemoteMessage<'_>) -> Value {
    let parts = json!([{"text": message.text}]);
    let message = with_common_fields(json!({"role": "ROLE_USER", "parts": parts}), message);
    json!({"message": message, "configuration": {"returnImmediately": true}})
}

fn send_params_v03(said: &RemoteMessage<'_>) -> Value {
    let parts = json!([{"kind": "text", "text": said.text}]);
    let message = json!({"kind": "message", "role": "user", "parts": parts});
    let message = with_common_fields(message, said);
    json!({"message": message, "configuration": {"blocking": false}})
}

/// Adds the fields that both versions share.
fn with_common_fields(mut json: Value, message: &RemoteMessage<'_>) -> Value {
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
#[path = "encode_tests.rs"]
mod tests;
