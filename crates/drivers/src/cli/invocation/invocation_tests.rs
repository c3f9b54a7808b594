//! Tests of arguments, input and output modes, variables and error messages.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::cli::invocation::presets::resolve;
use crate::cli::test_agents::agent;

/// A home folder with an executable, and the values of a task.
struct InvocationFixture {
    home: tempfile::TempDir,
    parameters: Map<String, Value>,
    overrides: RunOverrides,
    environment: EnvSource,
    program_check: HomeProgramCheck,
    script: Option<ScriptSource>,
    session_id: Option<&'static str>,
}

fn fixture() -> InvocationFixture {
    let home = tempfile::tempdir().unwrap();
    let program = home.path().join("coder");
    fs::write(&program, "").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(home.path().join("work")).unwrap();
    let environment = EnvSource::new(|name| match name {
        "PATH" => Some("/nowhere".to_owned()),
        "MY_KEY" => Some("s3cret-key".to_owned()),
        "OTHER" => Some("s3cret-other".to_owned()),
        "UNNAMED" => Some("stays here".to_owned()),
        _ => None,
    });
    InvocationFixture {
        home,
        parameters: Map::from_iter([
            ("size".to_owned(), json!(5)),
            ("up".to_owned(), json!("../x")),
        ]),
        overrides: RunOverrides::default(),
        environment,
        program_check: HomeProgramCheck::default(),
        script: None,
        session_id: None,
    }
}

impl InvocationFixture {
    fn build(&self, lines: &str, input: &str) -> Result<CliInvocation, NotReady> {
        let lines = if lines.contains("executable_path") {
            lines.to_owned()
        } else {
            format!("executable_path: ./coder\n{lines}")
        };
        build(&resolve(&agent(&lines)), self.inputs(input))
    }

    fn inputs<'a>(&'a self, input: &'a str) -> RunInputs<'a> {
        RunInputs {
            agent: "coder",
            input,
            parameters: &self.parameters,
            overrides: &self.overrides,
            script: self.script.as_ref(),
            session_id: self.session_id,
            environment: &self.environment,
            home: self.home.path(),
            program_check: &self.program_check,
            current_folder: Path::new("/current"),
            private_folder: Path::new("/private"),
        }
    }

    fn args(&self, lines: &str) -> Vec<String> {
        self.build(lines, "do $(it)").unwrap().program.args
    }

    fn problem(&self, lines: &str) -> String {
        let problem = self.build(lines, "do it").unwrap_err();
        let home = self.home.path().display().to_string();
        format!("{problem}; {}", problem.hint).replace(&home, "HOME")
    }
}

#[test]
fn input_follows_the_input_pattern() {
    let fixture = fixture();
    let by_stdin = fixture.build("", "do it").unwrap();
    assert!(
        by_stdin.stdin == StdinContent::Text("do it".to_owned())
            && by_stdin.program.args.is_empty()
    );
    assert_eq!(by_stdin.program.folder, Path::new("/current"));

    let by_argument = fixture.build("input_pattern: args\ncli_args: [-x]\n", "a b").unwrap();
    assert!(by_argument.stdin == StdinContent::Nothing);
    assert_eq!(by_argument.program.args, ["-x", "a b"]);

    let by_file = fixture.build("input_pattern: file\n", "do it").unwrap();
    assert!(by_file.stdin == StdinContent::Nothing);
    assert_eq!(by_file.program.args, ["/private/input"]);
    assert_eq!(by_file.files, [("/private/input".into(), "do it".to_owned())]);

    let lines = "input_pattern: file\ninput_file_template: \"# {{input}} {{param.size}}\"\n";
    assert_eq!(fixture.build(lines, "{{model}}").unwrap().files[0].1, "# {{model}} 5");

    let by_rpc = fixture.build("agent_type: json-rpc\n", "do it").unwrap();
    let StdinContent::Request(line) = by_rpc.stdin else { panic!() };
    let request: Value = serde_json::from_str(line.strip_suffix('\n').unwrap()).unwrap();
    assert_eq!(request["method"], "execute");
    assert_eq!(request["params"], json!({"input": "do it", "parameters": fixture.parameters}));
}

