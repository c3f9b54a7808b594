//! The definitions of a running server, read again when their files change.
//!
//! Files are looked at when a request needs them, at most once per [`CHECK_INTERVAL`], so that an
//! idle server does nothing. A definition that is no longer valid keeps its last valid form.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use polity_definition::Home;
use polity_host::{HomeVersion, HostContext, HostError};
use tokio::time::Instant;

/// The shortest time between two looks at the files.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// The definitions that requests use.
pub(crate) struct LiveDefinitions {
    context: HostContext,
    current: Mutex<LoadedDefinitions>,
}

struct LoadedDefinitions {
    home: Arc<Home>,
    version: HomeVersion,
    checked: Instant,
    /// The reason why the files as they are now are not used.
    failure: Option<String>,
}

impl LiveDefinitions {
    pub(crate) fn new(context: HostContext, home: Home, version: HomeVersion) -> Self {
        let (home, checked) = (Arc::new(home), Instant::now());
        let loaded = LoadedDefinitions { home, version, checked, failure: None };
        Self { context, current: Mutex::new(loaded) }
    }

    /// The definitions, as the files have them.
    pub(crate) fn get(&self) -> Arc<Home> {
        self.checked_within(CHECK_INTERVAL)
    }

    /// The definitions, as the files have them right now.
    pub(crate) fn get_now(&self) -> Arc<Home> {
        self.checked_within(Duration::ZERO)
    }

    fn checked_within(&self, interval: Duration) -> Arc<Home> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.checked.elapsed() >= interval {
            current.checked = Instant::now();
            if let Err(error) = self.refresh(&mut current) {
                let failure = error.to_string();
                if current.failure.as_ref() != Some(&failure) {
                    tracing::error!(error = failure, "the definitions stay as they were");
                    current.failure = Some(failure);
                }
            }
        }
        Arc::clone(&current.home)
    }

    /// The definitions as they were read last.
    pub(crate) fn loaded(&self) -> Arc<Home> {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&current.home)
    }

    /// The reason why the files as they are now are not used.
    pub(crate) fn failure(&self) -> Option<String> {
        self.get();
        self.current.lock().unwrap_or_else(PoisonError::into_inner).failure.clone()
    }

    fn refresh(&self, current: &mut LoadedDefinitions) -> Result<(), HostError> {
        if self.context.folder().is_current(&current.version)? {
            return Ok(());
        }
        let (mut home, version) = self.context.definitions_and_version()?;
        for problem in &home.problems {
            tracing::error!(%problem, "a definition is not valid");
        }
        keep_valid(&mut home, &current.home);
        tracing::info!("definitions read again");
        (current.home, current.version, current.failure) = (Arc::new(home), version, None);
        Ok(())
    }
}

/// Keeps the last valid form of each agent, workflow and schedule whose file is not valid any more.
fn keep_valid(home: &mut Home, before: &Home) {
    let is_broken = |folder: &str, name: &str| {
        let file = format!("{folder}/{name}.");
        home.problems.iter().any(|problem| problem.file.starts_with(&file))
    };
    let missing = |name: &&polity_model::name::Name, folder: &str| is_broken(folder, name.as_str());
    let agents: Vec<_> = before
        .agents
        .iter()
        .filter(|(name, _)| !home.agents.contains_key(*name) && missing(name, "agents"))
        .map(|(name, agent)| (name.clone(), Arc::clone(agent)))
        .collect();
    let workflows: Vec<_> = before
        .workflows
        .iter()
        .filter(|(name, _)| !home.workflows.contains_key(*name) && missing(name, "workflows"))
        .map(|(name, workflow)| (name.clone(), Arc::clone(workflow)))
        .collect();
    let schedules: Vec<_> = before
        .schedules
        .iter()
        .filter(|(name, _)| !home.schedules.contains_key(*name) && missing(name, "schedules"))
        .map(|(name, schedule)| (name.clone(), Arc::clone(schedule)))
        .collect();
    home.schedules.extend(schedules);
    home.agents.extend(agents);
    home.workflows.extend(workflows);
}
