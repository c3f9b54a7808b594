//! `notify.on_review`: a command or webhook runs when a task begins to wait for a review.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::sync::mpsc;

use serde_json::{Value, json};

use crate::sandbox::{CommandOutput, HomeSandbox, command_output, finish};
use crate::tools::{calls, home};

/// A command that writes each notification to a file named after its task.
const NOTIFY_SCRIPT: &str = "#!/bin/sh\nset -eu\ncat > \"notifications-$POLITY_TASK_ID.json\"\n\
    echo \"$PWD|$POLITY_HOME|$POLITY_REVIEW_POSITION|$POLITY_REVIEW_QUESTION|$*\" >> notifications.txt\n\
    env > env.txt\n";

/// A home in which `count` needs approval, with a notification.
fn home_with_notification(notify: &Value) -> HomeSandbox {
    let sandbox = home("approval: [kit/count]\n", "{}", &[]);
    calls(&sandbox, &json!([{"tool": "kit/count", "arguments": {"file": "a"}}]));
    sandbox.write("polity.yaml", &json!({"notify": {"on_review": notify}}).to_string());
    sandbox
}

fn script(sandbox: &HomeSandbox, name: &str, text: &str) {
    sandbox.write(name, text);
    fs::set_permissions(sandbox.file(name), fs::Permissions::from_mode(0o755)).unwrap();
}

fn run(sandbox: &HomeSandbox) -> CommandOutput {
    sandbox.polity(&["run", "worker", "go"])
}

fn notifications(sandbox: &HomeSandbox) -> Vec<String> {
    let lines = fs::read_to_string(sandbox.file("notifications.txt")).unwrap_or_default();
    lines.lines().map(str::to_owned).collect()
}

/// A local HTTP server that records the head and body of each request.
struct FakeWebhook {
    url: String,
    requests: mpsc::Receiver<(String, Value)>,
}

impl FakeWebhook {
    /// A server that answers with each status in turn and then closes.
    fn answering(statuses: &[u16]) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (send, requests) = mpsc::channel();
        let statuses = statuses.to_vec();
        std::thread::spawn(move || {
            for status in statuses {
                let mut stream = listener.accept().unwrap().0;
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let mut head = String::new();
                while !head.ends_with("\r\n\r\n") {
                    reader.read_line(&mut head).unwrap();
                }
                let head = head.to_lowercase();
                let length = head.split("content-length: ").nth(1).unwrap();
                let length = length.lines().next().unwrap().parse().unwrap();
                let mut body = vec![0; length];
                reader.read_exact(&mut body).unwrap();
                // The test may have dropped the receiver.
                let _ = send.send((head.clone(), serde_json::from_slice(&body).unwrap()));
                // The response repeats the request line, as many servers do.
                let output = head.lines().next().unwrap();
                let length = output.len();
                let answer = format!(
                    "HTTP/1.1 {status} x\r\ncontent-length: {length}\r\nconnection: \
                     close\r\n\r\n{output}"
                );
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        Self { url, requests }
    }

    fn received(&self) -> Vec<(String, Value)> {
        self.requests.try_iter().collect()
    }
}

#[test]
fn command_runs_once_per_review() {
    let sandbox = home_with_notification(
        &json!({"command": ["./tell.sh", "two words", "${POLITY_REVIEW_POSITION}"]}),
    );
    script(&sandbox, "tell.sh", NOTIFY_SCRIPT);
    let output = command_output(
        &sandbox.command(&["run", "worker", "go"]).env("OTHER", "x").output().unwrap(),
    );
    assert_eq!(output.code, 3, "{output:?}");
    assert!(!output.err.contains("warning"), "{output:?}");
    let id = sandbox.tasks()[0]["id"].as_str().unwrap().to_owned();
    let (review, _) = sandbox.json(&["review", "show", &id]);
    let json = fs::read_to_string(sandbox.file(&format!("notifications-{id}.json"))).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&json).unwrap(), review);
    let folder = sandbox.path().canonicalize().unwrap();
    let (folder, question) = (folder.display(), review["question"].as_str().unwrap());
    let expected = format!("{folder}|{folder}|worker|{question}|two words worker");
    assert_eq!(notifications(&sandbox), [expected]);
    let env = fs::read_to_string(sandbox.file("env.txt")).unwrap();
    assert!(env.contains("PATH=") && !env.contains("OTHER="), "{env}");
    // Neither a resume without a new review nor an answer notifies again.
    sandbox.polity(&["task", "resume", &id]).exits(3);
    sandbox.polity(&["review", "approve", &id]).exits(0);
    assert_eq!(notifications(&sandbox).len(), 1);
}

