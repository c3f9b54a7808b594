//! `polity check`, `schema` and `agent`, with valid and invalid definitions.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::sandbox::HomeSandbox;

/// A home with a problem in every file.
fn broken_home() -> HomeSandbox {
    let sandbox = HomeSandbox::new();
    sandbox.write("polity.yaml", "limits: {concurent_tasks: 5}\nstore: {durability: ful}\n");
    sandbox.write("agents/torn.yaml", "name: torn\nkind: llm\nrole: [unclosed\n");
    sandbox.write(
        "agents/typed.yaml",
        "name: typed\nkind: llm\nrole: 42\nsystem_prompt: p\ntool: []\ntemperature: 3\n\
         llm_config: {provider: scriptd, script: greeter}\n",
    );
    sandbox.write(
        "agents/lost.yaml",
        "name: lost\nkind: llm\nrole: r\nsystem_prompt: p\n\
         llm_config: {provider: scripted, script: greter}\n",
    );
    sandbox.write("agents/Bad-Name.yaml", "name: Bad-Name\nkind: remote\ncard_url: http://x\n");
    sandbox.write("agents/twin.yaml", "name: twin\nkind: remote\ncard_url: http://x\n");
    sandbox
        .write("workflows/twin.yaml", "name: twin\npatterns: [react]\nagents: {agent: greeter}\n");
    sandbox.write("scripts/odd.yaml", "rules:\n  - {when: \"(\", reply: hi}\n");
    sandbox
        .write("schedules/nightly.yaml", "name: nightly\nagent: greeter\ncron_expression: soon\n");
    sandbox
}

#[test]
fn check_reports_every_problem() {
    let sandbox = broken_home();
    let output = sandbox.polity(&["check"]);
    assert_eq!((output.code, output.out.as_str()), (2, ""), "{output:?}");
    insta::assert_snapshot!(output.err);
}

#[test]
fn check_json_has_the_documented_fields() {
    let sandbox = broken_home();
    let (report, code) = sandbox.json(&["check"]);
    assert_eq!((code, &report["valid"]), (2, &Value::Bool(false)));
    let errors = report["errors"].as_array().unwrap();
    assert!(errors.len() >= 12, "{report}");
    for error in errors {
        for field in ["file", "line", "column", "field", "message", "suggestion"] {
            assert!(error.get(field).is_some(), "{field}: {error}");
        }
        assert!(error["line"].as_u64().unwrap() >= 1, "{error}");
    }
    let report = HomeSandbox::new().get(&["check"]);
    assert_eq!(report, serde_json::json!({"valid": true, "errors": []}));
}

#[test]
fn condition_and_template_typos_get_suggestions() {
    let sandbox = HomeSandbox::new();
    for (node, found, suggestion) in [
        ("type: condition, expression: 'inptu == last'", "inptu", "input"),
        ("type: condition, expression: 'sise(last) > 2'", "sise", "size"),
        ("type: agent, agent: greeter, input: '{{ lst }}'", "lst", "last"),
        ("type: agent, agent: greeter, input: '{{ last | uper }}'", "uper", "upper"),
        ("type: agent, agent: greeter, input: '{{ nodes.a.outptu }}'", "outptu", "output"),
        ("type: agent, agent: greeter, input: '{{ nodes.aa.output }}'", "aa", "a"),
    ] {
        let text = format!("name: flow\nentry_point: a\nnodes: {{a: {{{node}}}}}\n");
        sandbox.write("workflows/flow.yaml", &text);
        let (report, code) = sandbox.json(&["check"]);
        let error = &report["errors"][0];
        assert_eq!((code, &error["suggestion"]), (2, &Value::from(suggestion)), "{report}");
        let message = error["message"].as_str().unwrap();
        assert!(message.ends_with(&format!("\"{found}\"")), "{message}");
    }
}

