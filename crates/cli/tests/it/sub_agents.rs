//! Sub-agents and budgets.

use std::time::Duration;

use polity_testkit::model_server::{ModelCall, ModelServer, ModelTurn};
use serde_json::{Value, json};

use crate::sandbox::{HomeSandbox, kill};

/// A home with a supervisor `boss` and a sub-agent `worker`, with these scripts.
pub(crate) fn home(boss_fields: &str, boss_script: &str, worker_script: &str) -> HomeSandbox {
    let sandbox = HomeSandbox::bare();
    agent(&sandbox, "boss", &format!("sub_agents: [worker]\n{boss_fields}"));
    agent(&sandbox, "worker", "");
    sandbox.write("scripts/boss.yaml", boss_script);
    sandbox.write("scripts/worker.yaml", worker_script);
    sandbox
}

fn agent(sandbox: &HomeSandbox, name: &str, fields: &str) {
    let text = format!(
        "name: {name}\nkind: llm\nrole: {name}\nsystem_prompt: I am the {name}.\n{fields}\n\
         llm_config: {{provider: scripted, script: {name}}}\n"
    );
    sandbox.write(&format!("agents/{name}.yaml"), &text);
}

/// A supervisor that delegates once and repeats the result.
pub(crate) const DELEGATES_ONCE: &str = r#"
rules:
  - when: "^go$"
    role: user
    tool_calls: [{tool: agent/worker, arguments: {task_description: "dig"}}]
    usage: {input_tokens: 9, output_tokens: 1}
  - {when: "(?s)(.*)", role: tool, reply: "it said: $1", usage: {input_tokens: 9, output_tokens: 1}}
"#;

pub(crate) const DIGS: &str = "default: {reply: dug, usage: {input_tokens: 9, output_tokens: 1}}";

#[test]
fn session_is_shown_as_session_and_as_task() {
    let sandbox = home("", DELEGATES_ONCE, DIGS);
    let (task, code) = sandbox.json(&["run", "boss", "go"]);
    assert_eq!((code, &task["result"]), (0, &json!("it said: dug")));
    let tokens = |usage: &Value| usage["input_tokens"].as_u64().unwrap();
    assert_eq!((tokens(&task["usage"]), tokens(&task["total_usage"])), (18, 27));
    let (trace, _) = sandbox.json(&["task", "trace", "last"]);
    assert_eq!(trace["task_id"], task["id"]);
    let sessions = trace["sub_agent_sessions"].as_object().unwrap();
    let (id, info) = sessions.iter().next().unwrap();
    let expected =
        json!({"session_id": id, "agent": "worker", "message_count": 2, "status": "completed"});
    assert_eq!((sessions.len(), info), (1, &expected));
    let (session, _) = sandbox.json(&["session", "show", &id[..8]]);
    let names: Vec<&str> = session.as_object().unwrap().keys().map(String::as_str).collect();
    let mut fields = [
        "session_id",
        "parent_task_id",
        "agent_name",
        "task_description",
        "message_history",
        "summary",
        "status",
        "created_at",
    ];
    fields.sort_unstable();
    assert_eq!(names, fields);
    assert_eq!((&session["parent_task_id"], &session["summary"]), (&task["id"], &json!("dug")));
    let output: Vec<_> = session["message_history"].as_array().unwrap().iter().collect();
    assert_eq!((&output[0]["content"], &output[1]["content"]), (&json!("dig"), &json!("dug")));
    let (listed, _) = sandbox.json(&["session", "list", "--task", "last"]);
    assert_eq!((listed.as_array().unwrap().len(), &listed[0]["session_id"]), (1, &json!(id)));
    // `last` is the newest task that a user started.
    assert_eq!(sandbox.json(&["task", "show", "last"]).0["id"], task["id"]);
    assert_eq!(sandbox.json(&["task", "show", id]).0["parent_task_id"], task["id"]);
    sandbox.polity(&["task", "trace", "last"]).out_has(&format!("\n   {id} worker completed"));
    for (args, expected) in [
        (["session", "show", "ffffffff"], "there is no session ffffffff"),
        (["session", "show", task["id"].as_str().unwrap()], "there is no session"),
    ] {
        sandbox.polity(&args).fails(1, expected);
    }
}

