//! `polity run` with maps: results, limits, the trace, crashes and archives.

use std::fs;

use serde_json::{Value, json};

use crate::sandbox::{HomeSandbox, kill};
use crate::tools::home;

fn sandbox(step: &str, more: &str) -> HomeSandbox {
    let sandbox = HomeSandbox::bare();
    sandbox.write_scripted_agent("writer", "");
    let rules = "rules: [{when: '^bad', error: {status: 400}}]\n";
    sandbox.write("scripts/writer.yaml", &format!("{rules}default: {{reply: 'wrote $input'}}\n"));
    sandbox.write("workflows/each.yaml", &workflow(step, more));
    sandbox
}

fn workflow(step: &str, more: &str) -> String {
    format!(
        "name: each\nentry_point: items\nnodes:\n  \
         items: {{type: map, over: '{{{{ input }}}}', {step}{more}}}\n"
    )
}

const AGENT: &str = "node: {type: agent, agent: writer}";

#[test]
fn map_gives_the_outputs_in_order_and_folds_its_trace() {
    let sandbox = sandbox(AGENT, "");
    let items: Vec<String> = (0..30).map(|item| format!("i{item}")).collect();
    let output = sandbox.polity(&["run", "each", &json!(items).to_string()]).exits(0);
    let expected: Vec<String> = items.iter().map(|item| format!("wrote {item}")).collect();
    assert_eq!(serde_json::from_str::<Vec<String>>(output.out.trim()).unwrap(), expected);
    let steps = sandbox.get(&["task", "trace", "last"])["steps"].clone();
    let messages: Vec<&str> =
        steps.as_array().unwrap().iter().map(|step| step["message"].as_str().unwrap()).collect();
    assert_eq!(
        messages.iter().filter(|message| message.starts_with("item ")).count(),
        3,
        "{messages:?}"
    );
    assert!(messages.contains(&"30 of 30"), "{messages:?}");
    let text = sandbox.polity(&["task", "trace", "last"]).exits(0).out_has("30 of 30").out;
    assert_eq!(text.matches("writer completed in").count(), 3, "{text}");
    assert!(text.contains("27 items more: `polity task list --parent "), "{text}");
    assert_eq!(output.err.matches("model call").count(), 3, "{output:?}");
    sandbox.polity(&["task", "show", "last"]).exits(0).out_has("wrote i29");
}

#[test]
fn collected_failures_are_in_the_list_and_in_the_trace() {
    let sandbox = sandbox(AGENT, ", on_item_error: collect");
    let output = sandbox.polity(&["run", "each", "[\"a\", \"bad\", \"c\"]"]).exits(0);
    let outputs: Value = serde_json::from_str(output.out.trim()).unwrap();
    assert_eq!((&outputs[0], &outputs[2]), (&json!("wrote a"), &json!("wrote c")));
    assert_eq!(outputs[1]["error"]["code"], "model_rejected", "{outputs}");
    sandbox
        .polity(&["task", "trace", "last"])
        .out_has("3 of 3, 1 failed")
        .out_has("item 1: model_rejected");
    let sandbox = self::sandbox(AGENT, "");
    sandbox
        .polity(&["run", "each", "[\"a\", \"bad\", \"c\"]"])
        .fails(1, "items: item 1: writer failed");
}

#[test]
fn wrong_lists_are_refused_with_the_reason() {
    let sandbox = sandbox("node: {type: condition, expression: item}", "");
    sandbox.polity(&["run", "each", "[]"]).exits(0).prints("[]\n");
    sandbox.polity(&["run", "each", "a, b"]).fails(
        1,
        "items: its over gives a text that is not a JSON list, but a list is needed: \"a, b\"",
    );
    let million = json!(vec![0; 1_000_000]).to_string();
    let output = sandbox.polity_with_input(&["run", "each", "-"], million.as_bytes());
    output.fails(
        6,
        "items: its list has 1000000 items, more than the 10000 that limits.map_items in \
         polity.yaml allows",
    );
    sandbox.write("polity.yaml", "limits: {map_items: 2}");
    sandbox.polity(&["run", "each", "[1, 2]"]).exits(0).prints("[1,2]\n");
    let (task, code) = sandbox.json(&["run", "each", "[1, 2, 3]"]);
    assert_eq!((code, &task["error_code"]), (6, &json!("limit_items")));
    sandbox.write("polity.yaml", "limits: {map_items: 200000}");
    sandbox.polity(&["check"]).fails(2, "limits.map_items: 200000 is more than 100000");
}

#[test]
fn check_explains_wrong_maps() {
    let sandbox = sandbox(AGENT, "");
    for (step, expected) in [
        ("over: hello, node: {type: agent, agent: writer}", "over gives a text"),
        ("over: [1]", "a map runs a node or a workflow"),
        ("over: [1], node: {type: agent, agent: writer}, workflow: each", "not both"),
        ("over: [1], as: input, node: {type: agent, agent: writer}", "has a meaning already"),
        (
            "over: [1], node: {type: agent, agent: writer, input: '{{ thing }}'}",
            "the State has no \"thing\"",
        ),
        ("over: [1], node: {type: agent, agent: nobody}", "nobody"),
        ("over: [1], node: {type: human, question: Yes?}", "human"),
        ("over: [1], outputs: [a, b], node: {type: agent, agent: writer}", "a map has one output"),
    ] {
        let text =
            format!("name: each\nentry_point: items\nnodes:\n  items: {{type: map, {step}}}\n");
        sandbox.write("workflows/each.yaml", &text);
        let output = sandbox.polity(&["check"]);
        assert_eq!(output.code, 2, "{step}: {output:?}");
        let all = format!("{}{}", output.out, output.err);
        assert!(
            all.contains("workflows/each.yaml:") && all.contains(expected),
            "{step}: {output:?}"
        );
    }
}

