//! Command-line programs as agents.

use std::fs;

use serde_json::Value;

use crate::sandbox::{HomeSandbox, kill};

/// A home with the programs of these tests.
fn home() -> HomeSandbox {
    let sandbox = HomeSandbox::new();
    sandbox.write_shell_agent("echo", "cat", "");
    sandbox.write_shell_agent("slow", "echo $$ > pid; sleep 1000", "");
    sandbox.write_shell_agent("count", "echo x >> ran; sleep 0.2; wc -l < ran", ", queue_limit: 2");
    sandbox.write_shell_agent("sleepy", "sleep 1000", ", timeout: 1");
    sandbox.write_shell_agent("env", "env | sort; cat", ", envs: {GIVEN: here, KEY: '${MY_KEY}'}");
    sandbox.write_shell_agent("off", "cat", ", enabled: false");
    sandbox.write_shell_agent("reader", "cat", ", access_type: read-only");
    sandbox.write_shell_agent(
        "flaky",
        "[ -e tried ] && echo ok || { touch tried; echo 'error 429' >&2; exit 1; }",
        ", idempotent: true",
    );
    sandbox
}

fn executions(sandbox: &HomeSandbox) -> Vec<Value> {
    let (list, _) = sandbox.json(&["execution", "list"]);
    list.as_array().unwrap().clone()
}

#[test]
fn cli_agent_gets_input_and_returns_a_result() {
    let sandbox = home();
    let output = sandbox.polity(&["-q", "run", "echo", "hello, program"]);
    assert_eq!((output.code, output.out.as_str()), (0, "hello, program\n"), "{output:?}");
    let execution = &executions(&sandbox)[0];
    assert_eq!(execution["state"], "idle");
    assert_eq!(execution["previous_state"], "cleanup");
    assert_eq!(execution["exit_code"], 0);
    assert_eq!(execution["timeout"], 300);
    let (shown, _) = sandbox.json(&["execution", "show", execution["id"].as_str().unwrap()]);
    let result = &shown["result"];
    assert_eq!(
        (&result["status"], &result["output"]),
        (&"success".into(), &"hello, program".into())
    );
    let path: Vec<_> = result["state_transitions"].as_array().unwrap().iter().collect();
    let path: Vec<_> = path.iter().map(|moved| moved["to"].as_str().unwrap()).collect();
    assert_eq!(path, ["starting", "running", "completed", "cleanup", "idle"]);
    let output_folder =
        sandbox.file("data").join(result["output_files"]["folder"].as_str().unwrap());
    assert_eq!(fs::read_to_string(output_folder.join("stdout")).unwrap(), "hello, program");
}