#[test]
fn requests_contain_nothing_of_other_conversations() {
    let server = ModelServer::with([
        ModelTurn::calls([ModelCall::new(
            "agent__worker",
            r#"{"task_description": "CANARY-TASK"}"#,
        )]),
        ModelTurn::text("CANARY-SUMMARY"),
        ModelTurn::text("all done"),
    ]);
    let sandbox = HomeSandbox::bare();
    for (name, fields) in [("boss", "sub_agents: [worker]"), ("worker", "")] {
        let text = format!(
            "name: {name}\nkind: llm\nrole: {name}\nsystem_prompt: PROMPT-OF-{name}\n{fields}\n\
             llm_config: {{provider: openai_compatible, model: m, endpoint: \"{}/v1\"}}\n",
            server.url()
        );
        sandbox.write(&format!("agents/{name}.yaml"), &text);
    }
    let args = ["run", "boss", "CANARY-INPUT", "--param", "k=CANARY-PARAM"];
    sandbox.polity(&args).prints("all done\n");
    let bodies: Vec<String> =
        server.requests().iter().map(|request| request.body.to_string()).collect();
    assert_eq!(bodies.len(), 3);
    let shows = |body: &str, canary: &str| body.contains(canary);
    for canary in ["CANARY-INPUT", "CANARY-PARAM", "PROMPT-OF-boss", "CANARY-SUMMARY"] {
        assert!(!shows(&bodies[1], canary), "the worker was shown {canary}: {}", bodies[1]);
    }
    assert!(shows(&bodies[1], "CANARY-TASK") && shows(&bodies[1], "PROMPT-OF-worker"));
    assert!(!shows(&bodies[2], "PROMPT-OF-worker"), "{}", bodies[2]);
    assert!(shows(&bodies[2], "CANARY-SUMMARY") && shows(&bodies[2], "CANARY-INPUT"));
}

#[test]
fn cancel_of_a_parent_cancels_its_sub_agents() {
    let sandbox = home("", DELEGATES_ONCE, "default: {reply: late, delay_ms: 60000}");
    let mut run = sandbox.start(&["run", "boss", "go"]);
    let running = || sandbox.tasks().iter().filter(|task| task["status"] == "running").count();
    sandbox.wait_until("both are running", || (running() == 2).then_some(()));
    sandbox.polity(&["task", "cancel", "last"]).exits(0);
    assert_eq!(run.wait().unwrap().code(), Some(4));
    for task in sandbox.tasks() {
        assert_eq!(task["status"], "cancelled", "{task}");
    }
}

#[test]
fn killed_parent_resumes_with_its_sub_agent() {
    let sandbox = home("", DELEGATES_ONCE, "default: {reply: dug, delay_ms: 300}");
    for delay in [20, 60, 120, 200, 320] {
        let mut run = sandbox.start(&["run", "boss", "go"]);
        std::thread::sleep(Duration::from_millis(delay));
        kill(&mut run);
        sandbox.polity(&["task", "resume", "--all"]).exits(0);
    }
    let tasks = sandbox.tasks();
    assert!(!tasks.is_empty(), "every process was killed before it created a task");
    for task in tasks {
        assert_eq!(task["status"], "completed", "{task}");
        if task["parent_task_id"].is_null() {
            assert_eq!(task["result"], "it said: dug");
            let id = task["id"].as_str().unwrap();
            let (sessions, _) = sandbox.json(&["session", "list", "--task", id]);
            assert_eq!(sessions.as_array().unwrap().len(), 1, "a session is opened once");
        }
    }
}

