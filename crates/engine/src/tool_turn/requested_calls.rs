//! Checks of requested calls: the tool, its arguments and its approval.

use std::num::NonZeroU32;
use std::sync::Arc;

use polity_definition::LlmAgent;
use polity_model::message::ToolCall;
use polity_model::tool::ToolName;
use polity_model::trace::shorten;
use serde_json::{Map, Value};

use crate::driver::{AskedArguments, AskedTool, ToolSpec, Toolbox};

/// The number of tools named to a model that requested an unknown one.
const NAMED_TOOLS_MAX: usize = 40;

/// The number of characters of unreadable arguments repeated to the model.
const UNREADABLE_CHARACTERS_MAX: usize = 200;

/// The ruling on a requested call.
pub(crate) enum CallRuling {
    /// The call is made.
    Call(Arc<ToolSpec>),
    /// The call waits for a person's approval.
    Hold(ToolName),
    /// The call is refused, with the reason for the model.
    Refuse(String),
}

/// Rules on one call.
pub(crate) fn check_call(asked: &AskedTool, toolbox: &Toolbox, llm: &LlmAgent) -> CallRuling {
    let tool = match find(asked, toolbox) {
        Ok(tool) => tool,
        Err(message) => return CallRuling::Refuse(message),
    };
    match &asked.arguments {
        AskedArguments::Object(arguments) => check_known_call(tool, arguments, llm),
        AskedArguments::Unreadable { text, reason } => {
            CallRuling::Refuse(unreadable_arguments(tool.name.as_ref(), text, reason))
        }
    }
}

/// Rules again on a call that the journal has.
pub(crate) fn check_recorded_call(
    call: &ToolCall,
    toolbox: &Toolbox,
    llm: &LlmAgent,
) -> CallRuling {
    let asked = AskedTool {
        server: call.server.clone(),
        tool: call.tool.clone(),
        arguments: AskedArguments::Object(call.arguments.clone()),
        signature: None,
    };
    check_call(&asked, toolbox, llm)
}

/// The error about arguments that are not a JSON object, if they are not.
pub(crate) fn find_unreadable(asked: &AskedTool) -> Option<String> {
    match &asked.arguments {
        AskedArguments::Object(_) => None,
        AskedArguments::Unreadable { text, reason } => {
            Some(unreadable_arguments(&spelled(asked), text, reason))
        }
    }
}

fn unreadable_arguments(name: &str, text: &str, reason: &str) -> String {
    let text = shorten(text, UNREADABLE_CHARACTERS_MAX);
    format!("error: the arguments of {name} are not a JSON object ({reason}): {text}")
}

fn check_known_call(
    tool: &Arc<ToolSpec>,
    arguments: &Map<String, Value>,
    llm: &LlmAgent,
) -> CallRuling {
    let name = &tool.name;
    if let Err(problem) = tool.check_arguments(arguments) {
        return CallRuling::Refuse(format!(
            "error: the arguments of {name} do not fit its input schema, and it was not called: \
             {problem}"
        ));
    }
    if llm.approval.iter().any(|pattern| pattern.covers(name)) {
        return CallRuling::Hold(name.clone());
    }
    CallRuling::Call(Arc::clone(tool))
}

/// A limit on the sub-agents that one reply may call.
pub(crate) struct FanOutLimit {
    max: NonZeroU32,
    called: u32,
}

impl FanOutLimit {
    pub(crate) fn new(max: NonZeroU32) -> Self {
        Self { max, called: 0 }
    }

    /// Refuses the call if it would be one sub-agent too many.
    pub(crate) fn limit(&mut self, ruling: CallRuling) -> CallRuling {
        let is_sub_agent = match &ruling {
            CallRuling::Call(tool) => tool.name.sub_agent().is_some(),
            CallRuling::Hold(tool) => tool.sub_agent().is_some(),
            CallRuling::Refuse(_) => false,
        };
        if is_sub_agent && self.called >= self.max.get() {
            return CallRuling::Refuse(format!(
                "error: at most {} sub-agents are called at once (limits.sub_agent_fan_out); ask \
                 for this one again",
                self.max
            ));
        }
        self.called += u32::from(is_sub_agent);
        ruling
    }
}

/// Finds the requested tool. A wrong or missing server name is corrected if only one server has the
/// tool.
fn find<'t>(asked: &AskedTool, toolbox: &'t Toolbox) -> Result<&'t Arc<ToolSpec>, String> {
    let offered = toolbox.offered();
    let exact = offered
        .iter()
        .find(|tool| tool.name.server() == asked.server && tool.name.tool() == asked.tool);
    if let Some(tool) = exact {
        return Ok(tool);
    }
    let mut same_name = offered.iter().filter(|tool| tool.name.tool() == asked.tool);
    match (same_name.next(), same_name.next()) {
        (Some(only), None) => Ok(only),
        (Some(_), Some(_)) => {
            let names = names(offered.iter().filter(|tool| tool.name.tool() == asked.tool));
            Err(format!(
                "error: {} is not one of your tools, and several servers have a tool of that \
                 name: {names}",
                spelled(asked)
            ))
        }
        (None, _) if offered.is_empty() => {
            Err(format!("error: there is no tool {}; you have no tools", spelled(asked)))
        }
        (None, _) => Err(format!(
            "error: there is no tool {}; your tools are {}",
            spelled(asked),
            names(offered.iter())
        )),
    }
}

fn spelled(asked: &AskedTool) -> String {
    match asked.server.as_str() {
        "" => asked.tool.clone(),
        server => format!("{server}/{}", asked.tool),
    }
}

fn names<'t>(tools: impl Iterator<Item = &'t Arc<ToolSpec>>) -> String {
    let mut named: Vec<_> = tools.map(|tool| tool.name.to_string()).collect();
    let more = named.len().saturating_sub(NAMED_TOOLS_MAX);
    named.truncate(NAMED_TOOLS_MAX);
    if more > 0 {
        named.push(format!("and {more} more"));
    }
    named.join(", ")
}
