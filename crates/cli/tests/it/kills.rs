//! `kill -9` at random moments: nothing that was said is lost, and every task can be finished.

use std::time::Duration;

use crate::sandbox::Sandbox;

/// A small generator, so that the moments are the same in every run.
struct Moments(u64);

impl Moments {
    fn next_ms(&mut self, below: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

#[test]
fn no_kill_loses_a_task_or_breaks_the_journal() {
    let rounds = if std::env::var_os("POLITY_TEST_LONG").is_some() { 200 } else { 10 };
    let sandbox = Sandbox::new();
    let mut moments = Moments(7);
    for round in 0..rounds {
        let mut child = sandbox.start(&["run", "greeter", "overload"]);
        std::thread::sleep(Duration::from_millis(moments.next_ms(60)));
        child.kill().unwrap();
        child.wait().unwrap();
        if round % 3 == 0 {
            let resumed = sandbox.polity(&["task", "resume", "--all"]);
            assert!([0, 1].contains(&resumed.code), "{resumed:?}");
        }
    }
    let resumed = sandbox.polity(&["task", "resume", "--all"]);
    assert_eq!(resumed.code, 0, "{resumed:?}");
    for task in sandbox.tasks() {
        assert_eq!(task["status"], "completed", "{task}");
        assert_eq!(task["result"], "Hello, overload.", "{task}");
        let (trace, _) = sandbox.json(&["task", "trace", task["id"].as_str().unwrap()]);
        let steps = trace["steps"].as_array().unwrap();
        let count = |name: &str| steps.iter().filter(|step| step["step_name"] == name).count();
        assert_eq!((count("created"), count("completed")), (1, 1), "{trace}");
        // The rule applies twice in a task, whatever happens to its process in between.
        assert_eq!(count("retry"), 2, "{trace}");
    }
}
