//! The command line: flags, arguments and help texts.

mod agent;
mod global;
pub(crate) mod schedule;
mod serve;
mod sim;
mod task;
mod wait;

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
pub(crate) use global::{GlobalOptions, OutputVerbosity};
pub(crate) use serve::{LogFormat, ServeArgs, TokenCommand, TokenCreateArgs, TokenRevokeArgs};
pub(crate) use sim::{
    ChartArgs, ChartCheckArgs, ChartCommand, ChartFireArgs, ChartFormat, ChartGraphArgs,
    LifecycleAddArgs, LifecycleCommand, SimCommand, SimExportArgs, SimForkArgs, SimLifecycleArgs,
    SimResumeArgs, SimRunArgs, SimStatusArgs, ThreadArgs,
};
pub(crate) use task::{DefinitionSource, DiffArgs, ForkArgs, RetryArgs, TaskShowArgs};
pub(crate) use wait::WaitArgs;

/// Runs, supervises and simulates AI agents.
///
/// Agents are files in a home folder. `polity init` creates a working one, `polity run`
/// runs an agent, `polity task` shows what happened.
#[derive(Debug, Parser)]
#[command(name = "polity", version, max_term_width = 100, subcommand_required = true)]
#[command(after_help = "Exit codes: 0 done, 1 the task failed, 2 wrong usage or an invalid \
    definition,\n3 waiting for a person, 4 cancelled, 5 timed out, 6 over a budget or limit.")]