#[test]
fn sub_agent_review_is_answered_by_either_id() {
    for by_parent in [true, false] {
        let sandbox = home("approval: [agent/worker]", DELEGATES_ONCE, DIGS);
        agent(&sandbox, "top", "sub_agents: [boss]");
        sandbox.write(
            "scripts/top.yaml",
            &DELEGATES_ONCE.replace("agent/worker", "agent/boss").replace("dig", "go"),
        );
        sandbox.polity(&["run", "top", "go"]).exits(3);
        let tasks = sandbox.tasks();
        assert!(tasks.iter().all(|task| task["status"] == "awaiting_human"), "{tasks:?}");
        assert_eq!(sandbox.polity(&["task", "resume", "--all"]).out, "nothing to resume\n");
        let (reviews, _) = sandbox.json(&["review", "list"]);
        assert_eq!(reviews.as_array().unwrap().len(), 1);
        let question = "boss wants to call agent/worker with {\"task_description\":\"dig\"}";
        assert_eq!(reviews[0]["question"], question);
        let child = reviews[0]["task_id"].as_str().unwrap().to_owned();
        let id = if by_parent { "last" } else { &child };
        sandbox.polity(&["review", "show", id]).out_has("agent/worker");
        let output = sandbox.polity(&["review", "approve", id]);
        let expected = (0, "it said: it said: dug\n");
        assert_eq!((output.code, output.out.as_str()), expected, "{output:?}");
        let tasks = sandbox.tasks();
        assert_eq!(tasks.len(), 3);
        assert!(tasks.iter().all(|task| task["status"] == "completed"), "{tasks:?}");
    }
}

/// A home in which the sub-agent of a task waits for approval.
fn home_with_waiting_part() -> HomeSandbox {
    let sandbox =
        home("approval: [agent/worker]", DELEGATES_ONCE, "default: {reply: dug, delay_ms: 200}");
    agent(&sandbox, "top", "sub_agents: [boss]");
    let script = DELEGATES_ONCE.replace("agent/worker", "agent/boss").replace("dig", "go");
    sandbox.write("scripts/top.yaml", &script);
    sandbox.polity(&["run", "top", "go"]).exits(3);
    let top = sandbox.get(&["task", "show", "last"]);
    assert_eq!((&top["status"], &top["interrupted"]), (&json!("awaiting_human"), &json!(false)));
    sandbox
}

#[test]
fn parent_of_an_answered_part_shows_that_it_can_be_resumed() {
    let sandbox = home_with_waiting_part();
    sandbox.polity(&["review", "approve", "last", "--detach"]).exits(0);
    assert_eq!(sandbox.get(&["review", "list"]), json!([]));
    assert_eq!(sandbox.get(&["task", "show", "last"])["interrupted"], true);
    sandbox.polity(&["task", "list"]).out_has("awaiting_human (ready to resume)");
    sandbox.polity(&["task", "show", "last"]).out_has("polity task resume");
    sandbox.polity(&["task", "wait", "last"]).fails(3, "nothing left to decide");
    // An archive of it is consistent too.
    let out = sandbox.file("out");
    sandbox.polity(&["task", "export", "last", "--out", out.to_str().unwrap()]).exits(0);
    HomeSandbox::bare().polity(&["task", "import", out.to_str().unwrap()]).exits(0);
    sandbox.polity(&["task", "resume", "last"]).prints("it said: it said: dug\n");
}

#[test]
fn killed_answer_leaves_nothing_that_waits_without_a_question() {
    for _ in 0..3 {
        let sandbox = home_with_waiting_part();
        let mut answer = sandbox.start(&["review", "approve", "last"]);
        sandbox.wait_until("the answer is recorded", || {
            (sandbox.get(&["review", "list"]) == json!([])).then_some(())
        });
        kill(&mut answer);
        let top = sandbox.get(&["task", "show", "last"]);
        if top["status"] != "completed" {
            assert_eq!(top["interrupted"], true, "{top:#}");
            sandbox.polity(&["task", "resume", "last"]).prints("it said: it said: dug\n");
        }
    }
}

