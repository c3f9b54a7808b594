//! Third-party command-line agents against a local model server. The normal run covers some of
//! them, the long run all.

mod agent_table;

use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use polity_testkit::model_server::{ModelServer, ModelTurn, RecordedRequest};
use serde_json::{Value, json};

use self::agent_table::{INPUT_TOKENS, InstalledAs, KEY_VARIABLE, OUTPUT_TOKENS, RealAgent};
use crate::sandbox::{CommandOutput, HomeSandbox, command_output, finish};

const KEY: &str = "key-of-the-model-server-0123456789";

const ANSWER: &str = "Hello from the model.";

/// The variable that marks every process of a run.
const MARK: &str = "POLITY_TEST_MARK";

/// Settings in the working directory that grant all permissions.
const GRANTS: [(&str, &str); 5] = [
    (
        ".claude/settings.json",
        r#"{"permissions": {"allow": ["Bash"], "defaultMode": "bypassPermissions"},
            "hooks": {"UserPromptSubmit": [{"hooks": [{"type": "command", "command": "touch ran"}]}]}}"#,
    ),
    (".codex/config.toml", "sandbox_mode = \"danger-full-access\"\napproval_policy = \"never\"\n"),
    (
        ".gemini/settings.json",
        r#"{"tools": {"allowed": ["run_shell_command"]}, "general": {"defaultApprovalMode": "yolo"}}"#,
    ),
    (
        ".qwen/settings.json",
        r#"{"tools": {"allowed": ["run_shell_command"], "approvalMode": "yolo"},
            "mcpServers": {"x": {"command": "sh", "args": ["-c", "touch ran; cat"]}},
            "hooks": {"SessionStart": [{"hooks": [{"type": "command", "command": "touch ran"}]}]}}"#,
    ),
    (
        "opencode.json",
        r#"{"permission": {"bash": "allow"}, "agent": {"build": {"permission": {"bash": "allow"}}}}"#,
    ),
];

/// An agent in its own home, with a model server.
struct RealAgentFixture {
    agent: &'static RealAgent,
    server: ModelServer,
    sandbox: HomeSandbox,
    /// The unique marker of a run.
    mark: String,
}

impl RealAgentFixture {
    /// Returns `None` if only the long run covers the agent.
    fn new(
        agent: &'static RealAgent,
        answer: impl Fn(&RecordedRequest) -> ModelTurn + Send + Sync + 'static,
    ) -> Option<Self> {
        Self::with_mark(agent, |_| answer)
    }

