//! `polity agent` on a server.

use polity_host::AgentStatus;
use serde_json::{Value, json};

use super::refusal;
use crate::args::{AgentCommand, AgentStatusArgs};
use crate::client::ServerLink;
use crate::commands::agent::{print_details, print_list, status, toggle};
use crate::error::CliResult;

pub(super) async fn agent(link: &ServerLink, command: &AgentCommand) -> CliResult {
    let (client, options) = (&link.client, &link.options);
    match command {
        AgentCommand::List => {
            let agents: Vec<Value> = client.list(&["agents"], &[], None).await?;
            print_list(options, &agents, &format!("no agents at {}", client.shown_url()))
        }
        AgentCommand::Show(args) => {
            print_details(options, &client.get(&["agents", &args.name], &[]).await?)
        }
        AgentCommand::Status(args) => show_status(link, args).await,
        AgentCommand::Add(_) => Err(refusal("agent add")),
        AgentCommand::Enable(args) => {
            let path = ["agents", &args.name, "enable"];
            toggle::print(options, &client.post(&path, &json!({})).await?)
        }
        AgentCommand::Disable(args) => {
            let path = ["agents", &args.agent.name, "disable"];
            let body = json!({"reason": args.message});
            toggle::print(options, &client.post(&path, &body).await?)
        }
    }
}

async fn show_status(link: &ServerLink, args: &AgentStatusArgs) -> CliResult {
    let client = &link.client;
    let names = if let Some(name) = &args.name {
        vec![name.clone()]
    } else {
        let agents: Vec<Value> = client.list(&["agents"], &[], None).await?;
        let names = agents.iter().filter_map(|agent| agent["name"].as_str());
        names.map(str::to_owned).collect()
    };
    let mut statuses: Vec<AgentStatus> = Vec::with_capacity(names.len());
    for name in &names {
        statuses.push(client.get(&["agents", name, "status"], &[]).await?);
    }
    status::print(&link.options, &statuses, args.name.is_some())
}
