//! Arguments of `polity chart` and `polity sim`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand, ValueEnum};

#[derive(Debug, Subcommand)]
pub(crate) enum ChartCommand {
    /// List the home's charts
    List,
    /// Show the states, transitions and fields of a chart
    Show(ChartArgs),
    /// Validate one chart or all, and report all problems
    Check(ChartCheckArgs),
    /// Print a diagram of a chart
    Graph(ChartGraphArgs),
    /// Fire a trigger in a state, and show the transition
    Fire(ChartFireArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ChartArgs {
    /// The chart's name
    pub(crate) name: String,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ChartCheckArgs {
    /// The chart's name
    pub(crate) name: Option<String>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ChartGraphArgs {
    /// The chart's name
    pub(crate) name: String,
    /// The output format
    #[arg(long, default_value = "mermaid")]
    pub(crate) format: ChartFormat,
}

/// The output format of a chart diagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ChartFormat {
    /// A vector image
    Svg,
    /// Mermaid text, which many web pages and editors render
    Mermaid,
    /// The DOT language of Graphviz
    Dot,
    /// State Chart XML (SCXML), which other statechart tools read
    Scxml,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ChartFireArgs {
    /// The chart's name
    pub(crate) name: String,
    /// The state of the agent. Default: the chart's initial state
    #[arg(long)]
    pub(crate) state: Option<String>,
    /// The trigger to fire
    #[arg(long)]
    pub(crate) trigger: String,
    /// The `context` that guards read, as a JSON object
    #[arg(long, value_name = "JSON")]
    pub(crate) context: Option<String>,
    /// A field of the agent; JSON if it parses, else a string. May be repeated
    #[arg(long, value_name = "FIELD=VALUE")]
    pub(crate) set: Vec<String>,
    /// The seed of random draws in guards
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SimCommand {
    /// Run a scenario to its last turn
    Run(SimRunArgs),
    /// Resume a stopped or killed run from its newest checkpoint, or from --from
    Resume(SimResumeArgs),
    /// Start a new run from the end of a turn of another run
    Fork(SimForkArgs),
    /// Show the status of a run, or of all runs, newest first
    Status(SimStatusArgs),
    /// Change the population of a running or stopped run
    Lifecycle(SimLifecycleArgs),
    /// Show the state and the transitions of one agent
    Export(SimExportArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct SimRunArgs {
    /// The scenario's name
    pub(crate) scenario: String,
    /// The number of turns, instead of the scenario's
    #[arg(long, allow_negative_numbers = true)]
    pub(crate) turns: Option<u64>,
    /// Scale the population to this many agents. Groups keep their proportions; groups of one are not scaled unless every group has one agent
    #[arg(long, allow_negative_numbers = true)]
    pub(crate) agents: Option<u64>,
    /// The seed of all random draws
    #[arg(long, allow_negative_numbers = true)]
    pub(crate) seed: Option<u64>,
    #[command(flatten)]
    pub(crate) threads: ThreadArgs,
    /// The folder of the run, which must be empty or missing. Default: data/simulations/RUN in the home
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// A value of the scenario, such as `world.rates.0.rate=0.5`; JSON if it parses, else a string. May be
    /// repeated
    #[arg(long, value_name = "PATH=VALUE")]
    pub(crate) set: Vec<String>,
    /// Drop all lifecycle requests of a turn if one of them is invalid
    #[arg(long)]
    pub(crate) strict: bool,
}

#[derive(Debug, Clone, Copy, ClapArgs)]
pub(crate) struct ThreadArgs {
    /// The number of threads, which does not change the result. Default: one per CPU
    #[arg(long, value_parser = threads)]
    pub(crate) threads: Option<NonZeroUsize>,
}

/// More threads than any machine has use for cost more than they do.
const THREADS_MAX: usize = 512;

fn threads(text: &str) -> Result<NonZeroUsize, String> {
    let number = text.parse::<NonZeroUsize>().ok().filter(|number| number.get() <= THREADS_MAX);
    number.ok_or_else(|| format!("must be a whole number from 1 to {THREADS_MAX}"))
}

#[derive(Debug, ClapArgs)]
pub(crate) struct SimResumeArgs {
    /// The run's id, a unique prefix of it, its folder, or "last"
    pub(crate) run: String,
    /// Resume from the end of this turn
    #[arg(long, value_name = "TURN")]
    pub(crate) from: Option<u64>,
    /// The total number of turns, instead of the original one
    #[arg(long, allow_negative_numbers = true)]
    pub(crate) turns: Option<u64>,
    #[command(flatten)]
    pub(crate) threads: ThreadArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct SimForkArgs {
    /// The run's id, a unique prefix of it, its folder, or "last"
    pub(crate) run: String,
    /// The last turn that both runs share
    #[arg(long, value_name = "TURN")]
    pub(crate) at: u64,
    /// The total number of turns of the new run
    #[arg(long, allow_negative_numbers = true)]
    pub(crate) turns: Option<u64>,
    /// A value of the scenario that changes from here on, such as `seed=2`; JSON if it parses,
    /// else a string. May be repeated
    #[arg(long, value_name = "PATH=VALUE")]
    pub(crate) set: Vec<String>,
    /// The folder of the new run, which must be empty or missing
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) threads: ThreadArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct SimStatusArgs {
    /// The run's id, a unique prefix of it, its folder, or "last"
    pub(crate) run: Option<String>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct SimLifecycleArgs {
    /// The run's id, a unique prefix of it, its folder, or "last"
    pub(crate) run: String,
    #[command(subcommand)]
    pub(crate) operation: LifecycleCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LifecycleCommand {
    /// Add an agent; a taken name gets a number appended
    Add(LifecycleAddArgs),
    /// Remove an agent permanently
    Remove(LifecycleTargetArgs),
    /// Pause an agent; it keeps its state
    Pause(LifecyclePauseArgs),
    /// Resume a paused agent
    Resume(LifecycleTargetArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct LifecycleAddArgs {
    /// The name of the new agent
    pub(crate) name: String,
    /// Its initial state, as a JSON object: values of its fields, `state` and `behaviour`; `{}` for the chart's defaults
    #[arg(long, value_name = "JSON", required_unless_present = "state")]
    pub(crate) initial_state: Option<String>,
    /// The state in which it starts, instead of `state` in --initial-state
    #[arg(long, value_name = "STATE")]
    pub(crate) state: Option<String>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct LifecycleTargetArgs {
    /// The agent's name
    pub(crate) name: String,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct LifecyclePauseArgs {
    /// The agent's name
    pub(crate) name: String,
    /// The number of turns to skip. Default: until it is resumed
    #[arg(long, value_name = "TURNS", allow_negative_numbers = true)]
    pub(crate) auto_resume_turns: Option<i64>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct SimExportArgs {
    /// The run's id, a unique prefix of it, its folder, or "last"
    pub(crate) run: String,
    /// The agent's name
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: String,
    /// The turn to show. Default: the newest checkpoint
    #[arg(long, value_name = "TURN")]
    pub(crate) at: Option<u64>,
}
