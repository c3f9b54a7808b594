use serde_json::json;

use super::*;

#[test]
fn parses_states_in_both_spellings() {
    for (state, label) in A2aState::LABELS {
        let newer = label.to_ascii_uppercase().replace('-', "_");
        assert_eq!((A2aState::of(label), state.label()), (state, label));
        assert_eq!(A2aState::of(&format!("{STATE_PREFIX}{newer}")), state);
    }
    assert_eq!(A2aState::of("TASK_STATE_UNSPECIFIED"), A2aState::Unknown);
    let settled = A2aState::LABELS.into_iter().filter(|(state, _)| state.is_settled());
    assert_eq!(settled.count(), 6);
}

#[test]
fn decodes_replies_of_both_versions() {
    let task = json!({"id": "t-1", "contextId": "c-1", "status": {"state": "TASK_STATE_WORKING"}});
    let mut older = task.clone();
    (older["kind"], older["status"]["state"]) = (json!("task"), json!("working"));
    for answer in [json!({"task": task}), older] {
        let Ok(A2aReply::Task(task)) = decode_reply(answer) else { panic!("no task") };
        assert_eq!((task.id.as_str(), task.status.state), ("t-1", A2aState::Working));
        assert_eq!(task.to_remote_task().context_id.as_deref(), Some("c-1"));
    }
    let newer = json!({"message": {"role": "ROLE_AGENT", "parts": [{"text": "hello"}]}});
    let older = json!({"kind": "message", "role": "agent",
        "parts": [{"kind": "text", "text": "hello"}]});
    for answer in [newer, older] {
        let Ok(A2aReply::Message(message)) = decode_reply(answer) else { panic!("no message") };
        assert_eq!(message.text(), "hello");
    }
    assert!(decode_reply(json!({"kind": "status-update"})).is_err());
    assert!(decode_reply(json!({"task": {"id": 7}})).is_err());
}

#[test]
fn result_prefers_artifacts_then_status_then_last_message() {
    let with = |more: Value| {
        let mut json = json!({"id": "t", "status": {"state": "completed"}});
        json.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        decode_task(json).unwrap().result()
    };
    let status = json!({"state": "completed", "message": {"parts": [{"text": "done"}]}});
    let chunks = json!([{"parts": [{"text": "one "}, {"text": "two"}]}, {"parts": []},
        {"parts": [{"data": {"n": 3}}]}]);
    assert_eq!(with(json!({"status": status, "artifacts": chunks})), "one two\n{\"n\":3}");
    assert_eq!(with(json!({"status": status, "artifacts": []})), "done");
    let history = json!([{"role": "ROLE_AGENT", "parts": [{"text": "last"}]},
        {"role": "ROLE_USER", "parts": [{"text": "asked"}]}]);
    assert_eq!(with(json!({"history": history})), "last");
    assert_eq!(with(json!({"artifacts": null})), "");
}

#[test]
fn renders_files_with_name_and_link() {
    for (part, expected) in [
        (
            json!({"url": "https://h/a", "filename": "a", "mediaType": "image/png"}),
            "a, image/png: https://h/a",
        ),
        (json!({"file": {"uri": "https://h/a", "name": "a"}}), "a: https://h/a"),
        (json!({"raw": "AAAA", "filename": "a"}), "a: 3 bytes"),
        (json!({"file": {"bytes": "AAA=", "mimeType": "x/y"}}), "without a name, x/y: 2 bytes"),
    ] {
        let part: A2aPart = serde_json::from_value(part).unwrap();
        assert_eq!(part.to_string(), format!("[file {expected}]"));
    }
}

#[test]
fn decodes_stream_events_of_both_versions() {
    for event in [
        json!({"statusUpdate": {"taskId": "t", "status": {"state": "TASK_STATE_COMPLETED"}}}),
        json!({"kind": "status-update", "status": {"state": "completed"}, "final": true}),
        json!({"task": {"id": "t", "status": {"state": "TASK_STATE_COMPLETED"}}}),
    ] {
        assert!(matches!(decode_event(event), A2aStreamEvent::StateChanged(A2aState::Completed)));
    }
    for event in [
        json!({"artifactUpdate": {"artifact": {"parts": [{"text": "piece"}]}}}),
        json!({"kind": "artifact-update", "artifact": {"parts": [{"kind": "text", "text": "piece"}]}}),
    ] {
        let A2aStreamEvent::ArtifactText(piece) = decode_event(event) else { panic!("no piece") };
        assert_eq!(piece, "piece");
    }
    assert!(matches!(decode_event(json!({"message": {"parts": []}})), A2aStreamEvent::Other));
}

#[test]
fn reads_usage_from_metadata() {
    let usage = json!({"usage": {"input_tokens": 5, "output_tokens": 2}});
    let used = decode_task(json!({"id": "t", "status": {"state": "completed"}, "metadata": usage}));
    let used = used.unwrap().usage();
    assert_eq!((used.input_tokens, used.output_tokens), (5, 2));
}
