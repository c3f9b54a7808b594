//! Tests of rules between files, and of name lookup.

use super::{home, problems, report, shown};
use crate::NameLookup;

const CLI: &str = "kind: cli\nname: a\nexecutable_path: x\n";

fn llm(name: &str, lines: &str) -> String {
    format!(
        "kind: llm\nname: {name}\nrole: r\nsystem_prompt: s\nllm_config: {{provider: openai, model: m}}\n{lines}"
    )
}

#[test]
fn only_definitions_are_read() {
    let wrong = "not: a definition";
    let home = home([
        ("agents/a.yaml", CLI),
        ("agents/notes.txt", wrong),
        ("agents/README", wrong),
        ("agents/b.toml", wrong),
        ("agents/.a.yaml", wrong),
        ("agents/deeper/c.yaml", wrong),
        ("config/other.yaml", wrong),
        ("charts/c.yaml", wrong),
        ("scenarios/s.yaml", wrong),
        ("other.yaml", wrong),
        ("data/agents/x.yaml", wrong),
    ]);
    assert_eq!(shown(&home), Vec::<String>::new());
    assert_eq!(home.agents.len(), 1);
}

#[test]
fn a_file_has_the_name_it_defines() {
    let paths = ["agents/b.yaml", "agents/b.yml", "agents/b.json"];
    insta::assert_snapshot!(report(paths, |path| problems(path, CLI, [])));
}

#[test]
fn a_misnamed_file_is_found_under_both_names() {
    let home = home([("agents/b.yaml", CLI)]);
    for name in ["a", "b"] {
        assert_eq!(home.find(name), NameLookup::Broken(home.problems.clone()), "{name}");
    }
}

#[test]
fn a_name_belongs_to_one_file() {
    let workflow = "name: a\npatterns: [react]\nagents: {agent: b}\n";
    let b = ("agents/b.yaml", "kind: cli\nname: b\nexecutable_path: x\n");
    let json = "{\"kind\": \"cli\", \"name\": \"a\", \"executable_path\": \"x\"}";
    let home =
        home([("workflows/a.yaml", workflow), ("agents/a.yaml", CLI), ("agents/a.json", json), b]);
    assert_eq!(
        shown(&home),
        [
            "agents/a.yaml:2:7: the name \"a\" is already taken by agents/a.json",
            "workflows/a.yaml:1:7: the name \"a\" is already taken by agents/a.json; agents and \
             workflows share their names: rename one of the two",
        ]
    );
    assert_eq!(home.agents.keys().map(ToString::to_string).collect::<Vec<_>>(), ["b"]);
    assert!(matches!(home.find("a"), NameLookup::Broken(problems) if problems.len() == 2));
    // The same name in another folder is no conflict.
    let script = ("scripts/a.yaml", "default: {reply: x}\n");
    let schedule = ("schedules/a.yaml", "name: a\nagent: a\ncron_expression: \"@daily\"\n");
    assert_eq!(problems("agents/a.yaml", CLI, [script, schedule]), [""; 0]);
    let json = ("config/mcp_servers.json", "{}");
    assert_eq!(
        problems("config/mcp_servers.yml", "servers: []\n", [json]),
        ["1:1: the name \"mcp_servers\" is already taken by config/mcp_servers.json"]
    );
}

#[test]
fn an_agent_keeps_its_name_when_a_workflow_claims_it() {
    let taken = "name: a\npatterns: [react]\nagents: {agent: a}\n";
    let user = "name: flow\nentry_point: x\nnodes: {x: {type: agent, agent: a}}\n";
    let outer = "name: outer\nentry_point: x\nnodes: {x: {type: workflow, workflow: a}}\n";
    let boss = llm("boss", "sub_agents: [a]\n");
    let home = home([
        ("agents/a.yaml", CLI),
        ("agents/boss.yaml", boss.as_str()),
        ("workflows/a.yaml", taken),
        ("workflows/flow.yaml", user),
        ("workflows/outer.yaml", outer),
    ]);
    assert_eq!(
        shown(&home),
        ["workflows/a.yaml:1:7: the name \"a\" is already taken by agents/a.yaml; agents and \
          workflows share their names: rename one of the two"]
    );
    assert!(matches!(home.find("a"), NameLookup::Agent(_)));
    assert!(matches!(home.find("flow"), NameLookup::Workflow(_)));
    assert_eq!(home.agents.len(), 2);
    assert!(!home.workflows.contains_key("a"));
}

#[test]
fn lookup_suggests_similar_names() {
    let broken = "kind: cli\nname: broken\n";
    let workflow = "name: flow\npatterns: [react]\nagents: {agent: a}\n";
    let home = home([
        ("agents/a.yaml", CLI),
        ("agents/broken.yaml", broken),
        ("workflows/flow.yaml", workflow),
    ]);
    assert!(matches!(home.find("a"), NameLookup::Agent(_)));
    assert!(matches!(home.find("flow"), NameLookup::Workflow(_)));
    let NameLookup::Broken(problems) = home.find("broken") else { panic!() };
    assert_eq!(problems, home.problems);
    for (name, expected) in [("flo", Some("flow")), ("borken", Some("broken")), ("zzz", None)] {
        let NameLookup::Unknown { suggestion } = home.find(name) else { panic!("{name}") };
        assert_eq!(suggestion.as_ref().map(polity_model::name::Name::as_str), expected);
    }
}