#[test]
fn program_that_reports_a_huge_token_count_finishes() {
    let sandbox = home();
    let parser = ", parser: {format: json, answer: /a, input_tokens: /in, output_tokens: /out, \
                  cost: /cost}";
    for (name, count, cost) in [("u64", "18446744073709551615", "1e300"), ("float", "1e30", "-1")] {
        let output = format!(r#"{{"a": "done", "in": {count}, "out": {count}, "cost": {cost}}}"#);
        sandbox.write_shell_agent(name, &format!("echo '{output}'"), parser);
        sandbox.polity(&["run", name, "x"]).prints("done\n");
        let (task, _) = sandbox.json(&["task", "show", "last"]);
        assert_eq!(task["usage"]["input_tokens"], 1_u64 << 53, "{task:#}");
    }
    sandbox.polity(&["cost"]).exits(0);
}

#[test]
fn unreported_usage_of_a_program_is_unknown() {
    let sandbox = home();
    sandbox.polity(&["-q", "run", "echo", "x"]).exits(0);
    let (task, _) = sandbox.json(&["task", "show", "last"]);
    for field in ["input_tokens", "output_tokens", "cost_usd"] {
        assert!(task["usage"][field].is_null(), "{task}");
    }
    let shown = sandbox.polity(&["task", "show", "last"]);
    assert!(shown.out.contains("unknown tokens, cost unknown"), "{shown:?}");
}

#[test]
fn budget_holds_for_a_program_that_reports_its_tokens() {
    let sandbox = home();
    let parser =
        ", parser: {format: json, answer: /answer, input_tokens: /in, output_tokens: /out}";
    let script = r#"echo '{"answer": "done", "in": 100.0, "out": 20}'"#;
    sandbox.write_shell_agent("paid", script, parser);
    let over = sandbox.polity(&["run", "paid", "x", "--max-tokens", "50"]).exits(6);
    assert!(over.err.contains("120 of 50 tokens"), "{over:?}");
    let (task, _) = sandbox.json(&["task", "show", "last"]);
    assert_eq!(
        (&task["error_code"], &task["result"]),
        (&"budget".into(), &"done".into()),
        "{task}"
    );
    sandbox.polity(&["-q", "run", "paid", "x", "--max-tokens", "200"]).exits(0);
}

#[test]
fn answer_of_a_program_over_16_mib_is_no_success() {
    let sandbox = home();
    sandbox.write_shell_agent("verbose", "head -c 17000000 /dev/zero | tr '\\0' x", "");
    sandbox.polity(&["-q", "run", "verbose", "x"]).fails(1, "an answer has at most 16 MiB");
    let (task, _) = sandbox.json(&["task", "show", "last"]);
    assert_eq!(task["error_code"], "truncated");
    assert_eq!(task["result"].as_str().unwrap().len(), 16 << 20);
}

#[test]
fn read_write_agents_run_one_at_a_time_across_processes() {
    let sandbox = home();
    let children: Vec<_> = (0..3).map(|_| sandbox.start(&["-q", "run", "count", "x"])).collect();
    let mut lines: Vec<_> = children
        .into_iter()
        .map(|child| {
            let output = child.wait_with_output().unwrap();
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stdout).unwrap().trim().to_owned()
        })
        .collect();
    lines.sort();
    // Two concurrent runs would count the same lines.
    assert_eq!(lines, ["1", "2", "3"]);
}

#[test]
fn queued_tasks_are_listed_as_pending() {
    let sandbox = home();
    let mut children = vec![sandbox.start(&["run", "slow", "x"])];
    sandbox.wait_until("it runs", || sandbox.file("pid").exists().then_some(()));
    // All of them work in the same folder.
    children.extend((0..2).map(|_| sandbox.start(&["run", "count", "x"])));
    sandbox.wait_until("both are in line", || {
        let (status, _) = sandbox.json(&["agent", "status", "count"]);
        (status["queued"] == 2).then_some(())
    });
    let agents = |status: &str| {
        let tasks = sandbox.get(&["task", "list", "--status", status]);
        let tasks = tasks.as_array().unwrap().clone();
        assert!(tasks.iter().all(|task| task["status"] == status), "{tasks:?}");
        tasks.iter().map(|task| task["assigned_agent"].as_str().unwrap().to_owned()).collect()
    };
    let (pending, running): (Vec<String>, Vec<String>) = (agents("pending"), agents("running"));
    assert_eq!((pending, running), (vec!["count".into(), "count".into()], vec!["slow".into()]));
    for child in children.iter_mut().rev() {
        kill(child);
    }
    // Nobody queues for them any more.
    for task in sandbox.get(&["task", "list", "--agent", "count"]).as_array().unwrap() {
        assert_eq!(task["interrupted"], true, "{task:#}");
    }
}

#[test]
fn long_queue_waits() {
    let sandbox = HomeSandbox::bare();
    sandbox.write_shell_agent("slow", "cat >> ran; while [ ! -e go ]; do sleep 0.05; done", "");
    sandbox.write_shell_agent("quick", "cat >> ran", ", empty_output: accept");
    let mut slow = sandbox.start(&["run", "slow", "0"]);
    sandbox.wait_until("it runs", || sandbox.file("ran").exists().then_some(()));
    let ids: Vec<String> = (1..=12)
        .map(|number| sandbox.polity(&["run", "quick", &format!(" {number}"), "--detach"]).out)
        .collect();
    sandbox.wait_until("all are queued", || {
        let (status, _) = sandbox.json(&["agent", "status", "quick"]);
        (status["queued"] == 12).then_some(())
    });
    sandbox.write("go", "");
    for id in &ids {
        sandbox.polity(&["task", "wait", id.trim()]).exits(0);
    }
    slow.wait().unwrap();
    let expected: Vec<String> = (0..=12).map(|number| number.to_string()).collect();
    assert_eq!(fs::read_to_string(sandbox.file("ran")).unwrap(), expected.join(" "));
}

