//! `polity chart`, and the charts and scenarios of a home.

use serde_json::{Value, json};

use crate::sandbox::HomeSandbox;

#[test]
fn chart_list_show_and_check_work() {
    let sandbox = HomeSandbox::society();
    let list = sandbox.get(&["chart", "list"]);
    let expected = json!([{"name": "social", "states": 8, "transitions": 15, "initial": "idle"}]);
    assert_eq!(list, expected);
    assert_eq!(sandbox.json(&["chart", "show", "social"]).0["initial"], "idle");
    let shown = sandbox.polity(&["chart", "show", "social"]).out;
    assert!(shown.contains("field engagement_threshold: 0.5, from 0 to 1"), "{shown}");
    assert_eq!(sandbox.json(&["chart", "check"]).0, json!({"valid": true, "errors": []}));
    sandbox.polity(&["chart", "check", "social"]).exits(0);
    let unknown = sandbox.error(2, &["chart", "show", "socail"]);
    assert_eq!(unknown.hint, "did you mean \"social\"?");
}

#[test]
fn chart_fire_reports_the_transition() {
    let sandbox = HomeSandbox::society();
    let fire = |args: &[&str]| sandbox.json(&[&["chart", "fire", "social"], args].concat()).0;
    let to = |from: &str, to: Value| json!({"from": from, "to": to});
    assert_eq!(fire(&["--trigger", "feed_ready"]), to("idle", json!("scrolling")));
    assert_eq!(fire(&["--trigger", "sees_post"]), to("idle", Value::Null));
    let composing = ["--state", "composing", "--trigger", "compose_done"];
    assert_eq!(fire(&composing), to("composing", Value::Null));
    let reply = [&composing[..], &["--set", "pending_action=reply"]].concat();
    let mut replied = to("composing", json!("engaging_reply"));
    replied["world"] = json!([{"name": "replies", "add": 1}]);
    assert_eq!(fire(&reply), replied);
    for (args, message) in [
        (vec!["--trigger", "sleep"], "has no trigger \"sleep\""),
        (vec!["--trigger", "decides", "--state", "asleep"], "has no state \"asleep\""),
        (vec!["--trigger", "decides", "--context", "[1]"], "not a JSON object"),
        (vec!["--trigger", "decides", "--set", "mood=1"], "has no field \"mood\""),
        (vec!["--trigger", "decides", "--set", "engagement_threshold=2"], "from 0 to 1"),
    ] {
        let error = sandbox.error(2, &[&["chart", "fire", "social"], &args[..]].concat());
        assert!(error.message.contains(message), "{error:?}");
    }
}

