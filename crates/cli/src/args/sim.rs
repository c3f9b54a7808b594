//! Charts and simulations, as they are typed.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand, ValueEnum};

#[derive(Debug, Subcommand)]
pub(crate) enum ChartCommand {
    /// List the home's charts
    List,
    /// Show a chart: its states, what leads from where to where, its fields
    Show(ChartArgs),
    /// Look at one chart, or at all, and report all problems at once
    Check(ChartCheckArgs),
    /// Draw a chart, on stdout
    Graph(ChartGraphArgs),
    /// Try a chart by hand: where does a trigger lead from a state?
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
    /// What to write the picture in
    #[arg(long, default_value = "mermaid")]
    pub(crate) format: ChartFormat,
}

/// What the picture of a chart is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ChartFormat {
    /// A picture for browsers and documents
    Svg,
    /// Text that many web pages and editors show as a picture
    Mermaid,
    /// The language of Graphviz
    Dot,
    /// State Chart XML, which other tools for statecharts read
    Scxml,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct ChartFireArgs {
    /// The chart's name
    pub(crate) name: String,
    /// The state that the agent is in; the chart's initial one, if none
    #[arg(long)]
    pub(crate) state: Option<String>,
    /// What happens
    #[arg(long)]
    pub(crate) trigger: String,
    /// What guards read as `context`, as a JSON object
    #[arg(long, value_name = "JSON")]
    pub(crate) context: Option<String>,
    /// A field of the agent; JSON if it parses, else a text. May be repeated
    #[arg(long, value_name = "FIELD=VALUE")]
    pub(crate) set: Vec<String>,
    /// The seed of what guards draw
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SimCommand {
    /// Run a scenario to its last turn
    Run(SimRunArgs),
    /// Go on with a run that was stopped or killed, from its newest checkpoint or an older one
    Resume(SimResumeArgs),
    /// Begin a new run where another one was at the end of a turn, and run it
    Fork(SimForkArgs),
    /// Show how a run stands; without one, how all stand, newest first
    Status(SimStatusArgs),
    /// Change the population of a run, while it runs or before it is resumed
    Lifecycle(SimLifecycleArgs),
    /// Show an agent of a run: its state, and the transitions that led there
    Export(SimExportArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct SimRunArgs {
    /// The scenario's name
    pub(crate) scenario: String,
    /// How many turns it has, instead of what the scenario says
    #[arg(long, allow_negative_numbers = true)]
    pub(crate) turns: Option<u64>,
    /// How many agents there are at the start; groups keep their shares, and where some have several, groups of one stay as they are
    #[arg(long, allow_negative_numbers = true)]
    pub(crate) agents: Option<u64>,
    /// What all chance follows from
    #[arg(long, allow_negative_numbers = true)]
    pub(crate) seed: Option<u64>,
    #[command(flatten)]
    pub(crate) threads: ThreadArgs,
    /// The folder of the run, which must be empty or not there; data/simulations/RUN of the home, if none
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// A value of the scenario, such as `world.rates.0.rate=0.5`; JSON if it parses, else a text. May be
    /// repeated
    #[arg(long, value_name = "PATH=VALUE")]
    pub(crate) set: Vec<String>,
    /// Let one lifecycle request that cannot be done take all others of its turn with it
    #[arg(long)]
    pub(crate) strict: bool,
}

#[derive(Debug, Clone, Copy, ClapArgs)]
pub(crate) struct ThreadArgs {
    /// How many threads do the work; as many as the machine has, if none. It changes no result
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
    /// The run's id, or as much of its beginning as tells it from others; its folder; or "last"
    pub(crate) run: String,
    /// Go on from the end of this turn, which the run must have come to
    #[arg(long, value_name = "TURN")]
    pub(crate) from: Option<u64>,
    /// How many turns the run has in all, instead of what it began with
    #[arg(long, allow_negative_numbers = true)]
    pub(crate) turns: Option<u64>,
    #[command(flatten)]
    pub(crate) threads: ThreadArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct SimForkArgs {
    /// The run's id, or as much of its beginning as tells it from others; its folder; or "last"
    pub(crate) run: String,
    /// The turn at whose end the two part, which the run must have come to
    #[arg(long, value_name = "TURN")]
    pub(crate) at: u64,
    /// How many turns the new run has in all
    #[arg(long, allow_negative_numbers = true)]
    pub(crate) turns: Option<u64>,
    /// A value of the scenario that is different from here on, such as `seed=2`; JSON if it parses,
    /// else a text. May be repeated
    #[arg(long, value_name = "PATH=VALUE")]
    pub(crate) set: Vec<String>,
    /// The folder of the new run, which must be empty or not there
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) threads: ThreadArgs,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct SimStatusArgs {
    /// The run's id, or as much of its beginning as tells it from others; its folder; or "last"
    pub(crate) run: Option<String>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct SimLifecycleArgs {
    /// The run's id, or as much of its beginning as tells it from others; its folder; or "last"
    pub(crate) run: String,
    #[command(subcommand)]
    pub(crate) operation: LifecycleCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LifecycleCommand {
    /// Add an agent; where the name is taken, it gets a number behind it
    Add(LifecycleAddArgs),
    /// Remove an agent for good
    Remove(LifecycleTargetArgs),
    /// Pause an agent: it does nothing and keeps all that it has
    Pause(LifecyclePauseArgs),
    /// Let a paused agent go on
    Resume(LifecycleTargetArgs),
}

#[derive(Debug, ClapArgs)]
pub(crate) struct LifecycleAddArgs {
    /// The name of the new agent
    pub(crate) name: String,
    /// How it begins, as a JSON object: values of its fields, and `state`
    #[arg(long, value_name = "JSON", default_value = "{}")]
    pub(crate) initial_state: String,
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
    /// How many turns it skips; until it is resumed, if none
    #[arg(long, value_name = "TURNS", allow_negative_numbers = true)]
    pub(crate) auto_resume_turns: Option<i64>,
}

#[derive(Debug, ClapArgs)]
pub(crate) struct SimExportArgs {
    /// The run's id, or as much of its beginning as tells it from others; its folder; or "last"
    pub(crate) run: String,
    /// The agent's name
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: String,
    /// As it was at the end of this turn; at the newest checkpoint, if none
    #[arg(long, value_name = "TURN")]
    pub(crate) at: Option<u64>,
}
