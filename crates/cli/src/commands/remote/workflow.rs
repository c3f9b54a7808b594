//! `polity workflow` on a server.

use serde_json::{Value, json};

use super::refusal;
use crate::args::{WorkflowCommand, WorkflowGraphArgs};
use crate::client::ServerLink;
use crate::commands::workflow::graph::graph_format;
use crate::commands::workflow::{print_details, print_list};
use crate::error::CliResult;
use crate::exit::ExitStatus;
use crate::terminal::{print_exact, print_json};

pub(super) async fn workflow(link: &ServerLink, command: &WorkflowCommand) -> CliResult {
    let client = &link.client;
    match command {
        WorkflowCommand::List => {
            let workflows: Vec<Value> = client.list(&["workflows"], &[], None).await?;
            print_list(
                &link.options,
                &workflows,
                &format!("no workflows at {}", client.shown_url()),
            )
        }
        WorkflowCommand::Show(args) => {
            print_details(&link.options, &client.get(&["workflows", &args.name], &[]).await?)
        }
        WorkflowCommand::Graph(args) => graph(link, args).await,
    }
}

async fn graph(link: &ServerLink, args: &WorkflowGraphArgs) -> CliResult {
    let (None, Some(name)) = (&args.task, &args.name) else {
        return Err(refusal("workflow graph --task"));
    };
    let format = graph_format(args.format).as_str();
    let query = [("format", format.to_owned())];
    let picture = link.client.get_text(&["workflows", name, "graph"], &query).await?;
    if link.options.json {
        print_json(&json!({"name": name, "format": format, "graph": picture}))?;
    } else {
        print_exact(&picture)?;
    }
    Ok(ExitStatus::Done)
}
