//! `polity doctor`: checks this machine and everything that the home needs.

use polity_host::doctor::{CheckStatus, CheckSubject, DoctorCheck, DoctorReport, examine};
use polity_host::is_home;
use polity_server::running_server;

use crate::app::AppContext;
use crate::error::CliResult;
use crate::exit::ExitStatus;
use crate::terminal::{print_json, say};
use crate::view::{count, style};

pub(crate) async fn doctor(app: &AppContext) -> CliResult {
    let folder = app.folder();
    if app.options.home.is_some() {
        folder.must_exist()?;
    }
    let has_home = is_home(folder.root());
    let mut report = examine(&app.context, has_home).await?;
    if has_home {
        report.add(server(app));
    }
    if app.json() {
        print_json(&report)?;
    } else {
        for line in lines(&report) {
            say!("{line}")?;
        }
    }
    Ok(if report.healthy { ExitStatus::Done } else { ExitStatus::Failed })
}

/// The server of the home, which is optional.
fn server(app: &AppContext) -> DoctorCheck {
    let finding = match running_server(&app.folder().data()) {
        Some(server) => format!("serves this home at {} (process {})", server.url, server.pid),
        None => "none runs; commands perform the work themselves".to_owned(),
    };
    DoctorCheck::ok(CheckSubject::Server, "server", finding)
}

fn lines(report: &DoctorReport) -> Vec<String> {
    let mut lines = Vec::new();
    for subject in CheckSubject::ALL {
        let mut checks = report.checks.iter().filter(|check| check.subject == subject).peekable();
        if checks.peek().is_none() {
            continue;
        }
        lines.push(style::label(heading(subject)));
        for check in checks {
            lines.extend(check_lines(check));
        }
    }
    if report.home.is_none() {
        lines.push("there is no home here, so only the machine was checked".to_owned());
    }
    let faults = report.checks.iter().filter(|check| check.is_fault()).count();
    lines.push(if faults == 0 {
        style::good("everything works that is needed")
    } else {
        style::error(&format!("{} that the home needs", count(faults, "fault")))
    });
    lines
}

/// A check as lines: its result, and what follows from it.
fn check_lines(check: &DoctorCheck) -> Vec<String> {
    let sign = match (check.status, check.needed) {
        (CheckStatus::Ok, _) => style::good("✓"),
        (CheckStatus::Missing, true) => style::error("✗"),
        (CheckStatus::Weaker, _) => style::warning("!"),
        (CheckStatus::Missing, false) => style::dim("-"),
    };
    let mut lines = vec![format!("  {sign} {}: {}", check.name, check.finding)];
    if let Some(meaning) = &check.meaning {
        lines.push(format!("      {meaning}"));
    }
    if let Some(fix) = &check.fix {
        lines.push(format!("      {}: {fix}", style::hint("fix")));
    }
    lines
}

fn heading(subject: CheckSubject) -> &'static str {
    match subject {
        CheckSubject::Machine => "Machine",
        CheckSubject::Programs => "Known command-line agents",
        CheckSubject::Clock => "Clock",
        CheckSubject::Home => "Home",
        CheckSubject::Tools => "MCP servers",
        CheckSubject::Models => "Models",
        CheckSubject::Store => "Store",
        CheckSubject::Server => "Server",
    }
}
