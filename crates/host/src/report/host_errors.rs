//! Codes and hints for the errors of this crate.

use polity_definition::nearest;
use polity_drivers::cassette::CassetteError;
use polity_simulator::error::SimError;
use polity_simulator::scenario::{ScalingError, ScenarioLimit};
use polity_store::ImportError;

use super::ErrorReport;
use crate::archive::ArchiveError;
use crate::definitions::DefinitionError;
use crate::error::{HostError, LookupError, RecordKind};
use crate::home_trust::TrustFault;
use crate::recording::RecordingError;
use crate::simulations::changes::ScenarioChangeError;

impl From<HostError> for ErrorReport {
    fn from(error: HostError) -> Self {
        match error {
            HostError::Store(error) => error.into(),
            HostError::Engine(error) => error.into(),
            HostError::Simulation(error) => error.into(),
            HostError::Archive(error) => error.into(),
            HostError::Recording(error) => error.into(),
            HostError::Definition(error) => error.into(),
            HostError::Lookup(error) => error.into(),
            HostError::Io { doing, path, source } => Self::io(doing, &path, &source),
            HostError::MissingHome { .. } => Self::not_found(&error)
                .hint("create one with `polity init`, or name another with --home"),
            HostError::UntrustedHome { ref path, ref fault } => {
                let trust = "name the home with --home if you trust all who can write to it";
                Self::usage(&error).hint(match fault {
                    TrustFault::ForeignOwner { .. } => trust.to_owned(),
                    TrustFault::GroupWritable { .. } | TrustFault::WorldWritable => {
                        format!(
                            "take the permission away: `chmod go-w {}`; or {trust}",
                            path.display()
                        )
                    }
                })
            }
            HostError::ForeignData { .. } => Self::usage(&error).hint(
                "use a home of your own with --home, or run Polity as that user; remove what does \
                 not belong to the home",
            ),
            HostError::OpenDataLink { ref path } => Self::usage(&error).hint(format!(
                "make the folder behind the link private: `chmod -R go= {}/`",
                path.display()
            )),
            HostError::NoUserFolder => {
                Self::usage(&error).hint("create one with `polity init`, or name one with --home")
            }
            HostError::InvalidDefinitions { message, problems } => Self::invalid(message, problems),
            HostError::InvalidRun { ref folder, ref problems } => {
                Self::invalid(&error, problems.clone()).hint(format!(
                    "the run keeps its own chart.json and scenario.json in {}: restore them, or \
                     start a new run",
                    folder.display()
                ))
            }
            HostError::NotARunFolder { .. } => Self::not_found(&error)
                .hint("a run is a folder with a run.json, as `polity sim run --out DIR` makes it"),
            HostError::ScheduleExists(_) => Self::already(&error)
                .hint("nothing was written; edit its file, or choose another name"),
            HostError::TaskRemoved(_)
            | HostError::EmptyJournal(_)
            | HostError::BrokenTask { .. }
            | HostError::LostDefinition { .. } => Self::not_found(&error),
            HostError::ChangingTask(_) => {
                Self::conflict(&error).hint("try again when the task changes less often")
            }
            HostError::NoReview(_) => {
                Self::conflict(&error).hint("`polity review list` lists the open reviews")
            }
            HostError::SeveralReviews { ref reviews, .. } => {
                let each = reviews.iter().map(|(task, question)| format!("\n  {task}  {question}"));
                Self::usage(&error).hint(format!("name one of them:{}", each.collect::<String>()))
            }
            HostError::OwnerUnresponsive { task, .. } => Self::conflict(&error).hint(format!(
                "the request stays; follow the task with `polity task watch {task}`"
            )),
        }
    }
}

impl From<LookupError> for ErrorReport {
    fn from(error: LookupError) -> Self {
        let list = match error.kind() {
            RecordKind::Task => "`polity task list` lists the tasks",
            RecordKind::Execution => "`polity execution list` lists the executions",
            RecordKind::Run => "`polity sim status` lists the runs",
            RecordKind::Session => "`polity session list` lists the sessions",
        };
        match error {
            LookupError::NoneYet(RecordKind::Run) => {
                Self::not_found(&error).hint("start one: `polity sim run`")
            }
            LookupError::NoneYet(
                RecordKind::Task | RecordKind::Execution | RecordKind::Session,
            ) => Self::not_found(&error),
            LookupError::EmptyId(_) => Self::usage(&error).hint(list),
            LookupError::NotFound { .. } => Self::not_found(&error).hint(list),
            LookupError::Ambiguous { .. } => {
                Self::usage(&error).hint("use more characters of the id")
            }
        }
    }
}

