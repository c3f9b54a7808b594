//! The options of every command.

use std::path::PathBuf;

use clap::Args as ClapArgs;

use crate::terminal::is_stderr_terminal;

/// The heading of the options that every command has.
const GLOBAL: &str = "Global options";

/// Options of every command.
#[derive(Debug, Clone, ClapArgs)]
#[expect(clippy::struct_excessive_bools, reason = "each of them is a flag")]
pub(crate) struct GlobalOptions {
    /// The home folder. Without it: POLITY_HOME, else the current or nearest parent folder
    /// with a polity.yaml, else ~/.polity
    #[expect(clippy::doc_markdown, reason = "help is read in a terminal")]
    #[arg(long, global = true, value_name = "DIR", help_heading = GLOBAL)]
    pub(crate) home: Option<PathBuf>,
    /// The server that does the work, such as http://127.0.0.1:7070. Without it: POLITY_SERVER, else a
    /// server that serves the home. Its token is in POLITY_TOKEN
    #[expect(clippy::doc_markdown, reason = "help is read in a terminal")]
    #[arg(
        long = "server",
        global = true,
        value_name = "URL",
        conflicts_with = "local",
        help_heading = GLOBAL
    )]
    pub(crate) server_url: Option<String>,
    /// Work in this process, also if a server serves the home
    #[arg(long, global = true, help_heading = GLOBAL)]
    pub(crate) local: bool,
    /// Print one JSON document on stdout, and errors as JSON on stderr
    #[arg(long, global = true, help_heading = GLOBAL)]
    pub(crate) json: bool,
    /// Show every event as it happens
    #[arg(long, short, global = true, conflicts_with = "quiet", help_heading = GLOBAL)]
    pub(crate) verbose: bool,
    /// Show only results and errors
    #[arg(long, short, global = true, help_heading = GLOBAL)]
    pub(crate) quiet: bool,
}

/// The amount of progress output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutputVerbosity {
    /// Only results and errors.
    Quiet,
    /// Steps.
    Normal,
    /// Every event.
    Verbose,
}

impl GlobalOptions {
    /// The amount of progress output.
    pub(crate) fn verbosity(&self) -> OutputVerbosity {
        match (self.quiet, self.verbose) {
            (true, _) => OutputVerbosity::Quiet,
            (false, true) => OutputVerbosity::Verbose,
            (false, false) => OutputVerbosity::Normal,
        }
    }

    /// True if steps are shown on stderr.
    pub(crate) fn shows_progress(&self) -> bool {
        !self.json && self.verbosity() != OutputVerbosity::Quiet
    }

    /// True if every event is shown on stderr.
    pub(crate) fn shows_events(&self) -> bool {
        !self.json && self.verbosity() == OutputVerbosity::Verbose
    }

    /// True if stderr is a terminal on which lines can be rewritten.
    pub(crate) fn is_live(&self) -> bool {
        self.shows_progress() && is_stderr_terminal()
    }
}
