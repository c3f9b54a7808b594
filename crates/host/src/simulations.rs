//! The charts, scenarios and simulation runs of a home.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use polity_definition::{DefinitionProblem, DocumentProblem, ExternalDocument, HomeFile, nearest};
use polity_model::name::Name;
use polity_simulator::scenario::{Scenario, ScenarioError, ScenarioFile};
use polity_statechart::{Chart, ChartErrors};
use serde_json::Value;

use crate::definitions::DefinitionError;
use crate::error::HostError;

pub mod changes;
pub mod charts;
pub mod firing;
pub mod lifecycle;
pub mod preparation;
pub mod runs;

/// The folder of charts.
pub const CHARTS: &str = "charts";
/// The folder of scenarios.
pub const SCENARIOS: &str = "scenarios";

/// Every valid chart and scenario of a home, and every problem of the others.
#[derive(Debug, Default)]
pub struct SimulationDefinitions {
    /// The valid charts.
    pub charts: BTreeMap<Name, LoadedChart>,
    /// The valid scenarios.
    pub scenarios: BTreeMap<Name, LoadedScenario>,
    /// All problems, by file and position.
    pub problems: Vec<DefinitionProblem>,
    broken_charts: BTreeSet<Name>,
    /// Invalid scenarios, each with the name of its chart.
    broken_scenarios: BTreeMap<Name, Option<String>>,
}

/// A chart with its source.
#[derive(Debug, Clone)]
pub struct LoadedChart {
    /// The compiled chart.
    pub chart: Arc<Chart>,
    /// The file as JSON.
    pub document: Value,
}

/// A scenario with its source and chart.
#[derive(Debug, Clone)]
pub struct LoadedScenario {
    /// The compiled scenario.
    pub scenario: Scenario,
    /// The decoded file.
    pub file: ScenarioFile,
    /// The chart of the scenario.
    pub chart: LoadedChart,
}

impl SimulationDefinitions {
    /// Reads charts and scenarios.
    pub fn read(files: &[HomeFile]) -> Self {
        let mut read = Self::default();
        for document in ExternalDocument::read_all(CHARTS, files) {
            read.add_chart(document);
        }
        for document in ExternalDocument::read_all(SCENARIOS, files) {
            read.add_scenario(document);
        }
        read.problems.sort_by(|a, b| (&a.file, a.line, a.column).cmp(&(&b.file, b.line, b.column)));
        read
    }

    fn add_chart(&mut self, document: ExternalDocument<Value>) {
        let name = document.name.clone();
        match (chart_from_document(document), name) {
            (Ok(chart), Some(name)) => {
                self.charts.insert(name, chart);
            }
            (Ok(_), None) => {}
            (Err(problems), name) => {
                self.problems.extend(problems);
                self.broken_charts.extend(name);
            }
        }
    }

    fn add_scenario(&mut self, mut document: ExternalDocument<ScenarioFile>) {
        let name = document.name.clone();
        let chart = document.content.as_ref().and_then(|file| file.chart.clone());
        let scenario = document.content.take().and_then(|file| {
            for error in file.unreachable_events(0) {
                document.report(complaint_from(error));
            }
            let chart = self.chart_for(&file, &mut document)?;
            scenario_from_file(file, chart, &mut document)
        });
        match (scenario, name) {
            (Some(scenario), Some(name)) if document.is_clean() => {
                self.scenarios.insert(name, scenario);
            }
            (_, name) => self.broken_scenarios.extend(name.map(|name| (name, chart))),
        }
        self.problems.extend(document.into_problems());
    }

    /// The chart that a scenario names. One that is there but not valid is complained about
    /// elsewhere.
    fn chart_for(
        &self,
        file: &ScenarioFile,
        document: &mut ExternalDocument<ScenarioFile>,
    ) -> Option<LoadedChart> {
        let place = "chart".to_owned();
        let Some(name) = file.chart.as_deref() else {
            let message = "missing field \"chart\"".to_owned();
            document.report(DocumentProblem {
                path: place,
                message,
                allowed: None,
                suggestion: None,
            });
            return None;
        };
        if let Some(chart) = self.charts.get(name) {
            return Some(chart.clone());
        }
        if !self.broken_charts.contains(name) {
            let names = || self.charts.keys().chain(&self.broken_charts).map(Name::as_str);
            let allowed: Vec<&str> = names().collect();
            document.report(DocumentProblem {
                path: place,
                message: format!("chart: there is no chart \"{name}\" in {CHARTS}/"),
                allowed: (!allowed.is_empty()).then(|| allowed.join(", ")),
                suggestion: nearest(name, names()).map(str::to_owned),
            });
        }
        None
    }

