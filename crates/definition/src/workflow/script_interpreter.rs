//! The interpreters of scripts, by the ending of the file.

use polity_model::name::Name;

use super::{ScriptPath, ScriptProgram};

/// Starts a TypeScript file with the first program that can run it: Node.js, which needs an option
/// before 22.18 and 23.6 and cannot run one before 22.7, else tsx of the home, else one of the PATH.
/// The working directory is the home.
const TYPESCRIPT_LAUNCHER: &str = "\
found=$(node --version 2>/dev/null); \
number=${found#v}; major=${number%%.*}; rest=${number#*.}; minor=${rest%%.*}; \
version=$((${major:-0} * 1000 + ${minor:-0})); \
if [ $version -ge 23006 ] || { [ $version -ge 22018 ] && [ $version -lt 23000 ]; }; then \
exec node --disable-warning=ExperimentalWarning \"$1\"; fi; \
if [ $version -ge 22007 ]; then \
exec node --experimental-strip-types --disable-warning=ExperimentalWarning \"$1\"; fi; \
for tsx in node_modules/.bin/tsx tsx; do \
if command -v $tsx >/dev/null 2>&1; then exec $tsx \"$1\"; fi; done; \
if command -v deno >/dev/null 2>&1; then exec deno run --quiet --allow-all \"$1\"; fi; \
if command -v bun >/dev/null 2>&1; then exec bun run \"$1\"; fi; \
has=\"none of them\"; if [ -n \"$found\" ]; then has=\"only Node.js $found\"; fi; \
echo \"a .ts script needs Node.js 22.7 or newer, tsx, deno or bun, and this machine has \
$has: install one, or give the step a command\" >&2; \
exit 127";

/// The interpreter of a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScriptInterpreter {
    /// `python3`, for `.py`.
    Python,
    /// `node`, for `.js` and `.mjs`.
    JavaScript,
    /// `node` with types, else `tsx`, `deno` or `bun`, for `.ts`.
    TypeScript,
    /// `sh`, for `.sh`.
    Shell,
}

impl ScriptInterpreter {
    /// The interpreter of files with this ending.
    pub(super) fn of_ending(ending: &str) -> Option<Self> {
        match ending {
            "py" => Some(Self::Python),
            "js" | "mjs" => Some(Self::JavaScript),
            "ts" => Some(Self::TypeScript),
            "sh" => Some(Self::Shell),
            _ => None,
        }
    }

    /// The program, by its name on the PATH.
    pub fn executable(self) -> &'static str {
        match self {
            Self::Python => "python3",
            Self::JavaScript => "node",
            Self::TypeScript | Self::Shell => "sh",
        }
    }

    /// The arguments before the path of the script.
    pub fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::TypeScript => &["-c", TYPESCRIPT_LAUNCHER, "typescript"],
            Self::Python | Self::JavaScript | Self::Shell => &[],
        }
    }

    /// The variable with the folders from which a script may import.
    pub fn import_variable(self) -> Option<&'static str> {
        match self {
            Self::Python => Some("PYTHONPATH"),
            Self::JavaScript | Self::TypeScript => Some("NODE_PATH"),
            Self::Shell => None,
        }
    }
}

impl ScriptPath {
    /// The interpreter of the script.
    pub fn interpreter(&self) -> ScriptInterpreter {
        let ending = self.as_str().rsplit_once('.').map_or("", |(_, ending)| ending);
        // A valid path has a known ending.
        ScriptInterpreter::of_ending(ending).unwrap_or(ScriptInterpreter::Shell)
    }

    /// The name of the file, without its folder.
    pub fn file_name(&self) -> &str {
        self.as_str().rsplit_once('/').map_or(self.as_str(), |(_, name)| name)
    }
}

impl ScriptProgram {
    /// The script's path or the program's name, for people.
    pub fn label(&self) -> &str {
        match self {
            Self::File(path) => path.as_str(),
            Self::Command(command) => &command.program,
        }
    }

    /// The script's path, if it is a file.
    pub fn file(&self) -> Option<&ScriptPath> {
        match self {
            Self::File(path) => Some(path),
            Self::Command(_) => None,
        }
    }

    /// The program to start.
    pub fn executable(&self) -> &str {
        match self {
            Self::File(path) => path.interpreter().executable(),
            Self::Command(command) => &command.program,
        }
    }

    /// The arguments, before the path of the script if there is one.
    pub fn arguments(&self) -> Vec<&str> {
        match self {
            Self::File(path) => path.interpreter().arguments().to_vec(),
            Self::Command(command) => command.args.iter().map(String::as_str).collect(),
        }
    }

    /// The name of the agent that runs it, made from its path or its program.
    pub fn agent_name(&self) -> Name {
        match self {
            Self::File(path) => {
                let path = path.as_str();
                Name::of_script(path.rsplit_once('.').map_or(path, |(stem, _)| stem))
            }
            Self::Command(command) => {
                let program = command.program.as_str();
                Name::of_script(program.rsplit_once('/').map_or(program, |(_, name)| name))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str) -> ScriptProgram {
        ScriptProgram::File(path.parse().unwrap())
    }

    #[test]
    fn ending_selects_the_interpreter() {
        for (path, executable, variable) in [
            ("steps/score.py", "python3", Some("PYTHONPATH")),
            ("steps/score.js", "node", Some("NODE_PATH")),
            ("steps/score.mjs", "node", Some("NODE_PATH")),
            ("score.ts", "sh", Some("NODE_PATH")),
            ("a/b/score.sh", "sh", None),
        ] {
            assert_eq!(file(path).executable(), executable, "{path}");
            let interpreter = path.parse::<ScriptPath>().unwrap().interpreter();
            assert_eq!(interpreter.import_variable(), variable, "{path}");
        }
    }

    #[test]
    fn agents_are_named_after_the_script_or_the_program() {
        let command = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(ToString::to_string).collect();
            ScriptProgram::Command(words.try_into().unwrap())
        };
        for (program, name) in [
            (file("steps/score.py"), "script_steps_score"),
            (file("steps/Über-Score.v2.py"), "script_steps__ber_score_v2"),
            (command(&["/usr/bin/deno", "run"]), "script_deno"),
            (command(&["tool.sh"]), "script_tool_sh"),
        ] {
            assert_eq!(program.agent_name().as_str(), name);
        }
        assert_eq!(file(&format!("{}.py", "a".repeat(300))).agent_name().as_str().len(), 100);
    }
}