#[test]
fn empty_output_may_be_success() {
    let sandbox = HomeSandbox::bare();
    sandbox.write_shell_agent("silent", "true", ", empty_output: accept");
    sandbox.write_shell_agent("mute", "true", "");
    let (task, code) = sandbox.json(&["run", "silent", "x"]);
    assert_eq!((code, task["result"].as_str()), (0, Some("")), "{task}");
    sandbox.polity(&["run", "mute", "x"]).fails(1, "its output is empty (empty_output: accept");
    sandbox.write_shell_agent("wrong", "true", ", empty_output: maybe");
    sandbox.polity(&["check"]).fails(2, "empty_output: unknown value \"maybe\"");
}

#[test]
fn full_queue_rejects_tasks() {
    let sandbox = home();
    let mut running = sandbox.start(&["run", "slow", "x"]);
    sandbox.wait_until("it runs", || sandbox.file("pid").exists().then_some(()));
    // All runs share the working directory, so they queue.
    let mut waiting: Vec<_> = (0..2).map(|_| sandbox.start(&["run", "count", "x"])).collect();
    sandbox.wait_until("both are queued", || {
        let (status, _) = sandbox.json(&["agent", "status", "count"]);
        (status["queued"] == 2).then_some(())
    });
    sandbox.polity(&["run", "count", "x"]).fails(6, "queue_limit is 2");
    let (executions, _) = sandbox.json(&["execution", "list", "--agent", "count"]);
    let result = &executions[0]["result"];
    assert_eq!(result["status"], "failure", "{executions:#}");
    assert!(result["error"].as_str().unwrap().contains("queue_limit is 2"), "{executions:#}");
    for child in waiting.iter_mut().chain([&mut running]) {
        kill(child);
    }
}

#[test]
fn cancel_kills_the_whole_process_tree() {
    let sandbox = home();
    let running = sandbox.start(&["run", "slow", "x"]);
    let pid = sandbox.wait_until("it runs", || {
        fs::read_to_string(sandbox.file("pid")).ok().filter(|pid| pid.ends_with('\n'))
    });
    let active = sandbox.wait_until("the execution is listed", || {
        let (active, _) = sandbox.json(&["execution", "list", "--active"]);
        let id = active[0]["id"].as_str()?.to_owned();
        (active[0]["state"] == "running").then_some(id)
    });
    let (status, _) = sandbox.json(&["agent", "status", "slow"]);
    assert_eq!(status["pool"], serde_json::json!({"in_use": 1, "capacity": 1}));
    sandbox.polity(&["execution", "cancel", &active]).exits(0);
    let output = running.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    assert!(!std::path::Path::new(&format!("/proc/{}", pid.trim())).exists());
    let (shown, _) = sandbox.json(&["execution", "show", &active]);
    assert_eq!(shown["result"]["status"], "cancelled");
}

#[test]
fn cli_agent_times_out() {
    let sandbox = home();
    sandbox.polity(&["run", "sleepy", "x"]).fails(5, "timeout");
    assert_eq!(executions(&sandbox)[0]["result"]["status"], "timeout");
}