#[test]
fn chart_fire_evaluates_guards_on_the_context() {
    let sandbox = HomeSandbox::bare();
    let chart = "
name: taste
states: [cold, warm]
initial: cold
fields: {threshold: 0.5}
transitions:
  - {trigger: look, source: cold, target: warm, guard: 'agent.threshold < context.post.score'}
";
    sandbox.write("charts/taste.yaml", chart);
    let fire = |context: &str| {
        sandbox.polity(&["chart", "fire", "taste", "--trigger", "look", "--context", context])
    };
    assert_eq!(fire(r#"{"post": {"score": 0.9}}"#).out.trim(), "cold -> warm");
    assert_eq!(fire(r#"{"post": {"score": 0.1}}"#).out.trim(), "cold: no transition for look");
    let missing = fire("{}");
    assert_eq!(missing.out.trim(), "cold: no transition for look");
    assert!(missing.err.contains("the context has no \"post.score\""), "{missing:?}");
}

/// A chart with a composite state and every kind of action.
const READER: &str = "
name: reader
initial: idle
states:
  - idle
  - {name: engaging, initial: like, history: shallow, states: [like, reply],
     entry: add world.engaged = 1, exit: remove}
fields: {mood: calm}
world: {engaged: 0, last: none}
oracle_default: idle
transitions:
  - {trigger: sees, source: idle, target: engaging,
     action: ['set agent.mood = \"keen\"', 'set world.last = \"sees\"', 'pause \"ann\" 3', copy]}
  - {trigger: thinks, source: like, target: reply}
  - {trigger: rests, source: engaging, target: idle, oracle: true}
  - {trigger: rests, source: engaging, target: reply, oracle: true}
";

fn reader() -> HomeSandbox {
    let sandbox = HomeSandbox::bare();
    sandbox.write("charts/reader.yaml", READER);
    sandbox
}

#[test]
fn chart_show_lists_everything() {
    let sandbox = reader();
    let shown = sandbox.polity(&["chart", "show", "reader"]).out;
    let expected = "name: reader
initial: idle
oracle_default: idle
max_history_depth: 50
states:
  idle
  engaging (initial child like, later the last active one)
    entry / add world.engaged = 1
    exit / remove
    like
    reply
field mood: \"calm\"
world engaged: 0
world last: \"none\"

";
    assert!(shown.starts_with(expected), "{shown}");
    let (json, _) = sandbox.json(&["chart", "show", "reader"]);
    assert_eq!(json["max_history_depth"], 50);
    assert_eq!((&json["timeouts"], &json["oracle_default"]), (&json!([]), &json!("idle")));
    assert_eq!(json["states"][1]["history"], "shallow");
}

#[test]
fn chart_fire_reports_actions() {
    let sandbox = reader();
    let sees = ["chart", "fire", "reader", "--trigger", "sees"];
    let output = sandbox.polity(&sees).out;
    let expected = "idle -> like
  agent.mood = \"keen\"
  world.last = \"sees\"
  world.engaged += 1
  asks: pause \"ann\" 3
  asks: copy
";
    assert_eq!(output, expected);
    let expected = json!({
        "from": "idle",
        "to": "like",
        "fields": {"mood": "keen"},
        "world": [{"name": "last", "set": "sees"}, {"name": "engaged", "add": 1}],
        "requests": [
            {"action": "pause", "agent": "ann", "turns": 3},
            {"action": "copy", "agent": null, "turns": null},
        ],
    });
    assert_eq!(sandbox.json(&sees).0, expected);
    let rests =
        sandbox.polity(&["chart", "fire", "reader", "--trigger", "rests", "--state", "like"]);
    assert_eq!(rests.out, "like -> idle\n  asks: remove\n");
}

#[test]
fn svg_has_frames_and_complete_labels() {
    let sandbox = reader();
    let picture = |chart: &str, format: &str| {
        sandbox.polity(&["chart", "graph", chart, "--format", format]).out
    };
    let svg = picture("reader", "svg");
    for expected in ["class=\"frame\"", ">entry / add world.engaged = 1<", ">exit / remove<", ">H<"]
    {
        assert!(svg.contains(expected), "{expected}\n{svg}");
    }
    let dot = picture("reader", "dot");
    assert!(dot.contains("subgraph cluster_1 {"), "{dot}");
    assert!(dot.contains("lhead=cluster_1"), "{dot}");
    let social = HomeSandbox::society();
    for format in ["svg", "dot"] {
        let drawn = social.polity(&["chart", "graph", "social", "--format", format]).out;
        assert!(!drawn.contains('…'), "{format}: something is cut off");
    }
}

#[test]
fn chart_graph_supports_four_formats() {
    let sandbox = HomeSandbox::society();
    for (format, begin) in
        [("mermaid", "stateDiagram-v2"), ("dot", "digraph"), ("svg", "<svg"), ("scxml", "<?xml")]
    {
        let output = sandbox.polity(&["chart", "graph", "social", "--format", format]).exits(0);
        assert!(output.out.contains(begin), "{format}: {}", output.out);
        for state in ["idle", "scrolling", "engaging_reshare"] {
            assert!(output.out.contains(state), "{format} without {state}");
        }
    }
}

#[test]
fn check_reports_chart_and_scenario_problems_with_positions() {
    let sandbox = HomeSandbox::society();
    let chart = "name: bad
states: [a, b, lost]
initial: d
transitions:
  - {trigger: '', source: a, target: bb}
  - {trigger: go, source: a, target: b, guard: 'agent.mood > 1'}
  - {trigger: go, source: a, target: b, guard: '1 / 0 > 1'}
  - {trigger: stay, source: a, target: b}
  - {trigger: stay, source: a, target: lost}
fields: {x: 1}
";
    sandbox.write("charts/bad.yaml", chart);
    let scenario = "name: wrong
chart: social
turns: -1
max_agents: 5
population:
  - {name: a, count: 6, fields: {engagement_threshold: 2}}
  - {name: b, fields: {engagment_threshold: 0.5}}
  - {nme: c}
world:
  rates:
    - {trigger: sees_pst, rate: 0.1}
    - {trigger: decides, rate: 1.5}
lifecycle:
  - {turn: 0, operation: add_agent, target_agent_name: x}
  - {turn: 1, operation: ad_agent, target_agent_name: x}
";
    sandbox.write("scenarios/wrong.yaml", scenario);
    let (answer, code) = sandbox.json(&["check"]);
    assert_eq!((code, &answer["valid"]), (2, &json!(false)));
    let errors: Vec<String> = answer["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|error| {
            let (file, line) = (error["file"].as_str().unwrap(), &error["line"]);
            format!("{file}:{line}: {}", error["message"].as_str().unwrap())
        })
        .collect();
    for expected in [
        "charts/bad.yaml:3: initial \"d\" is not one of the states",
        "charts/bad.yaml:5: trigger is missing or empty",
        "charts/bad.yaml:5: target: unknown state \"bb\"",
        "charts/bad.yaml:6: guard \"agent.mood > 1\"",
        "charts/bad.yaml:7: guard \"1 / 0 > 1\": it divides by zero",
        "scenarios/wrong.yaml:3: turns must be a whole number",
        "scenarios/wrong.yaml:6: population[0].fields.engagement_threshold",
        "scenarios/wrong.yaml:7: population[1].fields.engagment_threshold: there is no field",
        "scenarios/wrong.yaml:8: unknown field \"nme\" in population[2]",
        "scenarios/wrong.yaml:11: world.rates[0].trigger: there is no trigger \"sees_pst\"",
        "scenarios/wrong.yaml:12: world.rates[1].rate must be from 0 to 1, found 1.5",
        "scenarios/wrong.yaml:14: lifecycle[0].turn must be a whole number above 0",
        "scenarios/wrong.yaml:15: lifecycle[1].operation: unknown value \"ad_agent\"",
    ] {
        assert!(errors.iter().any(|error| error.starts_with(expected)), "{expected}\n{errors:#?}");
    }
    let near = answer["errors"].as_array().unwrap().iter();
    let near: Vec<&Value> = near.map(|error| &error["suggestion"]).collect();
    for suggestion in ["b", "name", "engagement_threshold", "sees_post", "add_agent"] {
        assert!(near.contains(&&json!(suggestion)), "{suggestion}\n{near:?}");
    }
    assert_eq!(sandbox.error(2, &["sim", "run", "wrong"]).code, "invalid_definition");
    let (one, code) = sandbox.json(&["chart", "check", "bad"]);
    assert_eq!((code, &one["valid"]), (2, &json!(false)));
}

#[test]
fn schemas_accept_valid_and_reject_invalid_files() {
    let sandbox = HomeSandbox::society();
    for (kind, path, wrong) in [
        ("chart", "charts/social.yaml", r#"{"name": "x", "states": [], "initial": "a"}"#),
        ("scenario", "scenarios/society.yaml", r#"{"name": "x", "chart": "y", "turn": 3}"#),
    ] {
        let schema = sandbox.json(&["schema", kind]).0;
        let validator = jsonschema::draft202012::new(&schema).unwrap();
        let text = std::fs::read_to_string(sandbox.file(path)).unwrap();
        let document: Value = serde_saphyr::from_str(&text).unwrap();
        let errors: Vec<_> = validator.iter_errors(&document).map(|e| e.to_string()).collect();
        assert_eq!(errors, Vec::<String>::new());
        assert!(!validator.is_valid(&serde_json::from_str(wrong).unwrap()), "{kind}");
    }
}

#[test]
fn chart_graph_limits_the_number_of_arrows() {
    let sandbox = HomeSandbox::society();
    let names: Vec<String> = (0..60).map(|state| format!("s{state}")).collect();
    let to =
        |state: &String| format!("  - {{trigger: to_{state}, source: '*', target: {state}}}\n");
    let transitions: String = names.iter().map(to).collect();
    let chart = format!(
        "name: maze\nstates: [{}]\ninitial: s0\ntransitions:\n{transitions}",
        names.join(", ")
    );
    sandbox.write("charts/maze.yaml", &chart);
    let error = sandbox.error(6, &["chart", "graph", "maze", "--format", "svg"]);
    let message = "the diagram would have 3540 arrows; the limit picture_arrows is 1500";
    assert_eq!(error.message, message);
    sandbox.polity(&["chart", "graph", "maze", "--format", "mermaid"]).exits(0);
}

#[test]
fn chart_fire_rejects_a_composite_state() {
    let sandbox = reader();
    let args = ["chart", "fire", "reader", "--trigger", "sees", "--state", "engaging"];
    let message = "the state \"engaging\" has child states, and an agent is always in one of those";
    assert_eq!(sandbox.error(2, &args).message, message);
}

#[test]
fn invalid_chart_does_not_affect_others() {
    let sandbox = HomeSandbox::society();
    for (name, initial) in [("first", "nowhere"), ("second", "elsewhere")] {
        let chart = format!("name: {name}\nstates: [a]\ninitial: {initial}\n");
        sandbox.write(&format!("charts/{name}.yaml"), &chart);
    }
    sandbox.write("scenarios/wrong.yaml", "name: wrong\nchart: second\n");
    let output = sandbox.polity(&["sim", "run", "wrong"]).exits(2);
    assert!(output.err.contains("elsewhere") && !output.err.contains("nowhere"), "{}", output.err);
}