#[test]
fn placeholders_become_single_arguments_without_a_shell() {
    let mut fixture = fixture();
    assert_eq!(
        fixture.args("working_directory: work\ncli_args: [\"--p={{prompt}}\", \"{{param.size}}\", \"{{workdir}}\"]\n")[..2],
        ["--p=do $(it)", "5"]
    );
    let lines = "cli_args: [-v, --model, \"{{model}}\", \"--resume={{session_id}}\", -s, \"{{session_id}}\", end]\n";
    assert_eq!(fixture.args(lines), ["-v", "end"]);
    fixture.session_id = Some("s1");
    fixture.parameters.insert("model".to_owned(), json!("small"));
    let with_model = format!("{lines}model: big\n");
    assert_eq!(
        fixture.args(&with_model),
        ["-v", "--model", "small", "--resume=s1", "-s", "s1", "end"]
    );
    let args = fixture.args("preset: codex\nexecutable_path: ./coder\n");
    let start = ["exec", "resume", "s1", "--json", "--skip-git-repo-check", "--model", "small"];
    assert_eq!(args[..start.len()], start);
    assert_eq!(args.last().unwrap(), "-");
}

#[test]
fn output_file_follows_its_template() {
    let fixture = fixture();
    let lines = "output_pattern: file\ncli_args: [\"{{output_file}}\"]\n";
    let private = fixture.build(lines, "").unwrap();
    assert_eq!(private.output_file.unwrap().path, Path::new("/private/output"));
    assert_eq!(private.program.args, ["/private/output"]);
    let named = format!("{lines}output_file_template: \"out/{{{{param.size}}}}.txt\"\n");
    let named = fixture.build(&named, "").unwrap();
    assert_eq!(named.output_file.unwrap().path, Path::new("/current/out/5.txt"));
    let problem = fixture.problem("output_pattern: file\noutput_file_template: \"{{param.up}}\"\n");
    assert!(problem.contains("{{param.up}} in output_file_template"), "{problem}");
}

#[test]
fn passes_named_variables_and_reports_their_secrets() {
    let mut fixture = fixture();
    fixture.overrides.envs.insert("MINE".to_owned(), "of-the-task".to_owned());
    let lines = "env_allow: [MY_KEY, UNSET]\nenvs: {A: \"x ${OTHER}\", B: plain}\n";
    let invocation = fixture.build(lines, "").unwrap();
    let env: Vec<_> = invocation.program.env.iter().map(|(n, v)| format!("{n}={v}")).collect();
    assert_eq!(
        env,
        ["A=x s3cret-other", "B=plain", "MINE=of-the-task", "MY_KEY=s3cret-key", "PATH=/nowhere"]
    );
    assert_eq!(invocation.secrets, ["of-the-task", "s3cret-key", "s3cret-other"]);
    assert!(!format!("{invocation:?}").contains("s3cret"));
    let unset = fixture.build("env_unset: [PATH]\n", "").unwrap();
    assert!(unset.program.env.iter().all(|(name, _)| name != "PATH"));

    let resolved = resolve(&agent("executable_path: x\nenvs: {A: \"${OTHER}\", B: \"${NONE}\"}\n"));
    let known = secrets(&resolved, &fixture.overrides, &fixture.environment);
    assert_eq!(known, ["of-the-task", "s3cret-other"]);
}

#[test]
fn errors_name_what_is_missing_and_how_to_fix_it() {
    let mut fixture = fixture();
    fs::write(fixture.home.path().join("plain"), "").unwrap();
    let problems = [
        "executable_path: none\n",
        "executable_path: ./none\n",
        "executable_path: ./plain\n",
        "executable_path: ./work\n",
        "working_directory: none\n",
        "working_directory: coder\n",
        "cli_args: [\"{{param.none}}\"]\n",
        "envs: {A: \"${NONE}\"}\n",
    ]
    .map(|lines| format!("{lines}  {}", fixture.problem(lines)));
    insta::assert_snapshot!(problems.join("\n"));
    let long = fixture.build("input_pattern: args\n", &"x".repeat(128 * 1024)).unwrap_err();
    assert!(long.message.contains("has 131072 bytes; the maximum is 131071"), "{long}");
    assert!(fixture.build("input_pattern: args\n", "a\0b").is_err());
    fixture.overrides.envs.insert("A=B".to_owned(), String::new());
    assert!(fixture.problem("").contains("\"A=B\""));
}