#[test]
fn cli_agent_gets_named_variables_and_secrets_are_masked() {
    let sandbox = home();
    let mut command = sandbox.command(&[
        "run",
        "env",
        "my key is sk-proj-Zk3Jd8sQ1mP0vX7yT4uW9rB2nC5eH6gL",
        "--env",
        "TOKEN=tok-9876543210-wxyz",
    ]);
    command.env("MY_KEY", "value-of-my-key-0123456789").env("OTHER", "not for programs");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let out = String::from_utf8(output.stdout).unwrap();
    assert!(out.contains("GIVEN=here") && out.contains("KEY=***"), "{out}");
    assert!(out.contains("TOKEN=***") && !out.contains("OTHER"), "{out}");
    // Neither records, output files nor the database contain the secrets.
    let everything =
        ["task", "execution"].map(|what| sandbox.polity(&["--json", what, "list"]).out);
    let files = fs::read_dir(sandbox.file("data/output")).unwrap();
    let outputs: Vec<String> = files
        .map(|folder| fs::read_to_string(folder.unwrap().path().join("0/stdout")).unwrap())
        .collect();
    for secret in ["value-of-my-key", "tok-9876543210", "Zk3Jd8sQ1mP0vX7y"] {
        for text in everything.iter().chain(&outputs).chain([&out]) {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
        let journal = fs::read(sandbox.file("data/polity.db")).unwrap();
        let log = fs::read(sandbox.file("data/polity.db-wal")).unwrap_or_default();
        for bytes in [journal, log] {
            let found = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
            assert!(!found, "{secret} is in the database");
        }
    }
}

#[test]
fn missing_executable_creates_no_task() {
    let sandbox = home();
    for (name, file, expected) in [
        ("gone", "executable_path: no-such-program", "no-such-program"),
        ("folder", "executable_path: ./agents", "agents"),
        ("plain", "executable_path: ./polity.yaml", "polity.yaml"),
        ("lost", "executable_path: cat, working_directory: nowhere", "nowhere"),
    ] {
        sandbox
            .write(&format!("agents/{name}.yaml"), &format!("{{name: {name}, kind: cli, {file}}}"));
        sandbox.polity(&["run", name, "x"]).fails(2, expected).err_has("hint:");
    }
    sandbox.polity(&["run", "off", "x"]).fails(2, "disabled");
    assert_eq!(sandbox.tasks().len(), 0);
}

#[test]
fn transient_failure_is_retried_and_recorded() {
    let sandbox = home();
    sandbox.polity(&["-q", "run", "flaky", "x"]).prints("ok\n");
    let execution = &executions(&sandbox)[0];
    assert_eq!(execution["retry_count"], 1);
    let earlier = execution["result"]["previous_retries"].as_array().unwrap();
    assert_eq!(earlier.len(), 1);
    assert!(earlier[0]["error"].as_str().unwrap().contains("429"), "{earlier:?}");
}

#[test]
fn cli_agent_works_as_sub_agent() {
    let sandbox = home();
    sandbox.write_scripted_agent("boss", ", sub_agents: [echo]");
    sandbox.write(
        "scripts/boss.yaml",
        r#"{rules: [
            {when: "^go$", role: user, tool_calls:
              [{tool: agent/echo, arguments: {task_description: from the boss}}]},
            {when: "(.*)", role: tool, reply: "it said: $1"}]}"#,
    );
    sandbox.polity(&["-q", "run", "boss", "go"]).prints("it said: from the boss\n");
}

#[test]
fn killed_polity_leaves_no_process() {
    let sandbox = home();
    let mut children = Vec::new();
    for number in 0..4 {
        let script = format!("(setsid sleep 1000 & echo $!) > pid{number}; sleep 1000");
        let name = format!("child{number}");
        sandbox.write_shell_agent(&name, &script, ", access_type: read-only");
        children.push(sandbox.start(&["run", &name, "x"]));
    }
    let pids: Vec<String> = (0..4)
        .map(|number| {
            sandbox.wait_until("it runs", || {
                let pid = fs::read_to_string(sandbox.file(&format!("pid{number}"))).ok()?;
                pid.ends_with('\n').then(|| pid.trim().to_owned())
            })
        })
        .collect();
    for child in &mut children {
        kill(child);
    }
    sandbox.wait_until("all are gone", || {
        let is_gone = |pid: &String| !std::path::Path::new(&format!("/proc/{pid}")).exists();
        pids.iter().all(is_gone).then_some(())
    });
    // A kill leaves the tasks resumable: they run again until they are cancelled.
    let mut resumed = sandbox.start(&["task", "resume", "--all"]);
    sandbox.wait_until("they run again", || {
        let (active, _) = sandbox.json(&["execution", "list", "--active"]);
        let running = |execution: &&Value| execution["state"] == "running";
        (active.as_array()?.iter().filter(running).count() == 4).then_some(())
    });
    for task in sandbox.tasks() {
        sandbox.polity(&["task", "cancel", task["id"].as_str().unwrap()]);
    }
    resumed.wait().unwrap();
}