pub(crate) struct PolityArgs {
    #[command(flatten)]
    pub(crate) options: GlobalOptions,
    #[command(subcommand)]
    pub(crate) command: CliCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    /// Create a home folder with an example
    Init(InitArgs),
    /// Validate every definition of the home and report all problems
    Check,
    /// Check what this machine can do, and everything that the home needs
    Doctor,
    /// Print the JSON Schema of a kind of definition, for editors
    Schema(SchemaArgs),
    /// Show the main features in a new folder, without a key or network
    Demo,
    /// Run an agent or workflow, and show each step
    Run(RunArgs),
    /// Inspect and control tasks
    #[command(subcommand)]
    Task(TaskCommand),
    /// List and answer reviews
    #[command(subcommand)]
    Review(ReviewCommand),
    /// List, add, enable and disable agents
    #[command(subcommand)]
    Agent(AgentCommand),
    /// List and cancel executions of agents
    #[command(subcommand)]
    Execution(ExecutionCommand),
    /// List, show and draw workflows
    #[command(subcommand)]
    Workflow(WorkflowCommand),
    /// List, check, draw and try statecharts
    #[command(subcommand)]
    Chart(ChartCommand),
    /// Run simulations of agent populations
    #[command(subcommand)]
    Sim(SimCommand),
    /// Show the conversations of sub-agents
    #[command(subcommand)]
    Session(SessionCommand),
    /// List and call the tools of the home's MCP servers
    #[command(subcommand)]
    Tool(ToolCommand),
    /// List, add, control and run schedules
    #[command(subcommand)]
    Schedule(schedule::ScheduleAction),
    /// Serve the home over HTTP: API, live events, and every interrupted task is continued
    Serve(ServeArgs),
    /// Create, list and revoke tokens of the server
    #[command(subcommand)]
    Token(TokenCommand),
    /// Remove ended tasks that the retention policy no longer keeps
    Gc(GcArgs),
    /// Show model usage in tokens and US dollars
    Cost(CostArgs),
    /// Back up the database to a new file, also while tasks run
    Backup(BackupArgs),
    /// Replace the database by a backup; the old one is kept beside it
    Restore(RestoreArgs),
    /// Print completions for a shell
    Completions(CompletionsArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct InitArgs {
    /// The folder to create. Default: POLITY_HOME, else the current folder
    #[expect(clippy::doc_markdown, reason = "help is read in a terminal")]
    pub(crate) dir: Option<PathBuf>,
    /// The example to write
    #[arg(long, value_name = "NAME", default_value = "hello")]
    pub(crate) example: HomeExample,
}

/// A home that `init` can write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum HomeExample {
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
    /// The agent or workflow
    pub(crate) name: String,
    /// The input of the task; - reads it from stdin. Optional with --replay, which repeats the recorded input
    pub(crate) input: Option<String>,
    /// Print the task's id and run in the background
    #[arg(long)]
    pub(crate) detach: bool,
    /// A parameter of the task; JSON if it parses, else a string. May be repeated
    #[arg(long = "param", value_name = "K=V")]
    pub(crate) params: Vec<String>,
    /// The working directory of a CLI agent, instead of its `working_directory`
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<PathBuf>,
    /// An environment variable for a CLI agent, not stored because it may be a secret. A name alone passes
    /// the variable of this process on. May be repeated
    #[arg(long = "env", value_name = "NAME[=VALUE]")]
    pub(crate) envs: Vec<String>,
    /// The retention class of the task
    #[arg(long)]
    pub(crate) class: Option<String>,
    /// The number of days to keep the task after its end
    #[arg(long, value_name = "DAYS")]
    pub(crate) retention_days: Option<u32>,
    /// The cost limit of the task and its sub-agents, in US dollars
    #[arg(long, value_name = "USD", value_parser = usd_limit, allow_negative_numbers = true)]
    pub(crate) max_cost_usd: Option<UsdLimit>,
    /// The token limit of the task and its sub-agents, input and output together
    #[arg(long, value_name = "TOKENS", value_parser = token_limit, allow_negative_numbers = true)]
    pub(crate) max_tokens: Option<NonZeroU64>,
    #[command(flatten)]
    pub(crate) recording: RecordingArgs,
}

/// Flags to record the calls of a task in a cassette, or to replay them.
#[derive(Debug, Clone, Default, ClapArgs)]
pub(crate) struct RecordingArgs {
    /// Record the answers of models and tools in this cassette file, without secrets
    #[arg(long, value_name = "FILE", conflicts_with = "replay")]
    pub(crate) record: Option<PathBuf>,
    /// Replay all answers from this cassette file, without calling models or tools
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
    /// Show a task with its input and result
    Show(TaskShowArgs),
    /// Show each step of a task, with duration and cost
    Trace(TaskArgs),
    /// List the checkpoints of a task, each with its State
    Checkpoints(TaskArgs),
    /// Show the steps of a running task until it ends or awaits a review
    Watch(TaskArgs),
    /// Wait until a task ends or awaits a review
    Wait(WaitArgs),
    /// Cancel a task, whichever process runs it
    Cancel(TaskArgs),
    /// Resume an interrupted task
    Resume(ResumeArgs),
    /// Export a task and its parts to files
    Export(ExportArgs),
    /// Import exported tasks, without running them
    Import(ImportArgs),
    /// Create a task that continues from a checkpoint of another, and run it
    Fork(ForkArgs),
    /// Create a task that continues a failed or cancelled one from before its failure, and run it
    Retry(RetryArgs),
    /// Compare two tasks and show the first difference
    Diff(DiffArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct TaskArgs {
    /// The task's id, a unique prefix of it, or "last"
    pub(crate) id: String,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct TaskListArgs {
    /// Only tasks with this status. May be repeated
    #[arg(long, value_parser = parse_status)]
    pub(crate) status: Vec<TaskStatus>,
    /// Only tasks of this agent
    #[arg(long)]
    pub(crate) agent: Option<String>,
    /// Include the parts of tasks: the work of sub-agents and workflow nodes
    #[arg(long)]
    pub(crate) parts: bool,
    /// Only the parts of this task
    #[arg(long, value_name = "ID")]
    pub(crate) parent: Option<String>,
    /// The maximum number of results
    #[arg(long, default_value_t = 50)]
    pub(crate) limit: u32,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ResumeArgs {
    #[command(flatten)]
    pub(crate) which: ResumeWhich,
    /// Let an imported task run the commands and use the endpoints that `task import` listed
    #[arg(long, conflicts_with = "all")]
    pub(crate) trust: bool,
    #[command(flatten)]
    pub(crate) recording: RecordingArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ExportArgs {
    /// The task's id, a unique prefix of it, or "last"
    pub(crate) id: String,
    /// The folder to write to; each task gets a folder tasks/ID/ in it
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Replace an existing export of the same task
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ImportArgs {
    /// The folder of an export, or of one task in it
    pub(crate) dir: PathBuf,
}

/// One task, or all interrupted ones.
#[derive(Debug, ClapArgs)]
#[group(required = true, multiple = false)]
pub(crate) struct ResumeWhich {
    /// The task's id, a unique prefix of it, or "last"
    pub(crate) id: Option<String>,
    /// Every interrupted task
    #[arg(long, conflicts_with_all = ["record", "replay"])]
    pub(crate) all: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ExecutionCommand {
    /// List executions, newest first
    List(ExecutionListArgs),
    /// Show an execution: state changes, resource usage and result
    Show(ExecutionArgs),
    /// Cancel an execution and its task
    Cancel(ExecutionArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ExecutionListArgs {
    /// Only executions of this agent
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<String>,
    /// Only queued and running executions
    #[arg(long)]
    pub(crate) active: bool,
    /// The maximum number of results
    #[arg(long, default_value_t = 50)]
    pub(crate) limit: u32,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ExecutionArgs {
    /// The execution's id, or a unique prefix of it
    #[arg(value_name = "EXECUTION_ID")]
    pub(crate) id: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum WorkflowCommand {
    /// List the home's workflows
    List,
    /// Show a workflow's definition, with its defaults
    Show(WorkflowArgs),
    /// Print a diagram of a workflow
    Graph(WorkflowGraphArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct WorkflowArgs {
    /// The workflow's name
    pub(crate) name: String,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct WorkflowGraphArgs {
    /// The workflow's name; optional with --task
    #[arg(required_unless_present = "task")]
    pub(crate) name: Option<String>,
    /// Show the progress of this task on the workflow that it pinned
    #[arg(long, value_name = "TASK_ID")]
    pub(crate) task: Option<String>,
    /// The output format
    #[arg(long, default_value = "mermaid")]
    pub(crate) format: PictureFormat,
}

/// The output format of a workflow diagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PictureFormat {
    /// A vector image
    Svg,
    /// Mermaid text, which many web pages and editors render
    Mermaid,
    /// The DOT language of Graphviz
    Dot,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SessionCommand {
    /// List the sessions of sub-agents, newest first
    List(SessionListArgs),
    /// Show a session: input, messages and summary
    Show(SessionArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct SessionListArgs {
    /// Only sessions that this task opened
    #[arg(long, value_name = "TASK_ID")]
    pub(crate) task: Option<String>,
    /// The maximum number of results
    #[arg(long, default_value_t = 50)]
    pub(crate) limit: u32,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct SessionArgs {
    /// The session's id, or a unique prefix of it
    #[arg(value_name = "SESSION_ID")]
    pub(crate) id: String,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ReviewCommand {
    /// List open reviews, longest waiting first
    List,
    /// Show a review with everything needed to decide
    Show(TaskArgs),
    /// Approve; for a call in doubt, --retry or --skip-with decides
    Approve(ApproveArgs),
    /// Reject: the model gets the message, a workflow takes the edge of "reject"; after a call in doubt
    /// the task fails
    Reject(DecideArgs),
    /// Approve with changes: --set of the tool call's arguments or of the workflow's State; a workflow
    /// takes the edge of "modify"
    Modify(DecideArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct DecideArgs {
    /// The task's id, a unique prefix of it, or "last"
    #[arg(value_name = "TASK_ID")]
    pub(crate) id: String,
    /// A message for the model or the next node
    #[arg(long, short, value_name = "TEXT")]
    pub(crate) message: Option<String>,
    /// A change of the tool call's arguments, or of the workflow's State such as
    /// metadata.topic; JSON if it parses, else a string. May be repeated
    #[arg(long, value_name = "PATH=VALUE")]
    pub(crate) set: Vec<String>,
    /// Answer only if the task still waits at this checkpoint; `review list --json` shows it
    #[arg(long, value_name = "CHECKPOINT_ID")]
    pub(crate) checkpoint: Option<CheckpointId>,
    /// Record the answer only; the task continues when it is resumed
    #[arg(long, conflicts_with_all = ["record", "replay"])]
    pub(crate) detach: bool,
    /// Let an imported task run the commands and use the endpoints that `task import` listed
    #[arg(long)]
    pub(crate) trust: bool,
    #[command(flatten)]
    pub(crate) recording: RecordingArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ApproveArgs {
    #[command(flatten)]
    pub(crate) decide: DecideArgs,
    /// Repeat a call in doubt
    #[arg(long, conflicts_with = "skip_with")]
    pub(crate) retry: bool,
    /// Do not repeat a call in doubt; use this as its result
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
    /// An argument; JSON if it parses and the tool takes no string there, else a string. May be repeated
    #[arg(long = "arg", value_name = "K=V")]
    pub(crate) args: Vec<String>,
    /// All arguments at once, as a JSON object; --arg adds to them
    #[arg(long = "arguments", value_name = "JSON")]
    pub(crate) json_arguments: Option<String>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct GcArgs {
    /// Show what would be removed or kept and why, and remove nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct CostArgs {
    /// The grouping
    #[arg(long, value_name = "WHAT", value_delimiter = ',', default_value = "agent,day")]
    pub(crate) by: Vec<CostBy>,
}

/// A grouping of costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CostBy {
    /// By agent
    Agent,
    /// By day, in UTC
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

/// The kinds by name: help lists them, and a typo gets a suggestion.
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
        super::PolityArgs::command().debug_assert();
    }
}
