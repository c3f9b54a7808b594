//! Tests of patterns: their graphs and roles.

use std::borrow::Cow;

use polity_model::name::Name;
use serde_json::Map;

use super::super::{EdgeTarget, WorkflowDefinition, WorkflowNodeKind};
use super::PLAN_STEPS_MAX;
use crate::evaluation::scope::EvaluationScope;

const REACT: &str = "agent: solver";
const REFLECTION: &str = "generator: writer, critic: editor";
const PLAN_EXECUTE: &str = "planner: chief, executor: solver";

fn workflow(patterns: &str, agents: &str) -> WorkflowDefinition {
    let text = format!("{{name: w, patterns: [{patterns}], agents: {{{agents}}}}}");
    WorkflowDefinition::from_canonical(&text).unwrap_or_else(|problems| panic!("{problems:?}"))
}

fn problems(rest: &str) -> Vec<String> {
    let problems = WorkflowDefinition::from_canonical(&format!("{{name: w, {rest}}}")).unwrap_err();
    problems.iter().map(ToString::to_string).collect()
}

fn names(workflow: &WorkflowDefinition) -> Vec<&str> {
    workflow.expanded().nodes.iter().map(|node| node.name.as_str()).collect()
}

fn scope<'a>(outputs: &[(&'a str, &'a str)]) -> EvaluationScope<'a> {
    EvaluationScope {
        input: "Write about rain.",
        last: outputs.last().map_or("Write about rain.", |(_, output)| output),
        messages: &[],
        newest: None,
        next_action: None,
        current_agent: "w",
        routing_key: None,
        metadata: Cow::Owned(Map::new()),
        outputs: outputs.to_vec(),
        error: None,
        item: None,
    }
}

/// The targets of the edges of `from` for these outputs.
fn next(workflow: &WorkflowDefinition, from: &str, outputs: &[(&str, &str)]) -> Vec<String> {
    let scope = scope(outputs);
    let edges = workflow.expanded().edges.iter().filter(|edge| edge.from.as_str() == from);
    let taken = edges.filter(|edge| {
        edge.condition.as_ref().is_none_or(|condition| condition.holds(&scope).unwrap())
    });
    taken
        .map(|edge| match &edge.to {
            EdgeTarget::Node(name) => name.to_string(),
            EdgeTarget::ByRoutingKey { .. } => unreachable!("patterns do not use keys"),
        })
        .collect()
}

/// The input of an agent node.
fn input_of(workflow: &WorkflowDefinition, node: &str, outputs: &[(&str, &str)]) -> String {
    match &workflow.expanded().node(node).unwrap().kind {
        WorkflowNodeKind::Agent { input: Some(input), .. } => {
            input.render(&scope(outputs)).unwrap()
        }
        other => panic!("{node} is {other:?}"),
    }
}

#[test]
fn expanded_patterns_are_valid_workflows() {
    let both = format!("{REACT}, {REFLECTION}");
    let all = format!("{both}, {PLAN_EXECUTE}, refiner: writer, reporter: chief, supervisor: boss");
    for (patterns, agents) in [
        ("react", REACT),
        ("react", "reasoner: solver"),
        ("reflection", REFLECTION),
        ("reflection", "generator: writer, critic: editor, refiner: solver"),
        ("plan_execute", PLAN_EXECUTE),
        ("plan_execute", "planner: chief, executor: solver, reporter: writer"),
        ("supervisor", "supervisor: boss, writer: writer, looks_things_up: solver"),
        ("react, reflection", &both),
        ("reflection, react, reflection", &both),
        ("reflection, plan_execute, supervisor, react, plan_execute, supervisor", &all),
    ] {
        let of_patterns = workflow(patterns, agents);
        let written = of_patterns.written_out();
        let again = WorkflowDefinition::from_canonical(&written.canonical_json());
        assert_eq!(again, Ok(written), "{patterns}");
        let kept = WorkflowDefinition::from_canonical(&of_patterns.canonical_json());
        assert_eq!(kept, Ok(of_patterns), "{patterns}");
    }
}