/// If a shim is killed too, only its control group still identifies the process tree.
#[test]
fn next_process_kills_what_a_killed_shim_left() {
    let sandbox = home();
    sandbox.write_shell_agent("family", "(setsid sleep 1000 & echo $!) > left; sleep 1000", "");
    let mut running = sandbox.start(&["run", "family", "x"]);
    let left = sandbox.wait_until("it runs", || {
        let pid = fs::read_to_string(sandbox.file("left")).ok()?;
        pid.ends_with('\n').then(|| format!("/proc/{}", pid.trim()))
    });
    let shim = sandbox.wait_until("the execution is listed", || {
        let (active, _) = sandbox.json(&["execution", "list", "--active"]);
        active[0]["process_id"].as_i64()
    });
    let name = fs::read_to_string(format!("/proc/{shim}/comm")).unwrap();
    assert_eq!(name.trim_end(), "agent-shim", "the name differs from that of Polity");
    let record = fs::read_dir(sandbox.file("data/runs")).unwrap().next().unwrap().unwrap().path();
    let has_group = fs::read_to_string(record).unwrap().contains("\"cgroup\"");
    running.kill().unwrap();
    let shim = rustix::process::Pid::from_raw(i32::try_from(shim).unwrap()).unwrap();
    // The shim may have exited already.
    let _ = rustix::process::kill_process(shim, rustix::process::Signal::KILL);
    running.wait().unwrap();
    sandbox.polity(&["-q", "run", "reader", "x"]);
    if has_group {
        let is_gone = || !std::path::Path::new(&left).exists();
        sandbox.wait_until("it is gone", || is_gone().then_some(()));
    }
}

#[test]
fn non_idempotent_agent_needs_review_after_a_kill() {
    let sandbox = home();
    let mut running = sandbox.start(&["run", "slow", "x"]);
    sandbox.wait_until("the execution is listed", || {
        let (active, _) = sandbox.json(&["execution", "list", "--active"]);
        (active[0]["state"] == "running").then_some(())
    });
    kill(&mut running);
    sandbox.polity(&["task", "resume", "last"]).exits(3);
    let (reviews, _) = sandbox.json(&["review", "list"]);
    assert_eq!(reviews[0]["about"], "run_doubt", "{reviews}");
    let output = sandbox.polity(&["-q", "review", "approve", "last", "--skip-with", "it was done"]);
    assert_eq!((output.code, output.out.as_str()), (0, "it was done\n"), "{output:?}");
}

