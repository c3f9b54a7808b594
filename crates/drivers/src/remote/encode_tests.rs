use polity_definition::AgentDefinition;
use polity_engine::driver::{CallSite, RemoteMessage};
use polity_model::remote::RemoteTask;

use super::*;

fn interface(binding: A2aBinding, tenant: Option<&str>) -> A2aInterface {
    let url = Url::parse("https://h/a2a/").unwrap();
    A2aInterface { url, binding, tenant: tenant.map(str::to_owned) }
}

/// A message request with every optional field.
fn message_request(interface: &A2aInterface) -> A2aRequest {
    let agent = json!({"kind": "remote", "name": "painter", "card_url": "https://h/card.json"});
    let agent = AgentDefinition::from_canonical(&agent.to_string()).unwrap();
    let parameters = json!({"size": 3}).as_object().unwrap().clone();
    let task = RemoteTask { task_id: "t-1".into(), context_id: Some("c-1".into()) };
    interface.request(A2aOperation::Send(&RemoteMessage {
        agent: &agent,
        call_site: CallSite::OUTSIDE,
        id: "m-1",
        text: "paint",
        parameters: &parameters,
        task: Some(&task),
    }))
}

#[test]
fn encodes_messages_for_each_version() {
    let rest = json!({"messageId": "m-1", "metadata": {"size": 3}, "taskId": "t-1",
        "contextId": "c-1"});
    let with = |mut message: Value| {
        message.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        message
    };
    let newer = json!({
        "message": with(json!({"role": "ROLE_USER", "parts": [{"text": "paint"}]})),
        "configuration": {"returnImmediately": true},
    });
    let older = json!({
        "message": with(json!({"kind": "message", "role": "user",
            "parts": [{"kind": "text", "text": "paint"}]})),
        "configuration": {"blocking": false},
    });
    let rpc = |method: &str, params: Value| json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    for (binding, path, body, version) in [
        (A2aBinding::JsonRpc1, "/a2a/", rpc("SendMessage", newer.clone()), "1.0"),
        (A2aBinding::HttpJson1, "/a2a/message:send", newer, "1.0"),
        (A2aBinding::JsonRpc03, "/a2a/", rpc("message/send", older), "0.3"),
    ] {
        let request = message_request(&interface(binding, None));
        assert_eq!((request.url.path(), request.version), (path, version));
        assert_eq!(request.body, Some(body));
    }
}

#[test]
fn encodes_task_operations_for_each_binding() {
    let rest = interface(A2aBinding::HttpJson1, Some("art"));
    for (ask, path, has_body) in [
        (A2aOperation::Get("t/1"), "/a2a/art/tasks/t%2F1", false),
        (A2aOperation::Cancel("t-1"), "/a2a/art/tasks/t-1:cancel", true),
        (A2aOperation::Subscribe("t-1"), "/a2a/art/tasks/t-1:subscribe", true),
    ] {
        let request = rest.request(ask);
        assert_eq!((request.url.path(), request.body.is_some()), (path, has_body));
    }
    let methods = |binding, tenant| {
        [A2aOperation::Get("t-1"), A2aOperation::Cancel("t-1"), A2aOperation::Subscribe("t-1")].map(
            |ask| {
                let body = interface(binding, tenant).request(ask).body.unwrap();
                let tenant = body["params"]["tenant"].as_str().unwrap_or_default();
                format!("{}{tenant}", body["method"].as_str().unwrap())
            },
        )
    };
    let newer = ["GetTaskart", "CancelTaskart", "SubscribeToTaskart"];
    assert_eq!(methods(A2aBinding::JsonRpc1, Some("art")), newer);
    assert_eq!(
        methods(A2aBinding::JsonRpc03, None),
        ["tasks/get", "tasks/cancel", "tasks/resubscribe"]
    );
}

#[test]
fn unwraps_results_and_maps_errors() {
    let rpc = interface(A2aBinding::JsonRpc1, None);
    assert_eq!(rpc.unwrap_result(json!({"result": {"id": "t-1"}})), Ok(json!({"id": "t-1"})));
    let response = json!({"error": {"code": -32602, "message": "no parts"}});
    let error = RemoteError::Rpc { code: -32602, message: "no parts".into() };
    assert_eq!(rpc.unwrap_result(response), Err(error));
    assert!(matches!(rpc.unwrap_result(json!({})), Err(RemoteError::Unreadable(_))));
    assert!(interface(A2aBinding::HttpJson1, None).unwrap_result(json!({"id": "t-1"})).is_ok());
}