#[test]
fn invalid_file_affects_only_its_agent() {
    let sandbox = HomeSandbox::new();
    sandbox.write("agents/torn.yaml", "name: torn\nkind: llm\nrole: [unclosed\n");
    sandbox.polity(&["run", "greeter", "Ada"]).exits(0);
    let output = sandbox.polity(&["run", "torn", "Ada"]).exits(2);
    assert!(output.err.starts_with("agents/torn.yaml:"), "{output:?}");
    assert!(output.err.contains("the definition of \"torn\" is not valid"), "{output:?}");

    sandbox.write("scripts/greeter.yaml", "rules: 7");
    sandbox.polity(&["run", "greeter", "Ada"]).fails(2, "scripts/greeter.yaml:1:8");
}

#[test]
fn invalid_settings_stop_every_task() {
    let sandbox = HomeSandbox::new();
    sandbox.write("polity.yaml", "limits: {input_byte: 3}");
    sandbox.polity(&["run", "greeter", "Ada"]).fails(2, "did you mean \"input_bytes\"?");
}

#[test]
fn missing_home_is_an_error() {
    let sandbox = HomeSandbox::empty();
    let output = sandbox.polity(&["--home", "nowhere", "check"]);
    let output = output.fails(1, "there is no home folder nowhere");
    output.err_has("hint: create one with `polity init`");
}

#[test]
fn every_command_reports_a_missing_home() {
    let sandbox = HomeSandbox::empty();
    for args in [
        vec!["task", "list"],
        vec!["run", "greeter", "x"],
        vec!["agent", "list"],
        vec!["backup", "b"],
    ] {
        let error = sandbox.error(1, &[&["--home", "nowhere"], args.as_slice()].concat());
        assert_eq!(error.code, "not_found", "{args:?}");
        assert!(!sandbox.file("nowhere").exists());
    }
}

#[test]
fn unreadable_file_is_a_problem() {
    let sandbox = HomeSandbox::new();
    fs::write(sandbox.file("agents/latin.yaml"), b"name: latin\nrole: caf\xe9\n").unwrap();
    std::os::unix::fs::symlink("nothing", sandbox.file("agents/lost.yaml")).unwrap();
    let output = sandbox.polity(&["check"]);
    assert_eq!(output.code, 2, "{output:?}");
    assert!(output.err.contains("agents/latin.yaml:1:1: the file is not UTF-8 text"), "{output:?}");
    assert!(output.err.contains("agents/lost.yaml:1:1: the file cannot be read"), "{output:?}");
    sandbox.polity(&["run", "greeter", "Ada"]).exits(0);
}

#[test]
fn agent_list_and_show_work() {
    let sandbox = HomeSandbox::new();
    let (agents, _) = sandbox.json(&["agent", "list"]);
    assert_eq!(agents[0]["name"], "greeter");
    assert_eq!(agents[0]["kind"], "llm");
    let (agent, _) = sandbox.json(&["agent", "show", "greeter"]);
    assert_eq!(agent["llm_config"]["script"], "greeter");
    assert_eq!(agent["max_iterations"], 10);
    sandbox.polity(&["agent", "list"]).out_has("scripted/greeter");
    sandbox.polity(&["agent", "show", "nobody"]).exits(2);
}

#[test]
fn schemas_accept_the_shipped_files() {
    let sandbox = HomeSandbox::empty();
    let schema = |kind: &str| -> jsonschema::Validator {
        let output = sandbox.polity(&["schema", kind]);
        jsonschema::validator_for(&serde_json::from_str(&output.out).unwrap()).unwrap()
    };
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut checked = 0;
    for (folder, kind) in [("agents", "agent"), ("scripts", "script"), ("workflows", "workflow")] {
        let validator = schema(kind);
        for example in fs::read_dir(&examples).unwrap() {
            let Ok(files) = fs::read_dir(example.unwrap().path().join(folder)) else { continue };
            for file in files {
                let path = file.unwrap().path();
                let text = fs::read_to_string(&path).unwrap();
                let value: Value = serde_saphyr::from_str(&text).unwrap();
                let errors: Vec<_> =
                    validator.iter_errors(&value).map(|error| error.to_string()).collect();
                assert!(errors.is_empty(), "{}: {errors:?}", path.display());
                checked += 1;
            }
        }
    }
    assert!(checked >= 4, "{checked}");
    let wrong = serde_json::json!({"name": "x", "kind": "llm", "unknown": 1});
    assert!(!schema("agent").is_valid(&wrong));
}
