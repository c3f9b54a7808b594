//! A temporary home and the `polity` binary.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// The timeout of a wait, far longer than needed.
const TEST_TIMEOUT: Duration = Duration::from_mins(2);

/// A script whose model waits for the input's number of milliseconds and then answers.
const SCRIPT: &str = r#"
rules:
  - {when: "^slow$", reply: "at last", delay_ms: 60000}
  - {when: "^think$", reply: "thought", delay_ms: 400}
  - {when: "^overload$", error: {status: 429, retry_after_seconds: 0}, times: 2}
  - {when: "^always overloaded$", error: {status: 503, retry_after_seconds: 0}}
  - {when: "^forbidden$", error: {status: 403}}
  - {when: "^tool$", tool_calls: [{tool: clock/now, arguments: {}}], reply: "let me see"}
  - {when: "clock/now", role: tool, tool_calls: [{tool: clock/then}], reply: "again"}
  - {when: "clock/then", role: tool, tool_calls: [{tool: clock/now}], reply: "and again"}
default: {reply: "Hello, $input.", usage: {input_tokens: 12, output_tokens: 4}}
"#;

const AGENT: &str = "
name: greeter
kind: llm
role: Greets the named person
system_prompt: You greet people.
max_retries: 3
llm_config: {provider: scripted, script: greeter}
";

/// A home folder that is removed after the test.
pub(crate) struct HomeSandbox {
    folder: TempDir,
}

/// The output of a command.
#[derive(Debug)]
pub(crate) struct CommandOutput {
    /// The arguments, for messages of failed checks.
    #[expect(dead_code, reason = "failed checks print it")]
    args: Vec<String>,
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// The error that `--json` prints.
#[derive(Debug)]
pub(crate) struct CommandError {
    pub(crate) code: String,
    pub(crate) message: String,
    pub(crate) hint: String,
}

impl HomeSandbox {
    /// A home with one agent whose script covers most tests.
    pub(crate) fn new() -> Self {
        let sandbox = Self::bare();
        sandbox.write("agents/greeter.yaml", AGENT);
        sandbox.write("scripts/greeter.yaml", SCRIPT);
        sandbox
    }

    /// A home with the simulation example.
    pub(crate) fn society() -> Self {
        let sandbox = Self::empty();
        sandbox.polity(&["init", ".", "--example", "society"]).exits(0);
        sandbox
    }

    /// A home with only its settings.
    pub(crate) fn bare() -> Self {
        let sandbox = Self::empty();
        sandbox.write("polity.yaml", "");
        sandbox
    }

    /// An empty folder.
    pub(crate) fn empty() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn file(&self, path: &str) -> PathBuf {
        self.path().join(path)
    }

