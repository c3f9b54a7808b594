//! The command line as it is typed.

mod agent;
mod sim;
mod steer;

use std::io::IsTerminal;
use std::num::NonZeroU64;
use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use polity_host::SchemaKind;
use polity_host::recording::{RecordingMode, RecordingRequest};
use polity_model::ids::CheckpointId;
use polity_model::machine::task::TaskStatus;
use polity_model::number::UsdLimit;

pub(crate) use agent::{AgentAddArgs, AgentArgs, AgentCommand, AgentStatusArgs, KindArg};
pub(crate) use sim::{
    ChartArgs, ChartCheckArgs, ChartCommand, ChartFireArgs, ChartFormat, ChartGraphArgs,
    LifecycleCommand, SimCommand, SimExportArgs, SimForkArgs, SimLifecycleArgs, SimResumeArgs,
    SimRunArgs, SimStatusArgs, ThreadArgs,
};
pub(crate) use steer::{DiffArgs, ForkArgs, TaskShowArgs};

/// Runs, supervises and simulates AI agents.
///
/// Agents are files in a home folder. `polity init` makes one that works, `polity run` gives an
/// agent something to do, `polity task` shows what happened.
#[derive(Debug, Parser)]
#[command(name = "polity", version, max_term_width = 100, subcommand_required = true)]
#[command(after_help = "Exit codes: 0 done, 1 the task failed, 2 wrong usage or an invalid \
    definition,\n3 waiting for a person, 4 cancelled, 5 timed out, 6 over a budget or limit.")]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) options: Options,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options of every command.
#[derive(Debug, Clone, ClapArgs)]
pub(crate) struct Options {
    /// The home folder. Without it: POLITY_HOME, else the nearest folder upwards that holds a
    /// polity.yaml, else ~/.polity
    #[expect(clippy::doc_markdown, reason = "help is read in a terminal")]
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) home: Option<PathBuf>,
    /// Print one JSON document on stdout, and errors as JSON on stderr
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Show every event as it happens
    #[arg(long, short, global = true, conflicts_with = "quiet")]
    pub(crate) verbose: bool,
    /// Show only results and errors
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
}

/// How much is shown on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verbosity {
    /// Only results and errors.
    Quiet,
    /// Steps.
    Normal,
    /// Every event.
    Verbose,
}

impl Options {
    /// How much is shown on the way.
    pub(crate) fn verbosity(&self) -> Verbosity {
        match (self.quiet, self.verbose) {
            (true, _) => Verbosity::Quiet,
            (false, true) => Verbosity::Verbose,
            (false, false) => Verbosity::Normal,
        }
    }

    /// True if steps are shown on stderr.
    pub(crate) fn shows_progress(&self) -> bool {
        !self.json && self.verbosity() != Verbosity::Quiet
    }

    /// True if every event is shown on stderr.
    pub(crate) fn shows_events(&self) -> bool {
        !self.json && self.verbosity() == Verbosity::Verbose
    }