#[test]
fn task_cannot_replace_the_variables_of_a_policy() {
    let mut fixture = fixture();
    fixture.overrides.working_directory = Some("work".into());
    let opencode = "preset: opencode\nexecutable_path: ./coder\n";
    assert!(fixture.build(opencode, "x").is_ok());
    for variable in ["OPENCODE_PERMISSION", "OPENCODE_CONFIG_CONTENT", "OPENCODE_CONFIG_DIR"] {
        fixture.overrides.envs = [(variable.to_owned(), "{}".to_owned())].into();
        let refused = fixture.build(opencode, "x").unwrap_err();
        assert!(refused.message.contains(&format!("the variable {variable},")), "{refused}");
    }
    let allowed = format!("{opencode}permission_policy: allow\n");
    assert!(fixture.build(&allowed, "x").is_ok());
}

#[test]
fn plugins_in_the_working_directory_do_not_run_under_a_policy() {
    let mut fixture = fixture();
    fixture.overrides.working_directory = Some("work".into());
    let plugins = fixture.home.path().join(".opencode/plugin");
    fs::create_dir_all(&plugins).unwrap();
    for policy in ["ask", "deny"] {
        let agent = format!("preset: opencode\npermission_policy: {policy}\n");
        let refused = fixture.build(&agent, "x").unwrap_err();
        assert!(refused.message.contains("would run code of"), "{refused}");
    }
    assert!(fixture.build("preset: opencode\npermission_policy: allow\n", "x").is_ok());
    // The files of a repository above it belong to another project.
    fs::create_dir(fixture.home.path().join("work/.git")).unwrap();
    assert!(fixture.build("preset: opencode\n", "x").is_ok());
}

/// The resolved agent of a script node with these fields.
fn resolved_script(fields: &str) -> ResolvedAgent {
    let json = format!("{{\"kind\": \"script\", \"name\": \"script_s\", {fields}}}");
    let agent = polity_definition::AgentDefinition::from_canonical(&json).unwrap();
    resolve(agent.program().unwrap())
}

#[test]
fn script_runs_from_a_private_copy_and_imports_from_its_folder() {
    let mut fixture = fixture();
    let (home, file) = (fixture.home.path().to_owned(), "steps/s.sh".parse().unwrap());
    fs::copy(home.join("coder"), home.join("sh")).unwrap();
    fixture.overrides.envs.insert("PATH".to_owned(), home.display().to_string());
    fixture.script = Some(ScriptSource::new(file, "echo 1".to_owned()).unwrap());
    let built = build(&resolved_script("\"file\": \"steps/s.sh\""), fixture.inputs("{}")).unwrap();
    assert_eq!(built.program.args, ["/private/s.sh"]);
    assert_eq!(built.script, Some(("/private/s.sh".into(), "echo 1".to_owned())));
    assert!(built.stdin == StdinContent::Text("{}".to_owned()));
    assert_eq!(built.program.folder, home.join("."));

    let mut variables = BTreeMap::from([("PYTHONPATH".to_owned(), "/lib".to_owned())]);
    scripts::add_import_folder(&"steps/s.py".parse().unwrap(), &home, &mut variables);
    assert_eq!(variables["PYTHONPATH"], format!("{}/steps:/lib", home.display()));
}

#[test]
fn arguments_of_a_script_command_are_literal() {
    let fixture = fixture();
    let resolved = resolved_script("\"command\": [\"./coder\", \"{{input}}\", \"${HOME}\"]");
    let built = build(&resolved, fixture.inputs("{}")).unwrap();
    assert_eq!(built.program.args, ["{{input}}", "${HOME}"]);
    assert_eq!(built.script, None);
}

#[test]
fn script_that_is_not_pinned_is_refused() {
    let resolved = resolved_script("\"file\": \"steps/s.sh\"");
    let mut fixture = fixture();
    fs::copy(fixture.home.path().join("coder"), fixture.home.path().join("sh")).unwrap();
    let path = fixture.home.path().display().to_string();
    fixture.overrides.envs.insert("PATH".to_owned(), path);
    let refused = build(&resolved, fixture.inputs("{}")).unwrap_err();
    assert_eq!(refused.message, "the task did not pin the script steps/s.sh");
}

/// A task that an earlier version has pinned may have such a template.
#[test]
fn output_file_cannot_be_above_the_working_directory() {
    let json = r#"{"kind": "cli", "name": "a", "executable_path": "./coder",
        "output_pattern": "file", "output_file_template": "out/../../passwd"}"#;
    let agent = polity_definition::AgentDefinition::from_canonical(json).unwrap();
    let fixture = fixture();
    let refused = build(&resolve(agent.program().unwrap()), fixture.inputs("x")).unwrap_err();
    assert!(refused.message.contains("leads out of the working directory"), "{refused}");
}