    /// The chart of a name.
    pub fn chart(&self, name: &str) -> Result<&LoadedChart, HostError> {
        self.charts.get(name).ok_or_else(|| {
            let broken = self.broken_charts.contains(name).then(|| self.problems_of(CHARTS, name));
            missing(("chart", CHARTS), name, broken, self.charts.keys())
        })
    }

    /// The scenario of a name.
    pub fn scenario(&self, name: &str) -> Result<&LoadedScenario, HostError> {
        self.scenarios.get(name).ok_or_else(|| {
            let broken = self.broken_scenarios.get(name).map(|chart| {
                let mut problems = self.problems_of(SCENARIOS, name);
                if let (true, Some(chart)) = (problems.is_empty(), chart) {
                    problems = self.problems_of(CHARTS, chart);
                }
                problems
            });
            missing(("scenario", SCENARIOS), name, broken, self.scenarios.keys())
        })
    }

    /// The problems of one file.
    fn problems_of(&self, folder: &str, name: &str) -> Vec<DefinitionProblem> {
        let is_its = |problem: &&DefinitionProblem| {
            problem.file.strip_prefix(folder).is_some_and(|file| {
                file.trim_start_matches('/').rsplit_once('.').is_some_and(|(s, _)| s == name)
            })
        };
        self.problems.iter().filter(is_its).cloned().collect()
    }
}

/// The error for a name without a valid file.
fn missing<'a>(
    (kind, folder): (&'static str, &'static str),
    name: &str,
    broken: Option<Vec<DefinitionProblem>>,
    known: impl Iterator<Item = &'a Name>,
) -> HostError {
    if let Some(problems) = broken {
        return HostError::invalid(format!("the {kind} \"{name}\" is not valid"), problems);
    }
    let suggestion = nearest(name, known.map(Name::as_str)).map(str::to_owned);
    DefinitionError::UnknownSimulation { kind, folder, name: name.to_owned(), suggestion }.into()
}

/// Compiles the chart of a document.
pub fn chart_from_document(
    mut document: ExternalDocument<Value>,
) -> Result<LoadedChart, Vec<DefinitionProblem>> {
    let chart = document.content.take().and_then(|content| match Chart::from_document(&content) {
        Ok(chart) => Some(LoadedChart { chart: Arc::new(chart), document: content }),
        Err(ChartErrors(errors)) => {
            for error in errors {
                document.report(DocumentProblem {
                    path: error.location,
                    message: error.message,
                    allowed: error.allowed,
                    suggestion: error.suggestion,
                });
            }
            None
        }
    });
    chart.filter(|_| document.is_clean()).ok_or_else(|| document.into_problems())
}

/// Compiles the scenario of a file, adding problems to the document.
pub fn scenario_from_file(
    file: ScenarioFile,
    chart: LoadedChart,
    document: &mut ExternalDocument<ScenarioFile>,
) -> Option<LoadedScenario> {
    match Scenario::new(&file, Arc::clone(&chart.chart)) {
        Ok(scenario) => Some(LoadedScenario { scenario, file, chart }),
        Err(errors) => {
            for error in errors {
                document.report(complaint_from(error));
            }
            None
        }
    }
}

/// A scenario error as a problem of its document.
pub fn complaint_from(error: ScenarioError) -> DocumentProblem {
    let ScenarioError { location: place, message, found, allowed, limit: _ } = error;
    let near = |found: &String| nearest(found, allowed.iter().map(String::as_str));
    let suggestion = found.as_ref().and_then(near).map(str::to_owned);
    let allowed = (!allowed.is_empty()).then(|| allowed.join(", "));
    DocumentProblem { path: place, message, allowed, suggestion }
}
