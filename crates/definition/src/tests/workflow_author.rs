//! The problems of a workflow with many errors, as one snapshot.

use super::{home, shown};

#[test]
fn problems_of_a_workflow_author() {
    let home = home([
        ("agents/writer.yaml", "kind: cli\nname: writer\nexecutable_path: x\n"),
        (
            "workflows/circle.yaml",
            "name: circle\nentry_point: a\nnodes:\n  a: {type: agent, agent: writer}\n  \
             b: {type: human, question: Good?}\nedges:\n  - {from: a, to: b}\n  - {from: b, to: a}\n",
        ),
        (
            "workflows/stray.yaml",
            "name: stray\nentry_point: a\nnodes:\n  a: {type: agent, agent: writer}\n  \
             b: {type: agent, agent: writer}\n",
        ),
        (
            "workflows/names.yaml",
            "name: names\nentry_point: aa\nnodes:\n  a: {type: agent, agent: writr}\n  \
             b: {type: tool, tool: notes/write}\n  c: {type: workflow, workflow: circl}\nedges:\n  \
             - {from: a, to: {ok: b, default: cc}}\n",
        ),
        (
            "workflows/texts.yaml",
            "name: texts\nentry_point: a\nnodes:\n  \
             a: {type: condition, expression: \"size(last > 3\"}\n  \
             b: {type: condition, expression: \"metadata.topic = 'x'\"}\n  \
             c: {type: condition, expression: \"lenght(last) > 2\"}\n  \
             d: {type: human, question: \"{{ nodes.a.outptu }}\"}\n  \
             e: {type: agent, agent: writer, input: \"{{ input | uper }}\"}\n  \
             f: {type: agent, agent: writer, input: \"{% if input %}x\"}\nedges:\n  \
             - {from: a, to: b, condition: \"routingkey == 'x'\"}\n",
        ),
        (
            "workflows/data.yaml",
            "name: data\nentry_point: s\nnodes:\n  s: {type: condition, expression: \"'x'\"}\n  \
             a: {type: agent, agent: writer, inputs: [y], outputs: [x]}\n  \
             b: {type: agent, agent: writer, inputs: [x], outputs: [y]}\nedges:\n  \
             - {from: s, to: a}\n  - {from: s, to: b}\n",
        ),
        (
            "workflows/same.yaml",
            "name: same\nentry_point: p\nnodes:\n  p: {type: parallel, branches: [a, b]}\n  \
             a: {type: agent, agent: writer, outputs: [text]}\n  \
             b: {type: agent, agent: writer, outputs: [text]}\n",
        ),
        (
            "workflows/branch.yaml",
            "name: branch\nentry_point: p\nnodes:\n  p: {type: parallel, branches: [a]}\n  \
             a: {type: agent, agent: writer}\n  c: {type: agent, agent: writer}\nedges:\n  \
             - {from: a, to: c}\n",
        ),
        (
            "workflows/late.yaml",
            "name: late\nentry_point: h\nnodes:\n  \
             h: {type: human, question: Good?, default_action: approve}\n",
        ),
        (
            "workflows/roles.yaml",
            "name: roles\npatterns: [reflection]\nagents: {generator: writer, critc: writer}\n",
        ),
    ]);
    insta::assert_snapshot!(shown(&home).join("\n"));
}
