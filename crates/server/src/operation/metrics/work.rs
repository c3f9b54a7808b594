//! Metrics of work, disk and memory, read when they are asked for.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use polity_model::machine::execution::ExecutionState;
use polity_model::machine::task::TaskStatus;
use polity_store::{CommitTimes, ExecutionFilter, TaskFilter};

use super::Histogram;
use crate::http::Problem;
use crate::state::ServerState;

/// Writes the tasks, executions, usage and listeners as they are now.
pub(super) async fn write_work(
    state: &ServerState,
    out: &mut String,
) -> Result<std::fmt::Result, Problem> {
    let queries = state.host.queries();
    let active = [TaskStatus::Pending, TaskStatus::Running, TaskStatus::AwaitingHuman];
    let filter = TaskFilter { statuses: active.to_vec(), ..TaskFilter::default() };
    let rows = queries.task_rows(&filter).await?;
    let open = ExecutionFilter { open_only: true, ..ExecutionFilter::default() };
    let mut executions: BTreeMap<String, u64> = BTreeMap::new();
    // An agent without work is shown as well, so that its series does not end.
    let home = state.home();
    let mut queues: BTreeMap<String, u64> =
        home.agents.keys().map(|name| (name.to_string(), 0)).collect();
    for row in queries.store().execution_rows(&open).await? {
        *executions.entry(row.execution.state.to_string()).or_default() += 1;
        if row.execution.state == ExecutionState::Idle {
            *queues.entry(row.execution.agent.to_string()).or_default() += 1;
        }
    }
    let spending = queries.spending().await?;
    let position = queries.store().last_position().await?;
    let write = |out: &mut String| {
        writeln!(out, "# HELP polity_tasks Tasks that have not ended, by status.")?;
        writeln!(out, "# TYPE polity_tasks gauge")?;
        for status in active {
            let number = rows.iter().filter(|row| row.status == status).count();
            writeln!(out, "polity_tasks{{status=\"{status}\"}} {number}")?;
        }
        writeln!(out, "# HELP polity_executions Executions that have not ended, by state.")?;
        writeln!(out, "# TYPE polity_executions gauge")?;
        for (state, number) in &executions {
            writeln!(out, "polity_executions{{state=\"{state}\"}} {number}")?;
        }
        writeln!(out, "# HELP polity_queue_length Executions that wait for a slot, by agent.")?;
        writeln!(out, "# TYPE polity_queue_length gauge")?;
        for (agent, number) in &queues {
            writeln!(out, "polity_queue_length{{agent=\"{agent}\"}} {number}")?;
        }
        let mut by_agent: BTreeMap<String, polity_model::usage::Usage> = BTreeMap::new();
        for row in &spending {
            *by_agent.entry(row.agent.to_string()).or_default() += row.usage;
        }
        writeln!(out, "# HELP polity_tokens_total Reported tokens of models, by agent.")?;
        writeln!(out, "# TYPE polity_tokens_total counter")?;
        for (agent, usage) in &by_agent {
            let report = usage.report();
            for (kind, tokens) in [("input", report.input_tokens), ("output", report.output_tokens)]
            {
                let tokens = tokens.unwrap_or(0);
                writeln!(out, "polity_tokens_total{{agent=\"{agent}\",kind=\"{kind}\"}} {tokens}")?;
            }
        }
        writeln!(out, "# HELP polity_cost_usd_total Known cost of models, by agent.")?;
        writeln!(out, "# TYPE polity_cost_usd_total counter")?;
        for (agent, usage) in &by_agent {
            let cost = usage.report().cost_usd.unwrap_or(0.0);
            writeln!(out, "polity_cost_usd_total{{agent=\"{agent}\"}} {cost}")?;
        }
        writeln!(out, "# HELP polity_journal_position The newest position of the journal.")?;
        writeln!(out, "# TYPE polity_journal_position counter")?;
        writeln!(out, "polity_journal_position {}", position.0)?;
        writeln!(out, "# HELP polity_event_listeners Open streams of events.")?;
        writeln!(out, "# TYPE polity_event_listeners gauge")?;
        writeln!(out, "polity_event_listeners {}", state.hub.listeners())
    };
    Ok(write(out))
}

/// Writes the times of commits, and the free disk space and memory.
pub(super) fn write_store(state: &ServerState, out: &mut String) -> std::fmt::Result {
    let times = state.host.queries().store().commit_times();
    let name = "polity_journal_commit_duration_seconds";
    writeln!(out, "# HELP {name} The time of a commit until it is durable.")?;
    writeln!(out, "# TYPE {name} histogram")?;
    let CommitTimes { within, count, total } = times;
    Histogram { within, count, total }.write(out, name, "", CommitTimes::bounds())?;
    let free = state.resources.free();
    for (name, help, bytes) in [
        ("polity_free_disk_bytes", "Free space on the disk of the data folder.", free.disk_bytes),
        ("polity_free_memory_bytes", "Free memory.", free.memory_bytes),
    ] {
        if let Some(bytes) = bytes {
            writeln!(out, "# HELP {name} {help}")?;
            writeln!(out, "# TYPE {name} gauge")?;
            writeln!(out, "{name} {bytes}")?;
        }
    }
    Ok(())
}