    pub(crate) fn write(&self, path: &str, content: &str) {
        let path = self.file(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// Writes an LLM agent with the script of the same name. Extra fields begin with a comma.
    pub(crate) fn write_scripted_agent(&self, name: &str, fields: &str) {
        let file = format!(
            "{{name: {name}, kind: llm, role: r, system_prompt: p, \
             llm_config: {{provider: scripted, script: {name}}}{fields}}}"
        );
        self.write(&format!("agents/{name}.yaml"), &file);
    }

    /// Writes a CLI agent that runs a shell script in the home. Extra fields begin with a comma.
    pub(crate) fn write_shell_agent(&self, name: &str, script: &str, fields: &str) {
        let script = Value::from(script);
        let file = format!(
            "{{name: {name}, kind: cli, executable_path: sh, cli_args: [-c, {script}], \
             working_directory: ., grace_seconds: 1{fields}}}"
        );
        self.write(&format!("agents/{name}.yaml"), &file);
    }

    /// Returns the step names of a task's trace.
    pub(crate) fn step_names(&self, task: &str) -> Vec<String> {
        let trace = self.get(&["task", "trace", task]);
        let steps = trace["steps"].as_array().unwrap().iter();
        steps.map(|step| step["step_name"].as_str().unwrap().to_owned()).collect()
    }

    /// The command that runs the program in this home.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_polity"));
        command.current_dir(self.path()).env_remove("POLITY_HOME").args(args);
        command.env_remove("OTEL_EXPORTER_OTLP_ENDPOINT");
        command.env_remove("POLITY_SERVER").env_remove("POLITY_TOKEN");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs the program until it exits.
    pub(crate) fn polity(&self, args: &[&str]) -> CommandOutput {
        let output = command_output(&self.command(args).output().unwrap());
        CommandOutput { args: args.iter().map(ToString::to_string).collect(), ..output }
    }

    /// Runs the program with this stdin.
    pub(crate) fn polity_with_input(&self, args: &[&str], input: &[u8]) -> CommandOutput {
        let mut child = self.command(args).stdin(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // A program that has read enough closes the pipe.
        let _ = stdin.write_all(input);
        drop(stdin);
        finish(child)
    }

    /// Starts the program without waiting.
    pub(crate) fn start(&self, args: &[&str]) -> Child {
        self.command(args).spawn().unwrap()
    }

    /// Runs the program with `--json` and parses its output.
    pub(crate) fn json(&self, args: &[&str]) -> (Value, i32) {
        let output = self.polity(&[args, &["--json"]].concat());
        let value =
            serde_json::from_str(&output.out).unwrap_or_else(|error| panic!("{error}: {output:?}"));
        (value, output.code)
    }

    /// Runs the program with `--json`, expects success and returns the document.
    #[track_caller]
    pub(crate) fn get(&self, args: &[&str]) -> Value {
        let (value, code) = self.json(args);
        assert_eq!(code, 0, "{args:?}: {value:#}");
        value
    }

    /// Runs the program with `--json`, checks its exit code and returns the error.
    #[track_caller]
    pub(crate) fn error(&self, exit: i32, args: &[&str]) -> CommandError {
        self.polity(&[args, &["--json"]].concat()).exits(exit).error()
    }

    /// Returns the home's tasks and their parts, newest first.
    pub(crate) fn tasks(&self) -> Vec<Value> {
        self.json(&["task", "list", "--parts"]).0.as_array().unwrap().clone()
    }

    /// Waits until the newest task has this status and returns its id.
    pub(crate) fn wait_for_status(&self, status: &str) -> String {
        self.wait_until(&format!("a task is {status}"), || {
            let tasks = self.tasks();
            let newest = tasks.first()?;
            (newest["status"] == status).then(|| newest["id"].as_str().unwrap().to_owned())
        })
    }

    /// Waits until the closure returns a value.
    pub(crate) fn wait_until<T>(&self, what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            if let Some(value) = probe() {
                return value;
            }
            assert!(start.elapsed() < TEST_TIMEOUT, "timed out waiting until {what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Waits for a started program.
pub(crate) fn finish(child: Child) -> CommandOutput {
    command_output(&child.wait_with_output().unwrap())
}

/// Kills a started program.
pub(crate) fn kill(child: &mut Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

pub(crate) fn command_output(output: &Output) -> CommandOutput {
    CommandOutput {
        args: Vec::new(),
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout.clone()).unwrap(),
        err: String::from_utf8(output.stderr.clone()).unwrap(),
    }
}

impl CommandOutput {
    /// Parses the error that `--json` prints.
    pub(crate) fn error(&self) -> CommandError {
        let read = serde_json::from_str(&self.err);
        let value: Value = read.unwrap_or_else(|error| panic!("{error}: {self:?}"));
        let text = |field: &str| value["error"][field].as_str().unwrap_or_default().to_owned();
        CommandError { code: text("code"), message: text("message"), hint: text("hint") }
    }

    /// Checks the exit code.
    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:?}");
        self
    }

    /// Checks that the program succeeded and printed exactly this.
    #[track_caller]
    pub(crate) fn prints(self, out: &str) -> Self {
        assert_eq!((self.code, self.out.as_str()), (0, out), "{self:?}");
        self
    }

    /// Checks the exit code and that stderr contains a text.
    #[track_caller]
    pub(crate) fn fails(self, code: i32, part: &str) -> Self {
        self.exits(code).err_has(part)
    }

    /// Checks that stderr contains a text.
    #[track_caller]
    pub(crate) fn err_has(self, part: &str) -> Self {
        assert!(self.err.contains(part), "{part:?} is not in stderr: {self:?}");
        self
    }

    /// Checks that stdout contains a text.
    #[track_caller]
    pub(crate) fn out_has(self, part: &str) -> Self {
        assert!(self.out.contains(part), "{part:?} is not in stdout: {self:?}");
        self
    }
}