#[test]
fn a_broken_file_still_defines_its_name() {
    let wrong = "kind: cli\nname: helper\ntimeot: 1\npreset: llm\n";
    let (writer, servers) = (llm("writer", "sub_agents: [helper]\ntools: [x/y]\n"), "servers: [");
    let home = home([
        ("agents/helper.yaml", wrong),
        ("agents/writer.yaml", writer.as_str()),
        ("config/mcp_servers.yaml", servers),
    ]);
    assert_eq!(
        shown(&home),
        [
            "agents/helper.yaml:3:1: unknown field \"timeot\", did you mean \"timeout\"?",
            "config/mcp_servers.yaml:1:10: this is not valid YAML: unclosed bracket '['",
        ]
    );
    assert!(home.agents.contains_key("writer"));
}

#[test]
fn a_broken_script_is_reported_to_its_agent() {
    let agent = llm("w", "").replace("openai, model: m", "scripted, script: s");
    let home = home([("agents/w.yaml", agent.as_str()), ("scripts/s.yaml", "rules: 5\n")]);
    assert!(matches!(home.find("w"), NameLookup::Agent(_)));
    assert_eq!(home.script(&"s".parse().unwrap()), Err(home.problems.clone()));
    assert_eq!(shown(&home), ["scripts/s.yaml:1:8: rules must be a list, found the number 5"]);
}

#[test]
fn rejects_cycles_of_delegation() {
    let (a, b, c) = (
        llm("a", "sub_agents: [b]\n"),
        llm("b", "sub_agents: [c]\n"),
        llm("c", "sub_agents: [b]\n"),
    );
    let home = home([
        ("agents/a.yaml", a.as_str()),
        ("agents/b.yaml", b.as_str()),
        ("agents/c.yaml", c.as_str()),
    ]);
    assert_eq!(shown(&home), ["agents/c.yaml:6:14: agents delegate in a cycle: b -> c -> b"]);
}

#[test]
fn reports_delegation_beyond_the_limit() {
    let (a, b, c) = (llm("a", "sub_agents: [b]\n"), llm("b", "sub_agents: [c]\n"), llm("c", ""));
    let node =
        |name: &str, node: &str| format!("name: {name}\nentry_point: x\nnodes:\n  x: {{{node}}}\n");
    let near = node("near", "type: agent, agent: b");
    let more = node("more", "type: agent, agent: c, sub_agents: [b]");
    let outer = node("outer", "type: workflow, workflow: near");
    let home = |settings: &str| {
        home([
            ("agents/a.yaml", a.as_str()),
            ("agents/b.yaml", b.as_str()),
            ("agents/c.yaml", c.as_str()),
            ("polity.yaml", settings),
            ("workflows/more.yaml", more.as_str()),
            ("workflows/near.yaml", near.as_str()),
            ("workflows/outer.yaml", outer.as_str()),
        ])
    };
    let limited = home("limits: {sub_agent_depth: 2}\n");
    let rest = "and limits.sub_agent_depth allows 2: hand it on over fewer, or raise the limit in \
                polity.yaml";
    assert_eq!(
        shown(&limited),
        [
            format!(
                "workflows/more.yaml:4:3: work could be handed on over 3 steps (more -> c -> b -> c), {rest}"
            ),
            format!(
                "workflows/outer.yaml:4:3: work could be handed on over 3 steps (outer -> near -> b -> c), {rest}"
            ),
        ]
    );
    assert!(
        matches!(limited.find("outer"), NameLookup::Workflow(_)),
        "it is refused when it is run"
    );
    assert_eq!(shown(&home("limits: {sub_agent_depth: 3}\n")), Vec::<String>::new());
    assert_eq!(shown(&home("limits: {sub_agent_depth: 1}\n")).len(), 4);
    let round = llm("b", "sub_agents: [a]\n").replace("name: b", "name: a");
    assert_eq!(super::home([("agents/b.yaml", round.as_str())]).problems.len(), 2);
    let unreadable = home("limits: {sub_agent_depth: x}\n");
    assert_eq!(shown(&unreadable).len(), 1, "nobody can tell: {:?}", shown(&unreadable));
}

#[test]
fn all_problems_of_a_broken_home() {
    let home = home([
        ("polity.yaml", "server: {default_agent: writter, listen: here}\nlimit: {}\n"),
        (
            "agents/writer.yaml",
            "kind: llm\nname: writer\nrole: 42\nsystem_prompt: \"\"\ntool: [files/*]\ntemperature: 3\nllm_config:\n  provider: opnai\n  api_key: sk-1\n",
        ),
        ("agents/coder.yaml", "kind: cli\nname: Coder\nmax_concurrent_executions: 4\nmode: chat\n"),
        ("agents/broken.yaml", "kind: llm\n  name: broken\n"),
        ("agents/empty.yaml", ""),
        ("agents/same.yaml", "kind: cli\nname: same\nexecutable_path: x\n"),
        (
            "workflows/same.yaml",
            "name: same\nnodes: {a: {type: agent, agent: writr}}\nentry_point: b\n",
        ),
        (
            "schedules/daily.yaml",
            "name: weekly\nagent: nobody\ncron_expression: \"99 * * * *\"\ntime_zone: Europe/Berln\n",
        ),
        ("scripts/greeter.yaml", "rules:\n  - when: \"(\"\n    replay: hi\n"),
        (
            "config/mcp_servers.yaml",
            "servers:\n  - {name: files, transport: stdio, config: {url: \"http://x\"}}\n",
        ),
    ]);
    insta::assert_snapshot!(shown(&home).join("\n"));
    let writer = home.problems.iter().filter(|problem| problem.file == "agents/writer.yaml");
    insta::assert_json_snapshot!(writer.collect::<Vec<_>>());
}