impl From<DefinitionError> for ErrorReport {
    fn from(error: DefinitionError) -> Self {
        let did_you_mean = |suggestion: &Option<String>| {
            suggestion.as_ref().map(|name| format!("did you mean \"{name}\"?"))
        };
        match &error {
            DefinitionError::UnknownAssignee { suggestion, .. } => Self::unknown_agent(&error)
                .hint(did_you_mean(suggestion).unwrap_or_else(|| {
                    "`polity agent list` and `polity workflow list` list them, `polity init` \
                     creates a working home"
                        .to_owned()
                })),
            DefinitionError::UnknownWorkflow { suggestion, .. } => Self::unknown_agent(&error)
                .hint(
                    did_you_mean(suggestion)
                        .unwrap_or_else(|| "`polity workflow list` lists the workflows".to_owned()),
                ),
            DefinitionError::UnknownSchedule { suggestion, .. } => Self::unknown_definition(&error)
                .hint(
                    did_you_mean(suggestion)
                        .unwrap_or_else(|| "`polity schedule list` lists the schedules".to_owned()),
                ),
            DefinitionError::UnknownSimulation { kind, folder, suggestion, .. } => {
                Self::unknown_definition(&error).hint(
                    did_you_mean(suggestion)
                        .unwrap_or_else(|| format!("{kind}s are files in {folder}/ of the home")),
                )
            }
            DefinitionError::NotAnAgent(_) => Self::unknown_agent(&error),
            DefinitionError::NotAWorkflow(_) => {
                Self::unknown_agent(&error).hint("`polity workflow list` lists the workflows")
            }
            DefinitionError::EmptyWorkflow(_) => Self::usage(&error),
        }
    }
}

impl From<ArchiveError> for ErrorReport {
    fn from(error: ArchiveError) -> Self {
        match &error {
            ArchiveError::Damaged(_) => {
                Self::archive(&error).hint("nothing was imported; export the task again")
            }
            ArchiveError::Empty(_) => Self::not_found(&error).hint(
                "name the folder that `polity task export --out` wrote to, or the folder of one \
                 task in it",
            ),
            ArchiveError::FolderExists(_) => Self::already(&error)
                .hint("nothing was written; replace it with --force, or name another folder"),
            ArchiveError::PartOfTask { parent, .. } => Self::usage(&error)
                .hint(format!("export the whole task: `polity task export {parent} --out DIR`")),
            ArchiveError::Conflict { .. } => Self::conflict(&error)
                .hint("nothing was imported; use another home with --home to have both"),
            ArchiveError::Refused(ImportError::Exists { .. }) => Self::conflict(&error)
                .hint("nothing was imported; another process imported it first"),
            ArchiveError::Duplicate(_)
            | ArchiveError::NotSerializable { .. }
            | ArchiveError::Contradiction { .. }
            | ArchiveError::Refused(ImportError::Illegal { .. } | ImportError::Store(_)) => {
                Self::archive(&error)
            }
        }
    }
}

impl From<RecordingError> for ErrorReport {
    fn from(error: RecordingError) -> Self {
        if let RecordingError::ExistingFile(error) = error {
            return Self::from(*error)
                .hint("nothing was changed; name another file, or remove this one first");
        }
        let hint = match &error {
            RecordingError::Io { doing, path, source } => return Self::io(doing, path, source),
            RecordingError::WouldReplace { .. } => "name another file, or remove this one",
            RecordingError::NoBeginning(_) => {
                "continue without --record, or start again: polity run NAME INPUT --record FILE"
            }
            RecordingError::OtherAgent { .. } => "name the agent's own cassette",
            RecordingError::OtherInput { .. } => "name the task's own cassette",
            RecordingError::NotFound(file) => {
                let hint = format!("record one: polity run NAME INPUT --record {}", file.display());
                return Self::cassette(&error).hint(hint);
            }
            RecordingError::IsFolder(_) => "name a file in it",
            RecordingError::NotAFile(_) => "name another file",
            RecordingError::Unusable { error, .. } => match error {
                CassetteError::NotACassette => "name a file that `polity run --record` wrote",
                CassetteError::CutShort { .. } | CassetteError::Unreadable { .. } => {
                    "fix it or restore it from a copy; or remove it, and record it again with \
                     --record"
                }
                CassetteError::UnknownVersion { .. } => {
                    "use the Polity that wrote it; or remove it, and record it again with --record"
                }
            },
            RecordingError::NoFolder { .. } => "create the folder first, or name another file",
            RecordingError::NotSerializable { .. } | RecordingError::ExistingFile(_) => {
                return Self::cassette(&error);
            }
        };
        Self::cassette(&error).hint(hint)
    }
}