    /// True if stderr is a terminal on which lines can be rewritten.
    pub(crate) fn is_live(&self) -> bool {
        self.shows_progress() && std::io::stderr().is_terminal()
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a home folder that works
    Init(InitArgs),
    /// Look at every definition of the home and report all problems at once
    Check,
    /// Print the JSON Schema of a kind of definition, for editors
    Schema(SchemaArgs),
    /// Show what Polity does, in a new folder, with no key and no network
    Demo,
    /// Give an agent something to do, and show each step as it happens
    Run(RunArgs),
    /// Look at tasks and steer them
    #[command(subcommand)]
    Task(TaskCommand),
    /// Decide what waits for a person
    #[command(subcommand)]
    Review(ReviewCommand),
    /// Look at agents, add one, say which take work
    #[command(subcommand)]
    Agent(AgentCommand),
    /// Look at the attempts of agents to do their tasks, and end them
    #[command(subcommand)]
    Execution(ExecutionCommand),
    /// Look at workflows
    #[command(subcommand)]
    Workflow(WorkflowCommand),
    /// Look at charts, and try them by hand
    #[command(subcommand)]
    Chart(ChartCommand),
    /// Simulate populations of agents whose behaviour is a chart
    #[command(subcommand)]
    Sim(SimCommand),
    /// Look at the conversations of sub-agents
    #[command(subcommand)]
    Session(SessionCommand),
    /// Look at the tools of the home's MCP servers, and call one by hand
    #[command(subcommand)]
    Tool(ToolCommand),
    /// Remove ended tasks that were kept for as long as the retention policy says
    Gc(GcArgs),
    /// Show what models have used, in tokens and money
    Cost(CostArgs),
    /// Write a copy of everything that happened to a new file; others may go on meanwhile
    Backup(BackupArgs),
    /// Put a backup in place of what is there, which is kept beside it
    Restore(RestoreArgs),
    /// Print completions for a shell
    Completions(CompletionsArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct InitArgs {
    /// The folder to make; without it POLITY_HOME, else this one
    #[expect(clippy::doc_markdown, reason = "help is read in a terminal")]
    pub(crate) dir: Option<PathBuf>,
    /// What to put into it
    #[arg(long, value_name = "NAME", default_value = "hello")]
    pub(crate) example: Example,
}

/// A home that `init` can write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Example {
    /// One agent that greets
    Hello,
    /// An agent that hands work to two others
    Supervisor,
    /// A workflow with a review
    Newsroom,
    /// Command-line programs
    Workshop,
    /// A simulation
    Society,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct SchemaArgs {
    /// The kind of definition
    #[arg(value_parser = kinds())]
    pub(crate) kind: SchemaKind,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct RunArgs {
    /// The agent
    pub(crate) name: String,
    /// What to do; - reads it from stdin. With --replay it may be left out: the cassette knows it
    pub(crate) input: Option<String>,
    /// Print the task's id and go on in the background
    #[arg(long)]
    pub(crate) detach: bool,
    /// A named value that goes with the input; JSON if it parses, else a text. May be repeated
    #[arg(long = "param", value_name = "K=V")]
    pub(crate) params: Vec<String>,
    /// Where the program runs, for an agent that is one; instead of its `working_directory`
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
    /// A variable for the program, which may be a secret: it is not kept. The name alone stands for
    /// the variable of this process. May be repeated
    #[arg(long = "env", value_name = "NAME[=VALUE]")]
    pub(crate) envs: Vec<String>,
    /// A class of the retention policy
    #[arg(long)]
    pub(crate) class: Option<String>,
    /// How many days to keep the task after its end
    #[arg(long, value_name = "DAYS")]
    pub(crate) retention_days: Option<u32>,
    /// The most US dollars that the task and its sub-agents may spend
    #[arg(long, value_name = "USD", value_parser = usd_limit, allow_negative_numbers = true)]
    pub(crate) max_cost_usd: Option<UsdLimit>,
    /// The most tokens that the task and its sub-agents may use, read and written together
    #[arg(long, value_name = "TOKENS", value_parser = token_limit, allow_negative_numbers = true)]
    pub(crate) max_tokens: Option<NonZeroU64>,
    #[command(flatten)]
    pub(crate) recording: RecordingArgs,
}

/// Whether what models and tools answer is recorded, or comes from a recording.
#[derive(Debug, Clone, Default, ClapArgs)]
pub(crate) struct RecordingArgs {
    /// Write what models and tools answer to this file, a cassette, which holds no secrets
    #[arg(long, value_name = "FILE", conflicts_with = "replay")]
    pub(crate) record: Option<PathBuf>,
    /// Take all answers from this cassette: no model is called, and no tool
    #[arg(long, value_name = "FILE")]
    pub(crate) replay: Option<PathBuf>,
}

impl RecordingArgs {
    /// The recording or replay that was asked for. The two flags exclude each other.
    pub(crate) fn request(&self) -> Option<RecordingRequest> {
        let record = self.record.as_ref().map(|file| (file, RecordingMode::Record));
        let requested = record.or(self.replay.as_ref().map(|file| (file, RecordingMode::Replay)));
        requested.map(|(file, mode)| RecordingRequest { file: file.clone(), mode })
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum TaskCommand {
    /// List tasks, newest first
    List(TaskListArgs),
    /// Show a task: what was asked, what came out
    Show(TaskShowArgs),
    /// Show each step of a task, with what it took and cost
    Trace(TaskArgs),
    /// Show the points of a task that one can return to, with the State at each
    Checkpoints(TaskArgs),
    /// Show the steps of a task as they happen, until it ends
    Watch(TaskArgs),
    /// Wait until a task ends or waits for a person
    Wait(TaskArgs),
    /// End a task, wherever it runs
    Cancel(TaskArgs),
    /// Go on with a task whose process is gone
    Resume(ResumeArgs),
    /// Write a task, with its sub-agents' tasks, to files that others can read
    Export(ExportArgs),
    /// Take in tasks that were exported; nothing of them is executed
    Import(ImportArgs),
    /// Make a new task that goes on from a checkpoint of another, and see it through
    Fork(ForkArgs),
    /// Show where two tasks part
    Diff(DiffArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct TaskArgs {
    /// The task's id, or as much of its beginning as tells it from others; or "last"
    pub(crate) id: String,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct TaskListArgs {
    /// Only tasks in this state. May be repeated
    #[arg(long, value_parser = parse_status)]
    pub(crate) status: Vec<TaskStatus>,
    /// Only tasks of this agent
    #[arg(long)]
    pub(crate) agent: Option<String>,
    /// Also the parts of tasks: what sub-agents and the nodes of workflows did
    #[arg(long)]
    pub(crate) parts: bool,
    /// Only the parts of this task
    #[arg(long, value_name = "ID")]
    pub(crate) parent: Option<String>,
    /// At most this many
    #[arg(long, default_value_t = 50)]
    pub(crate) limit: u32,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ResumeArgs {
    #[command(flatten)]
    pub(crate) which: ResumeWhich,
    #[command(flatten)]
    pub(crate) recording: RecordingArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ExportArgs {
    /// The task's id, or as much of its beginning as tells it from others; or "last"
    pub(crate) id: String,
    /// The folder to write to; the task's files come into tasks/ID/ below it
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Replace an export of the same task that is there already
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ImportArgs {
    /// The folder that was exported to, or the folder of one task in it
    pub(crate) dir: PathBuf,
}

/// One task or all.
#[derive(Debug, ClapArgs)]
#[group(required = true, multiple = false)]
pub(crate) struct ResumeWhich {
    /// The task's id, or as much of its beginning as tells it from others; or "last"
    pub(crate) id: Option<String>,
    /// All tasks whose process is gone
    #[arg(long, conflicts_with_all = ["record", "replay"])]
    pub(crate) all: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ExecutionCommand {
    /// List executions, newest first
    List(ExecutionListArgs),
    /// Show an execution: each change of state, what it used, what came of it
    Show(ExecutionArgs),
    /// End an execution, with its task
    Cancel(ExecutionArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ExecutionListArgs {
    /// Only those of this agent
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<String>,
    /// Only those that wait for a place or are not over
    #[arg(long)]
    pub(crate) active: bool,
    /// At most this many
    #[arg(long, default_value_t = 50)]
    pub(crate) limit: u32,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ExecutionArgs {
    /// The execution's id, or as much of its beginning as tells it from others
    #[arg(value_name = "EXECUTION_ID")]
    pub(crate) id: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum WorkflowCommand {
    /// List the home's workflows
    List,
    /// Show a workflow's definition, with its defaults
    Show(WorkflowArgs),
    /// Draw a workflow, on stdout
    Graph(WorkflowGraphArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct WorkflowArgs {
    /// The workflow's name
    pub(crate) name: String,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct WorkflowGraphArgs {
    /// The workflow's name; with --task it may be left out
    #[arg(required_unless_present = "task")]
    pub(crate) name: Option<String>,
    /// Draw how far this task has come, on the workflow as the task began with it
    #[arg(long, value_name = "TASK_ID")]
    pub(crate) task: Option<String>,
    /// What to write the picture in
    #[arg(long, default_value = "mermaid")]
    pub(crate) format: PictureFormat,
}

/// What a picture is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PictureFormat {
    /// A picture for browsers and documents
    Svg,
    /// Text that many web pages and editors show as a picture
    Mermaid,
    /// The language of Graphviz
    Dot,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SessionCommand {
    /// List the conversations of sub-agents, newest first
    List(SessionListArgs),
    /// Show a conversation: what was asked, what was said, what the parent got of it
    Show(SessionArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct SessionListArgs {
    /// Only those that this task opened
    #[arg(long, value_name = "TASK_ID")]
    pub(crate) task: Option<String>,
    /// At most this many
    #[arg(long, default_value_t = 50)]
    pub(crate) limit: u32,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct SessionArgs {
    /// The session's id, or as much of its beginning as tells it from others
    #[arg(value_name = "SESSION_ID")]
    pub(crate) id: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ReviewCommand {
    /// List what waits for a person, longest first
    List,
    /// Show what is asked, with all that is needed to decide
    Show(TaskArgs),
    /// Let it go on; of a call in doubt, say whether it is to be made again
    Approve(ApproveArgs),
    /// Do not let it go on: the model is told why; of a call in doubt, the task fails
    Reject(DecideArgs),
    /// Let it go on with changes: a tool call with other arguments, a workflow with another State
    Modify(DecideArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct DecideArgs {
    /// The task's id, or as much of its beginning as tells it from others; or "last"
    #[arg(value_name = "TASK_ID")]
    pub(crate) id: String,
    /// What to say about the decision
    #[arg(long, short, value_name = "TEXT")]
    pub(crate) message: Option<String>,
    /// What to change: an argument of the tool call, or a part of the workflow's State such as
    /// metadata.topic; JSON if it parses, else a text. May be repeated
    #[arg(long, value_name = "PATH=VALUE")]
    pub(crate) set: Vec<String>,
    /// Decide only if the task still waits at this checkpoint, which `review list --json` shows
    #[arg(long, value_name = "CHECKPOINT_ID")]
    pub(crate) checkpoint: Option<CheckpointId>,
    /// Only record the decision; the task goes on when it is resumed
    #[arg(long, conflicts_with_all = ["record", "replay"])]
    pub(crate) detach: bool,
    #[command(flatten)]
    pub(crate) recording: RecordingArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ApproveArgs {
    #[command(flatten)]
    pub(crate) decide: DecideArgs,
    /// Make a call in doubt again
    #[arg(long, conflicts_with = "skip_with")]
    pub(crate) retry: bool,
    /// Do not make a call in doubt again, and take this for its result
    #[arg(long, value_name = "RESULT")]
    pub(crate) skip_with: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ToolCommand {
    /// List tools, of one server or of all
    List(ToolListArgs),
    /// Call a tool
    Call(ToolCallArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ToolListArgs {
    /// Only tools of this MCP server
    pub(crate) server: Option<String>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ToolCallArgs {
    /// The tool, as SERVER/TOOL
    pub(crate) tool: String,
    /// An argument; JSON if it parses and the tool takes no text there, else a text. May be repeated
    #[arg(long = "arg", value_name = "K=V")]
    pub(crate) args: Vec<String>,
    /// All arguments at once, as a JSON object; --arg adds to them
    #[arg(long = "arguments", value_name = "JSON")]
    pub(crate) json_arguments: Option<String>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct GcArgs {
    /// Only show what would be removed, what would stay, and what decides
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct CostArgs {
    /// What to sum by
    #[arg(long, value_name = "WHAT", value_delimiter = ',', default_value = "agent,day")]
    pub(crate) by: Vec<CostBy>,
}

/// What costs are summed by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CostBy {
    /// Each agent
    Agent,
    /// Each day, in UTC
    Day,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct BackupArgs {
    /// The file to write; it must not exist
    pub(crate) file: PathBuf,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct RestoreArgs {
    /// The backup
    pub(crate) file: PathBuf,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct CompletionsArgs {
    /// The shell
    pub(crate) shell: clap_complete::Shell,
}

/// A number of tokens above zero.
fn token_limit(text: &str) -> Result<NonZeroU64, String> {
    text.parse().map_err(|_| "must be a whole number above 0".to_owned())
}

/// An amount above zero.
fn usd_limit(text: &str) -> Result<UsdLimit, String> {
    let number: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    UsdLimit::try_from(number).map_err(|error| error.to_string())
}

/// The kinds by name, so that help lists them and a near miss is suggested.
fn kinds() -> impl TypedValueParser<Value = SchemaKind> {
    PossibleValuesParser::new(SchemaKind::all().map(SchemaKind::as_str))
        .try_map(|name| name.parse::<SchemaKind>())
}

fn parse_status(text: &str) -> Result<TaskStatus, String> {
    use polity_model::machine::Machine;
    TaskStatus::STATES.iter().copied().find(|status| status.label() == text).ok_or_else(|| {
        let labels: Vec<_> = TaskStatus::STATES.iter().map(|status| status.label()).collect();
        format!("allowed: {}", labels.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_makes_sense() {
        super::Args::command().debug_assert();
    }
}