#[test]
fn duplicate_requests_share_one_run_across_processes() {
    let sandbox = home();
    let script = "echo x >> ran; sleep 0.5; wc -l < ran";
    sandbox.write_shell_agent("once", script, ", deduplicate_seconds: 60");
    let run = |more: &[&str]| sandbox.start(&[&["-q", "run", "once", "x"], more].concat());
    let stdout_of = |child: std::process::Child| {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let children: Vec<_> = (0..3).map(|_| run(&[])).collect();
    for child in children {
        assert_eq!(stdout_of(child), "1\n");
    }
    assert_eq!(stdout_of(run(&[])), "1\n");
    assert_eq!(executions(&sandbox).len(), 1);
    let shared = sandbox.tasks();
    assert_eq!(shared.iter().filter(|task| task["shared_with"].is_string()).count(), 3);
    let newest = shared[0]["id"].as_str().unwrap();
    let first = shared[0]["shared_with"].as_str().unwrap();
    assert!(sandbox.polity(&["task", "show", newest]).out.contains(first));
    assert!(sandbox.polity(&["task", "trace", newest]).out.contains(first));
    // Different parameters or environments are different requests.
    assert_eq!(stdout_of(run(&["--param", "a=1"])), "2\n");
    assert_eq!(stdout_of(run(&["--env", "TOKEN=some-secret-value"])), "3\n");
    assert_eq!(stdout_of(run(&["--env", "TOKEN=some-secret-value"])), "3\n");
}

#[test]
fn agents_with_copied_workspaces_run_in_parallel() {
    let sandbox = home();
    // Each run waits until the other has started; both use a folder outside their copies.
    let script = "echo x >> a; touch $OUT/$(basename $PWD); \
                  until [ $(ls $OUT | wc -l) -ge 2 ]; do sleep 0.05; done; cat a";
    sandbox.write("project/a", "first\n");
    fs::create_dir(sandbox.file("out")).unwrap();
    let out = sandbox.file("out").display().to_string();
    sandbox.write(
        "agents/own.yaml",
        &format!(
            "{{name: own, kind: cli, executable_path: sh, cli_args: [-c, '{script}'], \
             working_directory: project, workspace: copy, envs: {{OUT: '{out}'}}, \
             artifacts: [a]}}"
        ),
    );
    let children: Vec<_> = (0..2).map(|_| sandbox.start(&["-q", "run", "own", "x"])).collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "first\nx\n");
    }
    assert_eq!(fs::read_to_string(sandbox.file("project/a")).unwrap(), "first\n");
    let execution = &executions(&sandbox)[0];
    let result = &execution["result"];
    assert_eq!(result["workspace"]["changed_files"], 1);
    assert_eq!(result["artifacts"]["files"][0]["path"], "a");
    let folder = sandbox.file("data").join(result["workspace"]["folder"].as_str().unwrap());
    assert_eq!(fs::read_to_string(folder.join("a")).unwrap(), "first\nx\n");
    let shown = sandbox.polity(&["execution", "show", execution["id"].as_str().unwrap()]);
    shown.out_has("1 file changed in data/workspaces/").out_has("/artifacts/a (8 bytes)");
    // `gc` removes the workspaces with their tasks.
    sandbox.write("config/retention_policy.yaml", "default_days: 0\n");
    sandbox.polity(&["gc"]).exits(0);
    assert_eq!(fs::read_dir(sandbox.file("data/workspaces")).unwrap().count(), 0);
}

#[test]
fn copied_workspace_is_reset_after_a_kill() {
    let sandbox = home();
    sandbox.write("project/a", "first\n");
    sandbox.write(
        "agents/own.yaml",
        "{name: own, kind: cli, executable_path: sh, working_directory: project, workspace: copy, \
          grace_seconds: 1, cli_args: [-c, 'echo x >> a; [ -e ../go ] || [ -e \"$HERE/go\" ] || \
          { touch \"$HERE/began\"; sleep 1000; }; cat a'], env_allow: [HERE]}",
    );
    let here = sandbox.path().display().to_string();
    let mut running = sandbox.command(&["run", "own", "x"]).env("HERE", &here).spawn().unwrap();
    sandbox.wait_until("it runs", || sandbox.file("began").exists().then_some(()));
    kill(&mut running);
    sandbox.write("go", "");
    let resumed = sandbox.command(&["-q", "task", "resume", "last"]).env("HERE", &here).output();
    let output = resumed.unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "first\nx\n");
}

#[test]
fn private_files_are_removed_after_a_kill() {
    let sandbox = home();
    sandbox.write(
        "agents/reads.yaml",
        "{name: reads, kind: cli, executable_path: sh, working_directory: ., grace_seconds: 1, \
          input_pattern: file, cli_args: [-c, 'echo > began; sleep 1000', x, '{{input_file}}']}",
    );
    let mut running = sandbox.start(&["run", "reads", "for your eyes only"]);
    sandbox.wait_until("it runs", || sandbox.file("began").exists().then_some(()));
    let left = || fs::read_dir(sandbox.file("data/runs")).unwrap().count();
    assert!(left() >= 2);
    kill(&mut running);
    sandbox.polity(&["task", "cancel", "last"]).exits(0);
    sandbox.wait_until("it is removed", || {
        sandbox.polity(&["run", "greeter", "Ada"]).exits(0);
        (left() == 0).then_some(())
    });
}