#[test]
fn map_is_a_stack_in_pictures() {
    let sandbox = sandbox(AGENT, "");
    sandbox.polity(&["run", "each", "[\"a\"]"]).exits(0);
    let draw = |format: &str| {
        sandbox.polity(&["workflow", "graph", "each", "--format", format]).exits(0).out
    };
    assert_eq!(draw("svg").matches("<rect").count(), 3);
    assert!(draw("dot").contains("shape=box3d"));
    assert!(draw("mermaid").contains("map") && draw("mermaid").contains("each: agent writer"));
}

#[test]
fn exported_map_is_imported_unchanged() {
    let sandbox = sandbox(AGENT, ", on_item_error: collect, max_parallel: 3");
    sandbox.polity(&["run", "each", "[\"a\", \"bad\", {\"c\": 1}, 4]"]).exits(0);
    let id = sandbox.get(&["task", "show", "last"])["id"].as_str().unwrap().to_owned();
    let folder = sandbox.file("archive").to_str().unwrap().to_owned();
    sandbox.polity(&["task", "export", &id, "--out", &folder]).exits(0);
    let other = HomeSandbox::bare();
    other.polity(&["task", "import", &folder]).exits(0);
    let show = |sandbox: &HomeSandbox| sandbox.get(&["task", "show", &id])["result"].clone();
    assert_eq!(show(&other), show(&sandbox));
    let steps = |sandbox: &HomeSandbox| sandbox.step_names(&id);
    assert_eq!(steps(&other)[..steps(&sandbox).len()], steps(&sandbox)[..]);
}

/// Kills the process in the middle of a map, and resumes it until it ends.
#[test]
fn killed_map_runs_every_item_once() {
    let sandbox = home("", "{}", &[]);
    sandbox.write("scripts/worker.yaml", "default: {reply: nothing}");
    let step =
        "node: {type: tool, tool: kit/count_slowly, arguments: {file: '{{ item }}', seconds: 0.2}}";
    sandbox.write("workflows/each.yaml", &workflow(step, ", max_parallel: 2"));
    let items: Vec<String> = (0..6).map(|item| format!("count-{item}")).collect();
    let mut child = sandbox.start(&["run", "each", &json!(items).to_string()]);
    sandbox
        .wait_until("the third item is called", || sandbox.file("count-2").exists().then_some(()));
    kill(&mut child);
    let id = sandbox.tasks()[0]["id"].as_str().unwrap().to_owned();
    let done =
        |item: &str| fs::read_to_string(sandbox.file(item)).unwrap_or_default().lines().count();
    let mut reviews = 0;
    loop {
        let output = sandbox.polity(&["task", "resume", &id]);
        if output.code != 3 {
            output.exits(0);
            break;
        }
        let review = sandbox.get(&["review", "show", &id]);
        let call = review["arguments"]["file"].as_str().unwrap().to_owned();
        let choice =
            if done(&call) == 0 { vec!["--retry"] } else { vec!["--skip-with", "counted slowly"] };
        let args = [vec!["review", "approve", &id, "--detach"], choice].concat();
        sandbox.polity(&args).exits(0);
        reviews += 1;
        if sandbox.get(&["task", "show", &id])["status"] == "completed" {
            break;
        }
        assert!(reviews < 10);
    }
    for item in &items {
        assert_eq!(done(item), 1, "{item}");
    }
    let result = sandbox.get(&["task", "show", &id])["result"].as_str().unwrap().to_owned();
    assert_eq!(serde_json::from_str::<Vec<String>>(&result).unwrap(), ["counted slowly"; 6]);
    assert!(reviews >= 1, "an item was in progress");
}

/// Items join the queue of their agent in any order, and only the first in line look there.
#[test]
fn many_items_for_one_slot_do_not_stall() {
    let sandbox = HomeSandbox::new();
    sandbox.write_shell_agent("slot", "cat", "");
    sandbox.write(
        "workflows/flow.yaml",
        "{name: flow, entry_point: each, nodes: {each: {type: map, over: \
         '{{ range(24) | list }}', max_parallel: 24, node: {type: agent, agent: slot, \
         input: 'i{{ item }}'}}}}",
    );
    let output = sandbox.polity(&["-q", "run", "flow", "x"]).exits(0);
    let items: Vec<String> = serde_json::from_str(&output.out).unwrap();
    assert_eq!(items, (0..24).map(|item| format!("i{item}")).collect::<Vec<_>>());
}

#[test]
fn map_reads_a_field_of_an_earlier_output() {
    let sandbox = HomeSandbox::new();
    sandbox.write_shell_agent("planner", "cat > /dev/null; echo '{\"items\": [1, 2]}'", "");
    sandbox.write(
        "workflows/flow.yaml",
        "{name: flow, entry_point: plan, nodes: {plan: {type: agent, agent: planner}, each: \
         {type: map, over: '{{ nodes.plan.output.items }}', node: {type: condition, \
         expression: item + 1}}}, edges: [{from: plan, to: each}]}",
    );
    sandbox.polity(&["-q", "run", "flow", "x"]).prints("[2,3]\n");
}
