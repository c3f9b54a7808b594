//! `polity execution` on a server.

use polity_model::execution::AgentExecution;
use polity_model::execution::view::ExecutionView;
use serde_json::json;

use super::lookup::find_execution;
use super::task::print_cancelled;
use crate::args::{ExecutionArgs, ExecutionCommand, ExecutionListArgs};
use crate::client::ServerLink;
use crate::commands::execution::{print_details, print_list};
use crate::error::CliResult;

pub(super) async fn execution(link: &ServerLink, command: &ExecutionCommand) -> CliResult {
    match command {
        ExecutionCommand::List(args) => list(link, args).await,
        ExecutionCommand::Show(args) => show(link, args).await,
        ExecutionCommand::Cancel(args) => {
            let id = find_execution(&link.client, &args.id).await?.to_string();
            let task = link.client.post(&["executions", &id, "cancel"], &json!({})).await?;
            print_cancelled(link, task).await
        }
    }
}

async fn list(link: &ServerLink, args: &ExecutionListArgs) -> CliResult {
    let mut query = vec![("active", args.active.to_string())];
    query.extend(args.agent.clone().map(|agent| ("agent", agent)));
    let views: Vec<ExecutionView> =
        link.client.list(&["executions"], &query, Some(args.limit)).await?;
    print_list(&link.options, &views)
}

async fn show(link: &ServerLink, args: &ExecutionArgs) -> CliResult {
    let id = find_execution(&link.client, &args.id).await?.to_string();
    let view: ExecutionView = link.client.get(&["executions", &id], &[]).await?;
    let record: AgentExecution = link.client.get(&["executions", &id, "record"], &[]).await?;
    print_details(&link.options, &view, &record)
}