#[test]
fn ambiguous_review_lists_every_question() {
    let call =
        |what: &str| format!("{{tool: agent/worker, arguments: {{task_description: {what}}}}}");
    let boss = format!(
        "rules:\n  - {{when: go, role: user, tool_calls: [{}, {}]}}\n  \
         - {{when: '(.*)', role: tool, reply: '$1'}}\n",
        call("dig"),
        call("dig deeper")
    );
    let sandbox = home("", &boss, "");
    agent(&sandbox, "worker", "sub_agents: [digger]\napproval: [agent/digger]");
    agent(&sandbox, "digger", "");
    sandbox.write(
        "scripts/worker.yaml",
        "rules:\n  - when: '(.*)'\n    role: user\n    \
         tool_calls: [{tool: agent/digger, arguments: {task_description: $1}}]\n  \
         - {when: '(.*)', role: tool, reply: $1}\n",
    );
    sandbox.write("scripts/digger.yaml", DIGS);
    sandbox.polity(&["run", "boss", "go"]).exits(3);
    let shown = sandbox.polity(&["review", "show", "last"]).exits(2);
    for question in ["{\"task_description\":\"dig\"}", "{\"task_description\":\"dig deeper\"}"] {
        assert!(shown.err.contains(question), "{shown:?}");
    }
    // Each review is answered separately; the parent completes after both.
    for expected in [3, 0] {
        let (reviews, _) = sandbox.json(&["review", "list"]);
        let output =
            sandbox.polity(&["review", "approve", reviews[0]["task_id"].as_str().unwrap()]);
        assert_eq!(output.code, expected, "{output:?}");
    }
}

#[test]
fn endless_sub_agent_is_stopped_at_its_limit() {
    let again = "default: {reply: again, tool_calls: [{tool: agent/nobody, arguments: {}}]}";
    let sandbox = home("", DELEGATES_ONCE, again);
    let output = sandbox.polity(&["run", "boss", "go"]).exits(0);
    assert!(output.out.starts_with("it said: error: worker failed (limit_"), "{output:?}");
    assert!(output.out.ends_with("; its last words: again\n"), "{output:?}");
}

#[test]
fn budget_ends_the_task_with_a_partial_result() {
    for (fields, args, spent) in [
        ("budget: {max_tokens: 20}", &["run", "boss", "go"][..], 20),
        ("", &["run", "boss", "go", "--max-tokens", "11"], 20),
        ("budget: {max_tokens: 1000}", &["run", "boss", "go", "--max-tokens", "5"], 10),
        ("", &["run", "boss", "go", "--max-tokens", "29"], 30),
    ] {
        let sandbox = home(fields, DELEGATES_ONCE, DIGS);
        let (task, code) = sandbox.json(args);
        assert_eq!((code, &task["error_code"]), (6, &json!("budget")), "{task}");
        let total = &task["total_usage"];
        let total =
            total["input_tokens"].as_u64().unwrap() + total["output_tokens"].as_u64().unwrap();
        assert_eq!(total, spent, "{task}");
        assert!(task["error"].as_str().unwrap().contains(&format!("{spent} of")), "{task}");
    }
    let exact = home("", DELEGATES_ONCE, DIGS).json(&["run", "boss", "go", "--max-tokens", "30"]);
    assert_eq!(exact.1, 0, "{exact:?}");
    // The answer that exceeded the limit is kept.
    let over = home("", DELEGATES_ONCE, DIGS).json(&["run", "boss", "go", "--max-tokens", "29"]).0;
    assert_eq!(over["result"], "it said: dug");
}