    /// Like `new`, for answers that contain the marker of the run.
    fn with_mark<A>(agent: &'static RealAgent, answer: impl FnOnce(String) -> A) -> Option<Self>
    where
        A: Fn(&RecordedRequest) -> ModelTurn + Send + Sync + 'static,
    {
        static SETTINGS: AtomicUsize = AtomicUsize::new(0);
        if agent.runs == InstalledAs::Long && !is_long_run() {
            return None;
        }
        let number = SETTINGS.fetch_add(1, Ordering::Relaxed);
        let mark = format!("{}{number:03}", std::process::id());
        let server = ModelServer::answering(answer(mark.clone()));
        let sandbox = HomeSandbox::empty();
        let setting = Self { agent, server, sandbox, mark };
        setting.write();
        Some(setting)
    }

    fn write(&self) {
        for folder in ["agent/tmp", "work"] {
            fs::create_dir_all(self.sandbox.file(folder)).unwrap();
        }
        for (path, content) in self.agent.files {
            self.sandbox.write(&format!("agent/{path}"), &self.filled(content));
        }
        let own = [("HOME", "@HOME@"), ("TMPDIR", "@HOME@/tmp"), (MARK, &self.mark)];
        let envs: Value = own
            .iter()
            .chain(self.agent.envs)
            .map(|(name, value)| ((*name).to_owned(), json!(self.filled(value))))
            .collect::<serde_json::Map<_, _>>()
            .into();
        let definition = json!({"name": self.agent.preset, "kind": "cli",
            "preset": self.agent.preset, "executable_path": (self.agent.program)(),
            "model": self.agent.model, "working_directory": "work", "envs": envs,
            "permission_policy": "allow", "grace_seconds": 1});
        self.sandbox.write("polity.yaml", "");
        let path = format!("agents/{}.yaml", self.agent.preset);
        self.sandbox.write(&path, &definition.to_string());
    }

    /// Sets the permission policy, and has files in the working directory grant everything.
    fn withhold_permissions(&self, policy: &str) {
        let path = format!("agents/{}.yaml", self.agent.preset);
        let definition = fs::read_to_string(self.sandbox.file(&path)).unwrap();
        let definition = definition.replace(
            r#""permission_policy":"allow""#,
            &format!(r#""permission_policy":"{policy}""#),
        );
        assert!(definition.contains(policy), "{definition}");
        self.sandbox.write(&path, &definition);
        for (path, settings) in GRANTS {
            self.sandbox.write(&format!("work/{path}"), settings);
        }
    }

    fn filled(&self, text: &str) -> String {
        let home = self.sandbox.file("agent");
        text.replace("@URL@", &self.server.url()).replace("@HOME@", home.to_str().unwrap())
    }

    fn command(&self) -> Command {
        let mut command = self.sandbox.command(&["-q", "run", self.agent.preset, "say hello"]);
        command.env(KEY_VARIABLE, KEY);
        command
    }

    fn run(&self) -> CommandOutput {
        let output = command_output(&self.command().output().unwrap());
        assert_eq!(self.left(), Vec::<String>::new(), "processes are left");
        output
    }

    /// Returns the only execution.
    fn execution(&self) -> Value {
        let (list, _) = self.sandbox.json(&["execution", "list"]);
        assert_eq!(list.as_array().unwrap().len(), 1);
        list[0].clone()
    }

    /// Returns the command lines of all processes of this run.
    fn left(&self) -> Vec<String> {
        let mark = format!("{MARK}={}", self.mark);
        let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
        processes
            .filter_map(|process| {
                let read = |file: &str| fs::read(process.path().join(file)).ok();
                let text = |file: &str| Some(String::from_utf8_lossy(&read(file)?).into_owned());
                let (variables, arguments) = (text("environ")?, text("cmdline")?);
                // A zombie has neither variables nor arguments.
                let is_ours = variables.split('\0').any(|variable| variable == mark)
                    || arguments.split('\0').any(|argument| argument == nap(&self.mark));
                is_ours.then(|| arguments.replace('\0', " "))
            })
            .collect()
    }

    #[track_caller]
    fn failed(&self, output: &CommandOutput, category: &str) {
        assert_eq!(output.code, 1, "{output:?}");
        assert!(output.err.contains("agent_failed"), "{output:?}");
        assert!(!output.err.contains(KEY) && !output.out.contains(KEY), "{output:?}");
        let execution = self.execution();
        assert_eq!(execution["error_category"], category, "{execution:#}");
        assert_eq!(execution["result"]["status"], "failure", "{execution:#}");
        assert_eq!(states(&execution), ["starting", "running", "failed", "cleanup", "idle"]);
    }
}

fn is_long_run() -> bool {
    std::env::var_os("POLITY_TEST_LONG").is_some()
}

/// The unique sleep time of a tool, which identifies its process.
fn nap(mark: &str) -> String {
    format!("1000.{mark}")
}

fn states(execution: &Value) -> Vec<&str> {
    let moves = execution["result"]["state_transitions"].as_array().unwrap();
    moves.iter().map(|moved| moved["to"].as_str().unwrap()).collect()
}

fn answer_is_the_result(agent: &'static RealAgent) {
    let turn = || ModelTurn::text(ANSWER).usage(INPUT_TOKENS, OUTPUT_TOKENS);
    let Some(setting) = RealAgentFixture::new(agent, move |_| turn()) else { return };
    let output = setting.run().exits(0);
    if agent.is_terse {
        assert_eq!(output.out.trim_end(), ANSWER);
    } else {
        assert!(output.out.contains(ANSWER), "{output:?}");
    }
    let requests = setting.server.requests();
    assert!(requests.iter().all(|request| request.key() == Some(KEY)), "{requests:?}");
    let asked = |request: &RecordedRequest| request.body.to_string().contains("say hello");
    assert!(requests.iter().any(asked), "{requests:?}");
    let execution = setting.execution();
    assert_eq!(states(&execution), ["starting", "running", "completed", "cleanup", "idle"]);
    assert_eq!(execution["exit_code"], 0);
    assert!(execution["resource_usage"]["peak_memory_mb"].as_u64() > Some(0), "{execution:#}");
    let task = &setting.sandbox.tasks()[0];
    let (input, output) = agent.tokens.unwrap_or_default();
    assert_eq!(task["usage"]["input_tokens"], input, "{task:#}");
    assert_eq!(task["usage"]["output_tokens"], output, "{task:#}");
    assert_eq!(execution["result"]["session_id"].is_string(), agent.has_session, "{execution:#}");
}

/// Some agents exit with 0 in this case.
fn rejected_key_is_a_permanent_failure(agent: &'static RealAgent) {
    let refuse = |_: &RecordedRequest| ModelTurn::status(401, "invalid x-api-key");
    let Some(setting) = RealAgentFixture::new(agent, refuse) else { return };
    let output = setting.run();
    setting.failed(&output, "permanent");
    assert!(output.err.contains("check its key"), "{output:?}");
}

/// Every agent retries by itself; the preset classifies the final failure.
fn lasting_rate_limit_is_a_transient_failure(agent: &'static RealAgent) {
    if agent.is_patient && !is_long_run() {
        return;
    }
    let Some(setting) = RealAgentFixture::new(agent, |_| ModelTurn::retry_after(429, "1")) else {
        return;
    };
    setting.failed(&setting.run(), "transient");
}

/// Some agents lose output beyond 64 KiB unless it is read at once.
fn rate_limit_is_retried_and_a_long_answer_is_complete(agent: &'static RealAgent) {
    let lines: Vec<_> = (0..8000).map(|n| format!("{n} squared is {}", n * n)).collect();
    let long = lines.join("\n");
    let (requests, answer) = (AtomicUsize::new(0), long.clone());
    let Some(setting) =
        RealAgentFixture::new(agent, move |_| match requests.fetch_add(1, Ordering::SeqCst) {
            0 => ModelTurn::retry_after(429, "1"),
            _ => ModelTurn::text(&answer),
        })
    else {
        return;
    };
    let output = setting.run().exits(0);
    assert!(long.len() > 2 * 65536);
    let is_complete =
        if agent.is_terse { output.out.trim_end() == long } else { output.out.contains(&long) };
    assert!(is_complete, "{} bytes of {}", output.out.len(), long.len());
}

/// Tools can leave processes behind even after a success.
fn processes_left_by_a_tool_are_killed(agent: &'static RealAgent) {
    let Some(shell) = &agent.shell else { return };
    let Some(setting) = RealAgentFixture::with_mark(agent, |mark| {
        let command = format!("echo done > ran; setsid sleep {} > /dev/null 2>&1 &", nap(&mark));
        move |request: &RecordedRequest| {
            let is_answered = request.tool_answers() > 0;
            shell
                .call(request, &command)
                .filter(|_| !is_answered)
                .unwrap_or(ModelTurn::text(ANSWER))
        }
    }) else {
        return;
    };
    let output = setting.run();
    assert_eq!((output.code, output.out.trim_end()), (0, ANSWER), "{output:?}");
    assert_eq!(fs::read_to_string(setting.sandbox.file("work/ran")).unwrap(), "done\n");
}

/// Nothing is granted, whatever the files of the project say.
fn withheld_permissions_hold(agent: &'static RealAgent) {
    let Some(shell) = &agent.shell else { return };
    for policy in ["ask", "deny"] {
        let Some(setting) = RealAgentFixture::new(agent, |request: &RecordedRequest| {
            let call = shell.call(request, "echo done > ran");
            call.filter(|_| request.tool_answers() == 0).unwrap_or(ModelTurn::text(ANSWER))
        }) else {
            return;
        };
        setting.withhold_permissions(policy);
        let output = setting.run();
        // OpenCode would run plugins of the folder, so it does not start.
        if agent.preset == "opencode" {
            assert!(output.err.contains("would run code of"), "{policy}: {output:?}");
        } else {
            assert!(!setting.server.requests().is_empty(), "{policy}: {output:?}");
        }
        assert!(!setting.sandbox.file("work/ran").exists(), "{policy}: the command ran");
    }
}

/// Agents start their tools in separate sessions.
fn cancel_leaves_no_process(agent: &'static RealAgent) {
    let Some(setting) = RealAgentFixture::with_mark(agent, |mark| {
        let command = format!("setsid sleep {0} & sleep {0}", nap(&mark));
        let minutes = Duration::from_mins(10);
        move |request: &RecordedRequest| {
            let call = agent.shell.as_ref().and_then(|shell| shell.call(request, &command));
            call.unwrap_or(ModelTurn::text("late").slow(minutes, minutes))
        }
    }) else {
        return;
    };
    let running = setting.command().spawn().unwrap();
    let sleeping = format!("sleep {} ", nap(&setting.mark));
    setting.sandbox.wait_until("the agent is running", || {
        if agent.shell.is_none() {
            return (!setting.server.requests().is_empty()).then_some(());
        }
        let asleep = setting.left().iter().filter(|command| **command == sleeping).count();
        (asleep == 2).then_some(())
    });
    let task = setting.sandbox.wait_for_status("running");
    setting.sandbox.polity(&["task", "cancel", &task]).exits(0);
    finish(running).exits(4);
    assert_eq!(setting.left(), Vec::<String>::new());
    let execution = setting.execution();
    assert_eq!(states(&execution), ["starting", "running", "cancelled", "cleanup", "idle"]);
}

macro_rules! agents {
    ($($name:ident: $agent:ident),+) => { $(
        mod $name {
            use super::agent_table::$agent;

            #[test]
            fn answer_is_the_result() {
                super::answer_is_the_result(&$agent);
            }

            #[test]
            fn rejected_key_is_a_permanent_failure() {
                super::rejected_key_is_a_permanent_failure(&$agent);
            }

            #[test]
            fn lasting_rate_limit_is_a_transient_failure() {
                super::lasting_rate_limit_is_a_transient_failure(&$agent);
            }

            #[test]
            fn rate_limit_is_retried_and_a_long_answer_is_complete() {
                super::rate_limit_is_retried_and_a_long_answer_is_complete(&$agent);
            }

            #[test]
            fn processes_left_by_a_tool_are_killed() {
                super::processes_left_by_a_tool_are_killed(&$agent);
            }

            #[test]
            fn withheld_permissions_hold() {
                super::withheld_permissions_hold(&$agent);
            }

            #[test]
            fn cancel_leaves_no_process() {
                super::cancel_leaves_no_process(&$agent);
            }
        }
    )+ };
}

agents!(
    aider: AIDER,
    claude: CLAUDE,
    codex: CODEX,
    copilot: COPILOT,
    gemini: GEMINI,
    llm: LLM,
    opencode: OPENCODE,
    qwen: QWEN
);