#[test]
fn the_longest_patterns_fit_the_template_limit() {
    let roles = format!("{REFLECTION}, {PLAN_EXECUTE}");
    let text = format!(
        "{{name: w, patterns: [reflection, plan_execute, reflection], rounds: 10, \
         agents: {{{roles}}}}}"
    );
    let workflow = WorkflowDefinition::from_canonical(&text).unwrap();
    assert_eq!(names(&workflow).len(), 2 * (1 + 10 + 10 + 1) + 1 + PLAN_STEPS_MAX + 1);
}

#[test]
fn a_reflection_returns_the_accepted_draft() {
    let workflow = workflow("reflection", REFLECTION);
    assert_eq!(
        names(&workflow),
        [
            "generate",
            "critique_1",
            "refine_1",
            "critique_2",
            "refine_2",
            "critique_3",
            "refine_3",
            "result",
        ]
    );
    assert_eq!(workflow.expanded().entry_point.as_str(), "generate");
    assert!(input_of(&workflow, "generate", &[]).contains("Write about rain."));
    for (critique, expected) in [
        ("ACCEPT", "result"),
        ("Accepted.", "result"),
        ("\n**accept**\nWell done", "result"),
        ("REVISE\nI cannot accept the end.", "refine_1"),
        ("This is not acceptable.", "refine_1"),
        ("", "refine_1"),
    ] {
        let outputs = [("generate", "Drip."), ("critique_1", critique)];
        assert_eq!(next(&workflow, "critique_1", &outputs), [expected], "{critique:?}");
    }
    let outputs =
        [("generate", "Drip."), ("critique_1", "REVISE\nLonger."), ("refine_1", "Drip, drip.")];
    let critique = input_of(&workflow, "critique_2", &outputs);
    assert!(critique.contains("Drip, drip.") && critique.contains("ACCEPT"), "{critique}");
    let refine = input_of(&workflow, "refine_1", &outputs);
    assert!(refine.contains("Drip.") && refine.contains("Longer."), "{refine}");
    let WorkflowNodeKind::Condition { expression } =
        &workflow.expanded().node("result").unwrap().kind
    else {
        panic!("the result is chosen")
    };
    assert_eq!(expression.evaluate(&scope(&outputs)).unwrap(), "Drip, drip.");
    assert_eq!(expression.evaluate(&scope(&outputs[..2])).unwrap(), "Drip.");
    // Without acceptance the last refinement is the result.
    assert_eq!(next(&workflow, "refine_3", &[]), ["result"]);
}

#[test]
fn each_step_of_a_plan_runs_once() {
    let workflow = workflow("plan_execute", PLAN_EXECUTE);
    let path_of = |plan: &str| {
        let outputs = [("plan", plan)];
        let (mut node, mut path) = ("plan".to_owned(), Vec::new());
        while node != "report" {
            let to = next(&workflow, &node, &outputs);
            assert_eq!(to.len(), 1, "{node} leads to {to:?}");
            node.clone_from(&to[0]);
            path.push(node.clone());
        }
        path.join(" ")
    };
    assert_eq!(path_of("1. look\n2. buy\n3. pay"), "execute_1 execute_2 execute_3 report");
    assert_eq!(path_of("Just do it."), "execute_1 report");
    assert_eq!(path_of("[]"), "execute_1 report");
    let many: Vec<String> = (1..=10).map(|step| format!("{step}. do {step} things")).collect();
    let many = many.join("\n");
    assert!(path_of(&many).ends_with("execute_7 execute_8 report"));

    let outputs = [("plan", "1. look\n2. buy"), ("execute_1", "saw it"), ("execute_2", "got it")];
    let given_1 = input_of(&workflow, "execute_1", &outputs);
    assert!(given_1.contains("number 1:\nlook\n") && given_1.contains("Write about rain."));
    let given_2 = input_of(&workflow, "execute_2", &outputs);
    assert!(given_2.contains("number 2:\nbuy\n") && given_2.contains("saw it"), "{given_2}");
    let report = input_of(&workflow, "report", &outputs);
    assert!(report.contains("Step 2: got it\n") && !report.contains("Step 3"), "{report}");
    assert!(input_of(&workflow, "execute_1", &[("plan", "[]")]).contains("number 1:\n[]\n"));
    let mut outputs = vec![("plan", many.as_str())];
    let ran: Vec<String> = (1..8).map(|step| format!("execute_{step}")).collect();
    outputs.extend(ran.iter().map(|name| (name.as_str(), "done")));
    let last = input_of(&workflow, "execute_8", &outputs);
    let rest = "all that are left:\n- do 8 things\n- do 9 things\n- do 10 things\n";
    assert!(last.contains(rest), "{last}");
}