#[test]
fn dollar_budget_needs_a_price() {
    let priced = "price: {input_per_million_usd: 1000, output_per_million_usd: 0}";
    let sandbox = home("", DELEGATES_ONCE, DIGS);
    for name in ["boss", "worker"] {
        let path = format!("agents/{name}.yaml");
        let text = std::fs::read_to_string(sandbox.file(&path)).unwrap();
        sandbox.write(&path, &text.replace("script: ", &format!("{priced}, script: ")));
    }
    let (task, code) = sandbox.json(&["run", "boss", "go", "--max-cost-usd", "0.018"]);
    assert_eq!((code, &task["error_code"]), (6, &json!("budget")), "{task}");
    let expected = "the budget of boss is used up: $0.0180 of $0.0180 (budget.max_cost_usd)";
    assert_eq!(task["error"], expected);
    sandbox.write(
        "agents/worker.yaml",
        "{name: worker, kind: llm, role: r, system_prompt: p,
          llm_config: {provider: openai_compatible, model: m, endpoint: 'http://127.0.0.1:1/v1'}}",
    );
    let refused = sandbox.polity(&["run", "boss", "go", "--max-cost-usd", "0.018"]);
    refused.fails(2, "the model of agent \"worker\" costs");
    for wrong in [["--max-tokens", "0"], ["--max-cost-usd", "0"], ["--max-cost-usd", "nan"]] {
        sandbox.polity(&[&["run", "boss", "go"][..], &wrong].concat()).exits(2);
    }
}

#[test]
fn invalid_sub_agents_are_rejected_with_hints() {
    let sandbox = home("", DELEGATES_ONCE, DIGS);
    let check = |expected: &str| {
        let (report, code) = sandbox.json(&["check"]);
        assert_eq!(code, 2, "{report}");
        assert!(report.to_string().contains(expected), "{report}");
        sandbox.polity(&["run", "boss", "go"]).exits(2);
    };
    agent(&sandbox, "worker", "sub_agents: [boss]");
    check("agents delegate in a cycle: boss -> worker -> boss");
    agent(&sandbox, "worker", "");
    agent(&sandbox, "boss", "sub_agents: [worker, boss]");
    check("in a cycle: boss -> boss");
    agent(&sandbox, "boss", "sub_agents: [wroker]");
    check("\"suggestion\":\"worker\"");
    agent(&sandbox, "boss", "sub_agents: [worker]\nbudget: {max_tokens: 0}");
    check("budget.max_tokens must be a whole number above 0");
    agent(&sandbox, "boss", "sub_agents: [worker]\nbudget: {max_cost_usd: 0}");
    check("budget.max_cost_usd must be above 0");
    assert_eq!(sandbox.tasks().len(), 0);

    agent(&sandbox, "boss", "sub_agents: [worker]");
    agent(&sandbox, "worker", "sub_agents: [digger]");
    agent(&sandbox, "digger", "");
    sandbox.write("scripts/digger.yaml", DIGS);
    sandbox.write("polity.yaml", "limits: {sub_agent_depth: 1}");
    let deep = sandbox.polity(&["run", "boss", "go"]);
    deep.fails(6, "over 2 steps (boss -> worker -> digger)").err_has("limits.sub_agent_depth");
}

#[test]
fn excess_sub_agent_calls_are_reported_to_the_model() {
    let call = "{tool: agent/worker, arguments: {task_description: dig}}";
    let boss = format!(
        "rules:\n  - {{when: go, role: user, tool_calls: [{call}, {call}, {call}]}}\n  \
         - {{when: '(.*)', role: tool, reply: '$1'}}\n"
    );
    let sandbox = home("", &boss, DIGS);
    sandbox.write("polity.yaml", "limits: {sub_agent_fan_out: 2}");
    let output = sandbox.polity(&["run", "boss", "go"]);
    output.exits(0).out_has("at most 2 sub-agents are called at once");
    assert_eq!(sandbox.json(&["session", "list"]).0.as_array().unwrap().len(), 2);
}

#[test]
fn init_supervisor_example_works() {
    let sandbox = HomeSandbox::empty();
    sandbox.polity(&["init", "reports", "--example", "supervisor"]).exits(0);
    let home = sandbox.file("reports");
    let home = home.to_str().unwrap();
    let output =
        sandbox.polity(&["--home", home, "run", "supervisor", "A report on rain and snow"]);
    output.exits(0).out_has("snow is water.");
}