/// Starts a daemon, which leaves its parent, its session and its process group.
const DAEMON: &str = "(setsid sh -c 'echo $$ > daemon; exec sleep 1000' < /dev/null > /dev/null 2>&1 &); \
    echo $PPID > shim; sleep 1000";

/// As a plain user, who has no control groups. Root becomes one.
pub(crate) fn as_plain_user(sandbox: &HomeSandbox, args: &[&str]) -> std::process::Command {
    let command = sandbox.command(args);
    if !rustix::process::geteuid().is_root() {
        return command;
    }
    // The checkout may be in a folder that only root may enter.
    let program = sandbox.file("polity");
    if !program.exists() {
        fs::copy(command.get_program(), &program).unwrap();
    }
    let mut owner = std::process::Command::new("chown");
    assert!(owner.args(["-R", "65534:65534"]).arg(sandbox.path()).status().unwrap().success());
    let mut plain = std::process::Command::new("setpriv");
    plain.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    plain.arg(program).args(command.get_args());
    plain.current_dir(sandbox.path()).env("HOME", sandbox.path()).env_remove("POLITY_HOME");
    plain.stdin(std::process::Stdio::null());
    plain.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    plain
}

#[test]
fn daemons_of_a_killed_shim_are_killed_at_the_next_start() {
    let sandbox = HomeSandbox::new();
    sandbox.write_shell_agent("daemon", DAEMON, "");
    sandbox.write_shell_agent("other", "echo hi", "");
    let mut running = as_plain_user(&sandbox, &["run", "daemon", "x"]).spawn().unwrap();
    let pid = |file: &str| -> i32 {
        let pid = sandbox.wait_until("the program runs", || {
            fs::read_to_string(sandbox.file(file)).ok().filter(|pid| pid.ends_with('\n'))
        });
        pid.trim().parse().unwrap()
    };
    let (daemon, shim) = (pid("daemon"), pid("shim"));
    let is_alive = || {
        let stat = fs::read_to_string(format!("/proc/{daemon}/stat")).unwrap_or_default();
        stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
    };
    let send = |signal| {
        let shim = rustix::process::Pid::from_raw(shim).unwrap();
        rustix::process::kill_process(shim, signal).unwrap();
    };
    // The shim would end the daemon, so it must not run between the two kills.
    send(rustix::process::Signal::STOP);
    kill(&mut running);
    send(rustix::process::Signal::KILL);
    assert!(is_alive(), "nothing is left to clean up");
    let output = as_plain_user(&sandbox, &["-q", "run", "other", "x"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    sandbox.wait_until("the daemon is gone", || (!is_alive()).then_some(()));
}

#[test]
fn fifos_of_a_program_do_not_hang_polity() {
    let sandbox = HomeSandbox::new();
    let script = "mkfifo out a.md; echo text > b.md";
    let fields = ", output_pattern: file, output_file_template: out, artifacts: ['*.md']";
    sandbox.write_shell_agent("pipes", script, fields);
    sandbox.polity(&["run", "pipes", "x"]).fails(1, "the output file is a FIFO");
    let (list, _) = sandbox.json(&["execution", "list"]);
    let artifacts = &list[0]["result"]["artifacts"];
    assert_eq!(artifacts["files"][0]["path"], "b.md", "{list:#}");
    assert_eq!(artifacts["left_out"][0]["path"], "a.md", "{list:#}");
    // The FIFOs are still there.
    sandbox.write_shell_agent("copied", "ls; echo done", ", workspace: copy");
    sandbox.polity(&["-q", "run", "copied", "x"]).exits(0).out_has("done");
}