#[test]
fn resuming_process_notifies_of_the_next_review() {
    let sandbox = home_with_notification(&json!({"command": "./tell.sh 'two words'"}));
    script(&sandbox, "tell.sh", NOTIFY_SCRIPT);
    let both = json!([
        {"tool": "kit/count", "arguments": {"file": "a"}},
        {"tool": "kit/count", "arguments": {"file": "b"}},
        {"tool": "kit/count", "arguments": {"file": "c"}},
    ]);
    calls(&sandbox, &both);
    assert_eq!(run(&sandbox).code, 3);
    sandbox.polity(&["review", "approve", "last"]).exits(3);
    assert_eq!(notifications(&sandbox).len(), 2);
    sandbox.polity(&["review", "approve", "last", "--detach"]).exits(0);
    assert_eq!(notifications(&sandbox).len(), 2);
    sandbox.polity(&["task", "resume", "--all"]).exits(3);
    let notifications = notifications(&sandbox);
    assert_eq!(notifications.len(), 3);
    for (line, file) in notifications.iter().zip(["a", "b", "c"]) {
        assert!(line.contains(&format!("{{\"file\":\"{file}\"}}")), "{line}");
        assert!(line.ends_with("|two words"), "{line}");
    }
}

#[test]
fn detached_task_notifies() {
    let sandbox = home_with_notification(&json!({"command": "./tell.sh"}));
    script(&sandbox, "tell.sh", NOTIFY_SCRIPT);
    sandbox.polity(&["run", "worker", "go", "--detach"]).exits(0);
    sandbox.wait_until("the notification arrives", || {
        (notifications(&sandbox).len() == 1).then_some(())
    });
}

#[test]
fn sub_agent_review_names_its_own_task() {
    let sandbox = home_with_notification(&json!({"command": "./tell.sh"}));
    script(&sandbox, "tell.sh", NOTIFY_SCRIPT);
    sandbox.write_scripted_agent("boss", ", sub_agents: [worker]");
    let hand_out = json!({"tool": "agent/worker", "arguments": {"task_description": "go"}});
    let script = json!({"rules": [
        {"when": "^start$", "role": "user", "tool_calls": [hand_out, hand_out]},
        {"when": "(?s)^(.*)$", "role": "tool", "reply": "$1"},
    ]});
    sandbox.write("scripts/boss.yaml", &script.to_string());
    sandbox.polity(&["run", "boss", "start"]).exits(3);
    let (reviews, _) = sandbox.json(&["review", "list"]);
    let reviews = reviews.as_array().unwrap();
    assert_eq!((reviews.len(), notifications(&sandbox).len()), (2, 2));
    for review in reviews {
        let file = format!("notifications-{}.json", review["task_id"].as_str().unwrap());
        let json = fs::read_to_string(sandbox.file(&file)).unwrap();
        assert_eq!(&serde_json::from_str::<Value>(&json).unwrap(), review);
    }
}

#[test]
fn webhook_is_retried() {
    let hook = FakeWebhook::answering(&[500, 200]);
    let sandbox = home_with_notification(&json!({"webhook": format!("{}/hook", hook.url)}));
    let output = run(&sandbox).exits(3);
    assert!(!output.err.contains("warning"), "{output:?}");
    let (review, _) = sandbox.json(&["review", "show", "last"]);
    let received = hook.received();
    assert_eq!(received.len(), 2);
    for (head, body) in received {
        assert!(head.starts_with("post /hook http/1.1\r\n"), "{head}");
        assert!(head.contains("content-type: application/json\r\n"), "{head}");
        assert_eq!(body, review);
    }
}

