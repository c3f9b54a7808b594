//! CLI agents: the known ones that are installed, and those of the home.

use std::path::Path;

use polity_definition::{AgentKind, CliPreset, Home};
use polity_drivers::cli::{InstalledAgent, find_installed};
use polity_engine::driver::{RemoteDriver as _, RunOverrides};

use super::{CheckSubject, DoctorCheck, PROBE_TIMEOUT};
use crate::context::HostContext;
use crate::error::HostError;

/// Looks for all known CLI agents, and asks each for its version.
pub(super) async fn installed(context: &HostContext) -> Result<Vec<DoctorCheck>, HostError> {
    let (launcher, environment) = (context.launcher()?, context.environment());
    let probes: Vec<_> = CliPreset::ALL
        .into_iter()
        .map(|preset| {
            let (launcher, environment) = (launcher.clone(), environment.clone());
            tokio::task::spawn_blocking(move || {
                let found = find_installed(preset, &launcher, &environment, PROBE_TIMEOUT);
                describe(preset, found)
            })
        })
        .collect();
    let mut checks = Vec::new();
    for probe in probes {
        let check = probe.await.map_err(|error| {
            HostError::io("check", Path::new("the programs"), std::io::Error::other(error))
        })?;
        checks.push(check);
    }
    Ok(checks)
}

fn describe(preset: CliPreset, found: InstalledAgent) -> DoctorCheck {
    const SUBJECT: CheckSubject = CheckSubject::Programs;
    let name = preset.as_str();
    match found {
        InstalledAgent::Works { path, version: Some(version) } => {
            DoctorCheck::ok(SUBJECT, name, format!("{version} ({})", path.display()))
        }
        InstalledAgent::Works { path, version: None } => {
            DoctorCheck::ok(SUBJECT, name, format!("of unknown version ({})", path.display()))
        }
        InstalledAgent::Missing { executable, install } => {
            let finding = format!("there is no {executable} in the PATH");
            DoctorCheck::missing(SUBJECT, name, finding)
                .meaning(format!("agents with `preset: {name}` cannot run"))
                .fix(format!("`{install}`, if you want to use it"))
        }
        InstalledAgent::Broken { path, reason } => {
            let finding = format!("{} --version: {reason}", path.display());
            DoctorCheck::missing(SUBJECT, name, finding)
                .meaning(format!("agents with `preset: {name}` will most likely fail"))
                .fix("run the program by hand to see its error, and install it again")
        }
    }
}

/// The CLI agents and remote agents of the home: is everything there that they need to start?
pub(super) fn of_home(context: &HostContext, home: &Home) -> Result<Vec<DoctorCheck>, HostError> {
    let (programs, remotes) = (context.programs(home)?, context.remotes(home));
    let mut checks = Vec::new();
    for agent in home.agents.values() {
        let ready = match &agent.kind {
            AgentKind::Cli(_) => programs.ready(agent, &RunOverrides::default()),
            AgentKind::Remote(_) => remotes.ready(agent),
            // Its model is checked with those of the other agents.
            AgentKind::Llm(_) => continue,
        };
        let name = format!("agent {}", agent.name);
        checks.push(match ready {
            Ok(()) => DoctorCheck::ok(CheckSubject::Home, name, "can start"),
            Err(not_ready) => DoctorCheck::missing(CheckSubject::Home, name, not_ready.message)
                .meaning("its tasks are refused")
                .fix(not_ready.hint)
                .needed(),
        });
    }
    Ok(checks)
}
