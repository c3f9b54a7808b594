//! The state that every command starts with: the options and the context of the home.

use std::fmt::Display;

use polity_definition::Home;
use polity_host::{HomeFolder, HomeQueries, Host, HostContext, process_environment};
use serde::Serialize;

use crate::args::GlobalOptions;
use crate::error::{CliError, CliResult};
use crate::exit::ExitStatus;
use crate::signals::StopSignals;
use crate::terminal::{note, print_json, say};
use crate::view::{count, style};
use crate::warnings;

/// The options of a command and the context of its home.
#[derive(Debug, Clone)]
pub(crate) struct AppContext {
    /// The options of every command.
    pub(crate) options: GlobalOptions,
    /// The home.
    pub(crate) context: HostContext,
}

impl AppContext {
    /// Finds the home.
    pub(crate) fn new(options: GlobalOptions) -> Result<Self, CliError> {
        let folder = HomeFolder::find(options.home.as_deref())?;
        let shown = options.clone();
        let show = move |warning| warnings::show(&shown, &warning);
        let context = HostContext::new(folder, process_environment(), show);
        Ok(Self { options, context })
    }

    /// The home folder.
    pub(crate) fn folder(&self) -> &HomeFolder {
        self.context.folder()
    }

    /// True for JSON output.
    pub(crate) fn json(&self) -> bool {
        self.options.json
    }

    /// True if steps are shown on stderr.
    pub(crate) fn shows_progress(&self) -> bool {
        self.options.shows_progress()
    }

    /// True if every event is shown on stderr.
    pub(crate) fn shows_events(&self) -> bool {
        self.options.shows_events()
    }

    /// Prints a document: as JSON with `--json`, else as text.
    pub(crate) fn print(
        &self,
        document: &impl Serialize,
        text: impl FnOnce() -> String,
    ) -> CliResult {
        self.options.print(document, text)
    }

    /// Prints a list: as JSON with `--json`, else as a table, or a note that it is empty.
    pub(crate) fn print_list(
        &self,
        list: &[impl Serialize],
        empty: impl Display,
        table: impl FnOnce() -> String,
    ) -> CliResult {
        self.options.print_list(list, empty, table)
    }

    /// Opens the store for reading.
    pub(crate) fn queries(&self) -> Result<HomeQueries, CliError> {
        Ok(self.context.open_queries()?)
    }

    /// Reads the definitions. Fails if the settings are not valid.
    pub(crate) fn definitions(&self) -> Result<Home, CliError> {
        Ok(self.context.definitions()?)
    }

    /// The valid definitions, with a warning about the others.
    pub(crate) fn valid_definitions(&self) -> Result<Home, CliError> {
        let home = self.folder().read()?;
        self.warn_of_problems(home.problems.len());
        Ok(home)
    }

    /// Warns that definitions of the home are not valid.
    pub(crate) fn warn_of_problems(&self, problems: usize) {
        if problems > 0 && self.shows_progress() {
            let problems = count(problems, "problem");
            note!("{}: {problems} in this home, see `polity check`", style::warning("warning"));
        }
    }
}

impl GlobalOptions {
    /// Prints a document: as JSON with `--json`, else as text.
    pub(crate) fn print(
        &self,
        document: &impl Serialize,
        text: impl FnOnce() -> String,
    ) -> CliResult {
        if self.json {
            print_json(document)?;
        } else {
            say!("{}", text())?;
        }
        Ok(ExitStatus::Done)
    }

    /// Prints a list: as JSON with `--json`, else as a table, or a note that it is empty.
    pub(crate) fn print_list(
        &self,
        list: &[impl Serialize],
        empty: impl Display,
        table: impl FnOnce() -> String,
    ) -> CliResult {
        self.print(&list, || if list.is_empty() { empty.to_string() } else { table() })
    }
}

/// Closes a host. Ctrl-C gives up outstanding notifications.
pub(crate) async fn close(host: Host) {
    let abort = async {
        match StopSignals::listen() {
            Ok(mut signals) => {
                signals.next().await;
            }
            Err(error) => {
                tracing::debug!(
                    error = error.message(),
                    "cannot listen for signals while notifications are sent"
                );
                std::future::pending::<()>().await;
            }
        }
    };
    host.close(abort).await;
}

/// Runs a future to its end on this thread.
pub(crate) fn block_on<T>(
    future: impl Future<Output = Result<T, CliError>>,
) -> Result<T, CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| CliError::io("start", std::path::Path::new("the runtime"), &error))?;
    runtime.block_on(future)
}