#[test]
fn a_supervisor_can_delegate_to_every_role() {
    let workflow = workflow("supervisor", "supervisor: boss, writer: pen, finder: lens");
    let graph = workflow.expanded();
    let WorkflowNodeKind::Agent { agent, sub_agents, .. } = &graph.node("supervise").unwrap().kind
    else {
        panic!("an agent supervises")
    };
    assert_eq!(agent.as_str(), "boss");
    assert_eq!(sub_agents.iter().map(Name::as_str).collect::<Vec<_>>(), ["lens", "pen"]);
    assert!(input_of(&workflow, "supervise", &[]).contains("- pen, whose role is writer\n"));
}

#[test]
fn a_pattern_reads_the_result_of_the_one_before_it() {
    let workflow = workflow("react, reflection, react", &format!("{REACT}, {REFLECTION}"));
    let names = names(&workflow);
    assert_eq!((names[0], names[1], *names.last().unwrap()), ("react", "generate", "react_2"));
    assert_eq!(input_of(&workflow, "react", &[]), "Write about rain.");
    assert!(input_of(&workflow, "generate", &[("react", "Rain is wet.")]).contains("Rain is wet."));
    assert_eq!(input_of(&workflow, "react_2", &[("result", "Wet.")]), "Wet.");
    assert_eq!(next(&workflow, "react", &[]), ["generate"]);
    assert_eq!(next(&workflow, "result", &[]), ["react_2"]);
}

#[test]
fn with_nodes_patterns_are_only_a_label() {
    let text = "{name: w, patterns: [reflection], nodes: {a: {type: agent, agent: x}}, \
                entry_point: a}";
    let workflow = WorkflowDefinition::from_canonical(text).unwrap();
    assert_eq!(names(&workflow), ["a"]);
}

#[test]
fn reports_missing_and_unused_roles() {
    for (rest, expected) in [
        (
            "patterns: [react, reflection], agents: {agent: a, generator: b}",
            vec![
                "agents: the pattern reflection needs the role \"critic\", and there are only \
                 agent, generator",
            ],
        ),
        (
            "patterns: [react], agents: {agnt: a}",
            vec![
                "agents: the pattern react needs the role \"agent\" or \"reasoner\", and there are \
                 only agnt",
                "agents.agnt: no pattern uses the role \"agnt\", did you mean \"agent\"?",
            ],
        ),
        (
            "patterns: [react], agents: {agent: a, critic: b}",
            vec!["agents.critic: no pattern uses the role \"critic\"; allowed: agent, reasoner"],
        ),
        (
            "patterns: [supervisor], agents: {supervisor: a}",
            vec!["agents: the pattern supervisor needs at least one more role, a worker"],
        ),
        (
            "patterns: [supervisor], agents: {supervisor: a, writer: a}",
            vec!["agents.writer: \"a\" cannot hand work to itself"],
        ),
        (
            "patterns: [reflection], rounds: 11, agents: {generator: a, critic: b}",
            vec!["rounds must be from 1 to 10"],
        ),
        (
            "rounds: 2, nodes: {a: {type: agent, agent: x}}, entry_point: a",
            vec!["\"rounds\" has a meaning only with patterns"],
        ),
        (
            "nodes: {a: {type: agent, agent: x, sub_agents: [y, x, y]}}, entry_point: a",
            vec![
                "nodes.a.sub_agents: \"y\" is listed twice",
                "nodes.a.sub_agents[1]: \"x\" cannot hand work to itself",
            ],
        ),
    ] {
        let found = problems(rest);
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.ends_with(expected), "{found}");
        }
    }
}
