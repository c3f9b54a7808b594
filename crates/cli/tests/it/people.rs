//! People in workflows: questions, one after the other and in time.

use std::thread::sleep;
use std::time::Duration;

use crate::sandbox::Sandbox;

fn sandbox(workflow: &str) -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("workflows/flow.yaml", &format!("name: flow\n{workflow}"));
    sandbox
}

#[test]
fn people_are_asked_one_after_the_other() {
    let sandbox = sandbox(
        "
entry_point: both
nodes:
  both: {type: parallel, branches: [one, two]}
  one: {type: human, question: First?}
  two: {type: human, question: Second?}
",
    );
    assert_eq!(sandbox.polity(&["run", "flow", "x"]).code, 3);
    let said = sandbox.polity(&["--quiet", "review", "approve", "last", "--message", "yes"]);
    assert_eq!(said.code, 3, "{said:?}");
    assert!(said.err.starts_with("waiting for a person's decision"), "{said:?}");
    assert!(sandbox.polity(&["review", "show", "last"]).out.contains("Second?"));
    let said = sandbox.polity(&["--quiet", "review", "approve", "last", "--message", "no"]);
    assert_eq!((said.code, said.out.as_str()), (0, "{\"one\":\"yes\",\"two\":\"no\"}\n"));
}

#[test]
fn what_no_one_answers_in_time_is_told_of_when_it_ends() {
    let sandbox = sandbox(
        "
entry_point: ask
nodes: {ask: {type: human, question: Now?, deadline_seconds: 1}}
",
    );
    for _ in 0..2 {
        assert_eq!(sandbox.polity(&["run", "flow", "x"]).code, 3);
    }
    sleep(Duration::from_millis(1100));
    let late = sandbox.polity(&["review", "approve", "last"]);
    assert!(late.code == 1 && late.err.contains("it is too late"), "{late:?}");
    let one = sandbox.polity(&["task", "resume", "last"]);
    assert!(one.code == 5 && one.err.contains("timeout: ask: no one answered"), "{one:?}");
    let all = sandbox.polity(&["task", "resume", "--all"]);
    assert!(all.code == 1 && all.out.contains("failed"), "{all:?}");
    assert_eq!(sandbox.polity(&["task", "resume", "--all"]).out, "nothing to resume\n");
}