#[test]
fn failed_notification_is_only_a_warning() {
    let unreachable = FakeWebhook::answering(&[]).url;
    let cases = [
        (
            json!({"command": "no-such-program"}),
            "\"no-such-program\" of notify.on_review.command is",
        ),
        (json!({"command": "./fails.sh"}), "ended with exit status: 7: no bell\nand no light"),
        (json!({"command": ["./fails.sh", "${NOT_SET}"]}), "environment variable NOT_SET, which"),
        (json!({"webhook": "${NOT_SET}"}), "environment variable NOT_SET, which is not set"),
        (json!({"webhook": unreachable}), "cannot be reached"),
        (json!({"webhook": FakeWebhook::answering(&[404]).url}), "answered with status 404"),
        (
            json!({"webhook": FakeWebhook::answering(&[503, 502, 500]).url}),
            "answered with status 500",
        ),
    ];
    for (notify, expected) in cases {
        let sandbox = home_with_notification(&notify);
        script(&sandbox, "fails.sh", "#!/bin/sh\necho and no light\necho no bell >&2\nexit 7\n");
        let output = sandbox.polity(&["--quiet", "run", "worker", "go"]);
        assert_eq!((output.code, output.out.as_str()), (3, ""), "{notify} {output:?}");
        for expected in
            ["warning: no notification was sent for the review of task", expected, "hint: "]
        {
            assert!(output.err.contains(expected), "{notify}: {expected} is not in {output:?}");
        }
        sandbox.polity(&["review", "approve", "last"]).exits(0);
    }
}

#[test]
fn json_output_has_the_warning_on_stderr() {
    let sandbox = home_with_notification(&json!({"command": "no-such-program"}));
    let output = sandbox.polity(&["run", "worker", "go", "--json"]).exits(3);
    let warning: Value = serde_json::from_str(&output.err).unwrap();
    assert_eq!(warning["warning"]["code"], "notify");
    let task: Value = serde_json::from_str(&output.out).unwrap();
    assert_eq!(task["status"], "awaiting_human");
}

#[test]
fn ctrl_c_aborts_a_hanging_command() {
    let sandbox = home_with_notification(&json!({"command": "./hangs.sh"}));
    script(&sandbox, "hangs.sh", "#!/bin/sh\nsleep 600 &\necho $! > pid\nwait\n");
    let running = sandbox.start(&["run", "worker", "go"]);
    let pid = sandbox.wait_until("it hangs", || {
        let pid = fs::read_to_string(sandbox.file("pid")).ok()?;
        pid.trim().parse::<u32>().ok()
    });
    sandbox.wait_for_status("awaiting_human");
    let process = rustix::process::Pid::from_raw(running.id().cast_signed()).unwrap();
    rustix::process::kill_process(process, rustix::process::Signal::INT).unwrap();
    let output = finish(running);
    output.fails(3, "stopped before all review notifications");
    sandbox.wait_until("the command has ended", || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
        stat.map_or(true, |stat| stat.contains(") Z ")).then_some(())
    });
}

#[test]
fn secrets_are_substituted_and_never_shown() {
    let secret = "s3cret-0f-the-h00k";
    let hook = FakeWebhook::answering(&[403, 403]);
    for (webhook, value) in [
        (format!("{}/${{HOOK}}?key=${{HOOK}}", hook.url), secret.to_owned()),
        ("${HOOK}".to_owned(), format!("{}/{secret}?key={secret}", hook.url)),
    ] {
        let sandbox = home_with_notification(
            &json!({"webhook": webhook, "command": ["./fails.sh", "${HOOK}"]}),
        );
        script(&sandbox, "fails.sh", "#!/bin/sh\necho the key is $1 >&2\nexit 1\n");
        let mut command = sandbox.command(&["--verbose", "run", "worker", "go"]);
        let output = command_output(&command.env("HOOK", value).output().unwrap());
        assert_eq!(output.code, 3, "{output:?}");
        assert!(output.err.contains("status 403"), "{output:?}");
        assert!(output.err.contains("the key is ***"), "{output:?}");
        assert!(!format!("{output:?}").contains(secret), "{output:?}");
        let (head, _) = hook.requests.recv().unwrap();
        assert!(head.starts_with(&format!("post /{secret}?key={secret} ")), "{head}");
        for file in fs::read_dir(sandbox.file("data")).unwrap() {
            let path = file.unwrap().path();
            let bytes = if path.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
            let found = bytes.windows(secret.len()).any(|part| part == secret.as_bytes());
            assert!(!found, "{}", path.display());
        }
    }
}

#[test]
fn replay_does_not_notify() {
    let sandbox = home_with_notification(&json!({"command": "./tell.sh"}));
    script(&sandbox, "tell.sh", NOTIFY_SCRIPT);
    let run_with = |option| sandbox.polity(&["run", "worker", "go", option, "tape"]).code;
    assert_eq!(run_with("--record"), 3);
    assert_eq!(notifications(&sandbox).len(), 1);
    assert_eq!(run_with("--replay"), 3);
    assert_eq!(notifications(&sandbox).len(), 1);
}
