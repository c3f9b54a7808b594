//! Agents with an `output_schema`.

use polity_testkit::model_server::{ModelServer, ModelTurn};
use serde_json::{Value, json};

use crate::sandbox::HomeSandbox;

const SCRIPT: &str = r#"
rules:
  - {when: "^at once$", reply: '{"age": 36}'}
  - {when: "^fenced$", reply: "```json\n{\"age\": 36}\n```\n"}
  - {when: "^later$", role: user, reply: "Thirty-six.", times: 1}
  - {when: "it is not JSON", role: user, reply: '{"age": "36"}', times: 1}
  - {when: "/age: \"36\" is a string", role: user, reply: ' {"age":36} ', times: 1}
  - {when: "^empty$", reply: "", times: 1}
  - {when: "it is empty", reply: '{"age": 36}'}
default: {reply: "[]"}
"#;

fn home() -> HomeSandbox {
    let sandbox = HomeSandbox::bare();
    sandbox.write("scripts/clerk.yaml", SCRIPT);
    let schema = "{type: object, required: [age], properties: {age: {type: integer}}}";
    sandbox.write_scripted_agent("clerk", &format!(", output_schema: {schema}"));
    sandbox
}

#[test]
fn result_is_exactly_the_json_text() {
    let sandbox = home();
    for (input, result) in
        [("at once", r#"{"age": 36}"#), ("fenced", r#"{"age": 36}"#), ("later", r#"{"age":36}"#)]
    {
        let (task, code) = sandbox.json(&["run", "clerk", input]);
        assert_eq!((code, task["result"].as_str()), (0, Some(result)), "{task}");
        let (shown, _) = sandbox.json(&["task", "show", "last"]);
        assert_eq!(shown["result"], result, "{shown}");
    }
    sandbox.polity(&["run", "clerk", "fenced", "-q"]).prints("{\"age\": 36}\n");
}

#[test]
fn corrections_appear_in_the_trace() {
    let sandbox = home();
    let output = sandbox.polity(&["run", "clerk", "later"]);
    assert_eq!((output.code, output.out.as_str()), (0, "{\"age\":36}\n"), "{output:?}");
    assert!(output.err.contains("sent to the model: Your answer cannot be used: it is not JSON"));
    let expected = ["model_call", "message", "model_call", "message", "model_call", "completed"];
    assert_eq!(sandbox.step_names("last")[2..], expected);
    let output = sandbox.polity(&["run", "clerk", "empty"]);
    assert_eq!(output.out, "{\"age\": 36}\n", "{output:?}");
}

#[test]
fn invalid_answer_fails_the_task_and_is_kept() {
    let sandbox = home();
    let (task, code) = sandbox.json(&["run", "clerk", "never"]);
    assert_eq!((code, task["error_code"].as_str()), (1, Some("invalid_output")), "{task}");
    assert_eq!(task["result"], "[]");
    let error = task["error"].as_str().unwrap();
    for part in ["output_schema", "3 times", "[] is an array, expected object"] {
        assert!(error.contains(part), "{error}");
    }
    assert_eq!(sandbox.step_names("last").iter().filter(|step| *step == "message").count(), 3);
}

#[test]
fn invalid_schema_is_rejected_before_the_run() {
    let sandbox = home();
    let schema = ",\n          output_schema: {type: objekt, properties: {a: {$ref: 5}}}";
    sandbox.write_scripted_agent("clerk", schema);
    for args in [["check"].as_slice(), &["run", "clerk", "at once"]] {
        let output = sandbox.polity(args).exits(2);
        let output = format!("{}{}", output.out, output.err);
        for problem in [
            "agents/clerk.yaml:2:33: output_schema.type: unknown value \"objekt\", did you mean \
             \"object\"?",
            "output_schema.properties.a.$ref must be a text, found the number 5",
        ] {
            assert!(output.contains(problem), "{output}");
        }
    }
}

#[test]
fn http_model_gets_the_schema_and_the_validation_error() {
    let server = ModelServer::with([ModelTurn::text("36"), ModelTurn::text("{\"age\": 36}")]);
    let sandbox = home();
    let agent = format!(
        "{{name: clerk, kind: llm, role: r, system_prompt: p, output_schema: {{type: object}},
          llm_config: {{provider: ollama, model: m, endpoint: \"{}\"}}}}",
        server.url()
    );
    sandbox.write("agents/clerk.yaml", &agent);
    let (task, code) = sandbox.json(&["run", "clerk", "Ada"]);
    assert_eq!((code, &task["result"]), (0, &json!("{\"age\": 36}")), "{task}");
    let requests = server.requests();
    let output: Vec<&Value> = requests[1].body["messages"].as_array().unwrap().iter().collect();
    assert_eq!(output.len(), 4, "{output:?}");
    assert!(
        output[0]["content"].as_str().unwrap().ends_with("{\"type\":\"object\"}"),
        "{output:?}"
    );
    assert_eq!(output[2]["content"], "36");
    let problem = "36 is a number, expected object";
    assert!(output[3]["content"].as_str().unwrap().contains(problem), "{output:?}");
}
