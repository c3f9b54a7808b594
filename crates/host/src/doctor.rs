//! The doctor: checks of this machine, and of everything that a home needs.
//!
//! One file per subject. A check never shows a value of the environment, and no text of a model's
//! server.

mod agents;
mod clock;
mod machine;
mod models;
mod store;
mod tools;

use std::path::PathBuf;
use std::time::Duration;

use polity_definition::Home;
use serde::Serialize;

use crate::context::HostContext;
use crate::error::HostError;
use clock::ClockReading;

/// The longest wait for a program, a tool server or a model.
const PROBE_TIMEOUT: Duration = Duration::from_secs(20);

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckStatus {
    /// It works.
    Ok,
    /// It works with a restriction.
    Weaker,
    /// It does not work, or is not there.
    Missing,
}

/// The subject of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckSubject {
    /// The kernel and what it permits.
    Machine,
    /// Known CLI agents that are installed.
    Programs,
    /// The clock.
    Clock,
    /// The definitions of the home, and its agents.
    Home,
    /// MCP servers.
    Tools,
    /// Language models.
    Models,
    /// The database and its disk.
    Store,
    /// The server of the home.
    Server,
}

impl CheckSubject {
    /// All subjects, in the order in which they are shown.
    pub const ALL: [Self; 8] = [
        Self::Machine,
        Self::Programs,
        Self::Clock,
        Self::Home,
        Self::Tools,
        Self::Models,
        Self::Store,
        Self::Server,
    ];

    /// The name as JSON spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Machine => "machine",
            Self::Programs => "programs",
            Self::Clock => "clock",
            Self::Home => "home",
            Self::Tools => "tools",
            Self::Models => "models",
            Self::Store => "store",
            Self::Server => "server",
        }
    }
}

/// One check and its result.
#[derive(Debug, Clone, Serialize)]
pub struct DoctorCheck {
    /// The subject.
    pub subject: CheckSubject,
    /// The thing that was checked, such as `cgroups`, or the name of an agent.
    pub name: String,
    /// The result.
    pub status: CheckStatus,
    /// The observation.
    pub finding: String,
    /// The consequence, if something is not as it should be.
    pub meaning: Option<String>,
    /// The way to fix it.
    pub fix: Option<String>,
    /// True if the home needs it.
    pub needed: bool,
}

impl DoctorCheck {
    /// A check that succeeded.
    pub fn ok(subject: CheckSubject, name: impl Into<String>, finding: impl Into<String>) -> Self {
        Self {
            subject,
            name: name.into(),
            status: CheckStatus::Ok,
            finding: finding.into(),
            meaning: None,
            fix: None,
            needed: false,
        }
    }

    /// A check that found a restriction.
    pub fn weaker(
        subject: CheckSubject,
        name: impl Into<String>,
        finding: impl Into<String>,
    ) -> Self {
        Self { status: CheckStatus::Weaker, ..Self::ok(subject, name, finding) }
    }

    /// A check that failed.
    pub fn missing(
        subject: CheckSubject,
        name: impl Into<String>,
        finding: impl Into<String>,
    ) -> Self {
        Self { status: CheckStatus::Missing, ..Self::ok(subject, name, finding) }
    }

    /// Adds the consequence.
    pub fn meaning(mut self, meaning: impl Into<String>) -> Self {
        self.meaning = Some(meaning.into());
        self
    }

    /// Adds the way to fix it.
    pub fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }

    /// Marks it as something that the home needs.
    pub fn needed(mut self) -> Self {
        self.needed = true;
        self
    }

    /// True if the home needs it and it does not work.
    pub fn is_fault(&self) -> bool {
        self.needed && self.status == CheckStatus::Missing
    }
}

/// The results of all checks.
#[derive(Debug, Clone, Serialize)]
pub struct DoctorReport {
    /// True if everything works that the home needs.
    pub healthy: bool,
    /// The home; none if only the machine was checked.
    pub home: Option<PathBuf>,
    /// The checks.
    pub checks: Vec<DoctorCheck>,
}

/// Checks this machine, and the home if there is one. Must be called within a Tokio runtime. Fails
/// if the folder of the home cannot be read.
pub async fn examine(context: &HostContext, has_home: bool) -> Result<DoctorReport, HostError> {
    let began = ClockReading::now();
    let mut checks = machine::checks(context).await?;
    checks.extend(agents::installed(context).await?);
    if has_home {
        let home = context.folder().read()?;
        checks.push(definitions(&home));
        checks.extend(agents::of_home(context, &home)?);
        checks.extend(tools::checks(context, &home).await?);
        checks.extend(models::checks(context, &home).await);
        checks.extend(store::checks(context, &home).await);
    }
    checks.extend(clock::checks(began));
    let home = has_home.then(|| context.folder().root().to_owned());
    Ok(DoctorReport::new(home, checks))
}

impl DoctorReport {
    fn new(home: Option<PathBuf>, checks: Vec<DoctorCheck>) -> Self {
        let mut report = Self { healthy: true, home, checks };
        report.assess();
        report
    }

    /// Adds a check of the front end.
    pub fn add(&mut self, check: DoctorCheck) {
        self.checks.push(check);
        self.assess();
    }

    fn assess(&mut self) {
        let order =
            |subject: CheckSubject| CheckSubject::ALL.iter().position(|other| *other == subject);
        self.checks.sort_by_key(|check| order(check.subject));
        self.healthy = !self.checks.iter().any(DoctorCheck::is_fault);
    }
}

/// The definition files.
fn definitions(home: &Home) -> DoctorCheck {
    const NAME: &str = "definitions";
    let number = home.agents.len() + home.workflows.len() + home.schedules.len();
    match home.problems.first() {
        None => DoctorCheck::ok(CheckSubject::Home, NAME, format!("{number} valid")),
        Some(problem) => {
            let others = match home.problems.len() - 1 {
                0 => String::new(),
                others => format!(" ({others} more)"),
            };
            DoctorCheck::missing(CheckSubject::Home, NAME, format!("{problem}{others}"))
                .meaning("definitions with a mistake are not used")
                .fix("`polity check` lists all problems")
                .needed()
        }
    }
}

/// A number of bytes for people.
fn bytes_text(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KB", "MB", "GB", "TB"];
    let (mut rest, mut unit) = (bytes, "bytes");
    for next in UNITS {
        if rest < 10_000 {
            break;
        }
        (rest, unit) = (rest / 1000, next);
    }
    format!("{rest} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_needed_checks_that_fail_are_faults() {
        let ok = DoctorCheck::ok(CheckSubject::Machine, "a", "b");
        let missing = DoctorCheck::missing(CheckSubject::Machine, "a", "b");
        let weaker = DoctorCheck::weaker(CheckSubject::Machine, "a", "b").needed();
        let report = DoctorReport::new(None, vec![ok, missing.clone(), weaker]);
        assert!(report.healthy);
        assert!(!DoctorReport::new(None, vec![missing.needed()]).healthy);
    }

    #[test]
    fn every_subject_is_shown_under_its_json_name() {
        for subject in CheckSubject::ALL {
            assert_eq!(serde_json::to_value(subject).unwrap(), subject.as_str());
        }
    }

    #[test]
    fn sizes_are_readable() {
        assert_eq!(bytes_text(0), "0 bytes");
        assert_eq!(bytes_text(9999), "9999 bytes");
        assert_eq!(bytes_text(64 << 20), "67 MB");
        assert_eq!(bytes_text(2_500_000_000_000), "2500 GB");
    }
}
