//! `cargo xtask generate`: files that are written from the source, so that they stay up to date.

mod fields;
mod http_api;
mod terminal;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;

use anyhow::{Context, Result, bail};
use clap::Command;
use polity_diagram::machine_to_mermaid;
use polity_model::machine::Machine;
use polity_model::machine::agent_loop::LoopState;
use polity_model::machine::execution::ExecutionState;
use polity_model::machine::node::NodeState;
use polity_model::machine::schedule::ScheduleStatus;
use polity_model::machine::task::TaskStatus;
use polity_model::machine::tool_call::CallState;

use crate::run::root;

/// Files by their path in the repository.
type GeneratedFiles = BTreeMap<String, String>;

pub(crate) fn generate(check: bool) -> Result<()> {
    eprintln!("── generated files");
    let mut files = GeneratedFiles::new();
    files.insert("docs/reference/state-machines.md".into(), state_machines());
    files.insert("docs/reference/cli.md".into(), command_line());
    files.insert("docs/reference/secret-rules.md".into(), secret_rules());
    let api = polity_server::openapi_document();
    files.insert("docs/reference/http-api.md".into(), http_api::page(&api));
    let document = format!("{}\n", serde_json::to_string_pretty(&api)?);
    files.insert("docs/reference/openapi.json".into(), document);
    let schemas: Vec<_> = polity::schemas().collect();
    for (kind, schema) in &schemas {
        let path = format!("docs/reference/schemas/{kind}.json");
        files.insert(path, format!("{}\n", serde_json::to_string_pretty(schema)?));
    }
    let fields = fields::page(schemas.iter().map(|(kind, schema)| (*kind, schema)));
    files.insert("docs/reference/fields.md".into(), fields);
    files.insert("docs/pictures/terminal.svg".into(), terminal::draw()?);
    let mut stale = Vec::new();
    for (path, content) in &files {
        let target = root().join(path);
        if fs::read_to_string(&target).ok().as_ref() == Some(content) {
            continue;
        }
        if check {
            stale.push(path.as_str());
            continue;
        }
        if let Some(folder) = target.parent() {
            fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        }
        fs::write(&target, content).with_context(|| path.clone())?;
        eprintln!("wrote {path}");
    }
    if stale.is_empty() {
        return Ok(());
    }
    bail!("not up to date: {}; run `cargo xtask generate`", stale.join(", "))
}

const GENERATED: &str = "<!-- Written by `cargo xtask generate`. Edit the source, not this. -->\n";

fn state_machines() -> String {
    let mut text = format!("# State machines\n\n{GENERATED}");
    machine::<TaskStatus>(&mut text, "Tasks");
    machine::<ScheduleStatus>(&mut text, "Schedules");
    machine::<ExecutionState>(&mut text, "Executions");
    text.push_str(
        "\nAn execution is retried only after a transient error, and only while it has retries \
         left.\n",
    );
    machine::<LoopState>(&mut text, "The loop of a task");
    machine::<CallState>(&mut text, "Tool calls");
    machine::<NodeState>(&mut text, "Nodes of a workflow");
    text
}

fn machine<M: Machine>(text: &mut String, title: &str) {
    // Writing to a String cannot fail.
    let _ = write!(text, "\n## {title}\n\n```mermaid\n{}```\n", machine_to_mermaid::<M>());
}

fn secret_rules() -> String {
    let mut text = format!(
        "# Secret rules\n\n{GENERATED}\nThe built-in rules for [masking \
         secrets](../guides/masking-secrets.md). `redaction.disabled_rules` turns one off, and a \
         rule of the same name in `redaction.rules` replaces it.\n\n| rule | secret \
         |\n|---|---|\n"
    );
    for rule in polity_masking::built_in_rules() {
        let description = rule.source().description.as_deref().unwrap_or_default();
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| `{}` | {description} |", rule.id());
    }
    text
}

fn command_line() -> String {
    let mut text = format!("# The command line\n\n{GENERATED}");
    let mut command = polity::command().disable_help_subcommand(true);
    command.build();
    describe(&mut text, &command, "");
    text
}

fn describe(text: &mut String, command: &Command, above: &str) {
    let name = format!("{above}{}", command.get_name());
    let mut shown = command.clone().term_width(100).bin_name(&name);
    let help = shown.render_long_help().to_string();
    let lines: Vec<&str> = help.lines().map(str::trim_end).collect();
    // Writing to a String cannot fail.
    let _ = write!(text, "\n## `{name}`\n\n```text\n{}\n```\n", lines.join("\n").trim_end());
    let below: Vec<&Command> = command.get_subcommands().filter(|sub| !sub.is_hide_set()).collect();
    for sub in below {
        describe(text, sub, &format!("{name} "));
    }
}