impl From<ScenarioChangeError> for ErrorReport {
    fn from(error: ScenarioChangeError) -> Self {
        let did_you_mean = |near: &str| format!("did you mean \"{near}\"?");
        let hint = match &error {
            ScenarioChangeError::FixedField { field: "name" | "chart", .. } => {
                "write another scenario, or edit this one".to_owned()
            }
            ScenarioChangeError::FixedField { field: "population", .. } => {
                "a fork keeps the agents of the original run; change them with `polity sim \
                 lifecycle` or lifecycle in the scenario"
                    .to_owned()
            }
            ScenarioChangeError::FixedField { .. } => {
                "some of its turns have already run; start a new run with `polity sim run` and \
                 --set"
                    .to_owned()
            }
            ScenarioChangeError::AmbiguousItem { indices, .. } => {
                let indices: Vec<String> = indices.iter().map(usize::to_string).collect();
                format!("select one by its index: {}", indices.join(" or "))
            }
            ScenarioChangeError::MissingItem { known, .. } if known.is_empty() => {
                "the first item is 0".to_owned()
            }
            ScenarioChangeError::MissingItem { name, known, .. } => {
                let near = nearest(name, known.iter().map(String::as_str));
                near.map_or_else(|| format!("there are {}", known.join(", ")), did_you_mean)
            }
            ScenarioChangeError::Size {
                source: ScalingError::TooFewAgents { singles }, ..
            } => {
                format!("use {singles} or more, or remove some of them from the population")
            }
            ScenarioChangeError::Size { source: ScalingError::EmptyPopulation, .. } => {
                "give it a population".to_owned()
            }
            ScenarioChangeError::OverLimit { limit, .. } => {
                let (code, hint) = match limit {
                    ScenarioLimit::MaxAgents => {
                        ("limit_max_agents", "--set max_agents=N raises it for this run")
                    }
                    ScenarioLimit::Agents => {
                        ("limit_agents", "no population can be larger; use fewer agents")
                    }
                    ScenarioLimit::Turns => {
                        ("limit_turns", "use fewer turns, or fewer ticks per turn")
                    }
                };
                return Self::over_limit(code, &error).hint(hint);
            }
            ScenarioChangeError::Invalid { problems, .. } => {
                let hint = problems.iter().find_map(|problem| {
                    let allowed = || problem.allowed.as_ref().map(|all| format!("allowed: {all}"));
                    problem.suggestion.as_deref().map(did_you_mean).or_else(allowed)
                });
                let schema = || "`polity schema scenario` lists the fields".to_owned();
                return Self::invalid(&error, Vec::new()).hint(hint.unwrap_or_else(schema));
            }
            ScenarioChangeError::NotAContainer { .. } | ScenarioChangeError::NotSerializable(_) => {
                return Self::usage(&error);
            }
        };
        Self::usage(&error).hint(hint)
    }
}

impl From<SimError> for ErrorReport {
    fn from(error: SimError) -> Self {
        match &error {
            SimError::Exists(_) => Self::conflict(&error)
                .hint("each run needs its own folder: name an empty or missing one with --out"),
            SimError::Io { doing, path, source } => Self::io(doing, path, source),
            SimError::DamagedCheckpoint { earlier, .. } => {
                Self::damaged(&error).hint(match earlier {
                    Some(turn) => format!("`polity sim resume RUN --from {turn}`"),
                    None => "start a new run with `polity sim run`".to_owned(),
                })
            }
            SimError::OtherFormat { .. } => Self::conflict(&error).hint(
                "continue it with the version of Polity that wrote it, or start a new run with \
                 `polity sim run`",
            ),
            SimError::Damaged { .. } => Self::damaged(&error)
                .hint("restore the file from a copy, or start a new run with `polity sim run`"),
            SimError::NoCheckpoint { .. } => Self::not_found(&error)
                .hint("`polity sim status RUN` shows the turns that have a checkpoint"),
            SimError::Ended(_) => Self::conflict(&error)
                .hint("start a new run from one of its turns: `polity sim fork RUN --at TURN`"),
            SimError::InUse => {
                Self::conflict(&error).hint("`polity sim status` shows which runs are active")
            }
            SimError::TooManyAgents { .. } => Self::over_limit("limit_max_agents", &error)
                .hint("raise max_agents in the scenario, or with --set max_agents=N"),
            SimError::TooManyTurns { .. } => Self::over_limit("limit_turns", &error)
                .hint("use fewer turns, or fewer ticks per turn"),
            SimError::TooFewTurns { .. } => Self::usage(&error)
                .hint("use more turns with --turns, or start from an earlier turn"),
            SimError::Threads(_) => Self::conflict(&error).hint("try fewer with --threads"),
            SimError::Scenario(_) => Self::usage(&error),
            SimError::Rates(_) | SimError::Agent(_) => Self::conflict(&error),
        }
    }
}
