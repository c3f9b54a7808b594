//! Runs scripts: their input, and the parts of their output.

use polity_definition::{EvaluationScope, ScriptProgram, WorkflowNode, WorkflowNodeKind};
use polity_model::event::NodeOutput;
use polity_model::failure::ErrorCode;
use polity_model::ids::ToolCallId;
use polity_model::message::MessageHistory;
use polity_model::session::TASK_DESCRIPTION_ARGUMENT;
use polity_model::tool::ToolName;
use serde_json::{Map, Value, json};

use super::begin::{NodeError, cannot_evaluate};
use super::{FinishedNode, LateFailure, WorkflowDecision};
use crate::decide::CommandRejection;
use crate::script_output::{SCRIPT_ARGUMENTS, ScriptOutput};
use crate::state::{WorkflowRun, check_outputs};

impl WorkflowDecision<'_> {
    /// The call that runs the script of a step. Its input is JSON: the task's input, the State and
    /// the rendered arguments.
    pub(super) fn script_call(
        &self,
        step: &WorkflowNode,
        scope: &EvaluationScope<'_>,
    ) -> Result<(ToolName, Map<String, Value>), NodeError> {
        let WorkflowNodeKind::Script { program, arguments, .. } = &step.kind else {
            let why = format!("{} has no script", step.name);
            return Err((ErrorCode::SystemError, why));
        };
        let arguments = arguments.render(scope).map_err(|error| cannot_evaluate(&error))?;
        let state = self.state_for(step, scope.item.is_some());
        let input = json!({ "input": scope.input, "state": state, SCRIPT_ARGUMENTS: arguments });
        let call =
            Map::from_iter([(TASK_DESCRIPTION_ARGUMENT.to_owned(), input.to_string().into())]);
        Ok((ToolName::of_sub_agent(&program.agent_name()), call))
    }

    /// The State that a script reads: all of it, or the parts that its node declares as inputs. The
    /// script of a map reads only what the map declares, so that the State is not copied for every
    /// item.
    fn state_for(&self, step: &WorkflowNode, is_item: bool) -> Value {
        let mut state = self.run.state();
        // The step of a map has the name of the map.
        let node = self.run.plan().number(&step.name);
        let inputs = node.map_or(&[][..], |node| &self.run.plan().nodes()[node].node.inputs);
        if is_item || !inputs.is_empty() {
            state.messages = MessageHistory::default();
            state.metadata.retain(|name, _| inputs.iter().any(|input| input.as_str() == name));
        }
        // Times and ids of messages would make every input another one, also of a replayed run.
        let messages = state.messages.messages().iter();
        let messages: Vec<Value> = messages
            .map(|message| json!({ "role": message.role().label(), "content": message.content() }))
            .collect();
        json!({
            "messages": messages,
            "next_action": state.next_action,
            "current_agent": state.current_agent,
            "routing_key": state.routing_key,
            "metadata": state.metadata,
            "error": state.error,
        })
    }

    /// Checks that a script with several declared outputs has them all.
    pub(super) fn check_script_outputs(
        &self,
        node: usize,
        script: &ScriptOutput,
    ) -> Result<(), String> {
        check_declared(&self.run.plan().nodes()[node].node, script)
    }

    /// Finishes a node whose call was answered. `stored` is the place of the answer in the journal.
    pub(super) fn finish_answered(&mut self, node: usize, content: &str, stored: NodeOutput) {
        let WorkflowNodeKind::Script { program, .. } = &self.run.plan().nodes()[node].node.kind
        else {
            return self.finish(FinishedNode::answered(node, content, stored));
        };
        match ScriptOutput::parse(content) {
            Ok(script) => self.finish(FinishedNode {
                node,
                output: &script.text,
                stored: script.stored(stored),
                routing_key: script.routing_key.clone(),
                answer: None,
                script: Some(&script),
            }),
            Err(why) => {
                let failure = LateFailure { edge: None, output: NodeOutput::Answer };
                let how = match program {
                    ScriptProgram::File(_) => {
                        "; correct the script, and retry with --definitions current: a task keeps \
                         its own copy"
                    }
                    ScriptProgram::Command(_) => "",
                };
                let why = format!("{why}{how}");
                self.fail_node_late(node, ErrorCode::InvalidOutput, &why, failure);
            }
        }
    }
}

fn check_declared(node: &WorkflowNode, script: &ScriptOutput) -> Result<(), String> {
    let declared = &node.outputs;
    if declared.len() < 2 {
        return Ok(());
    }
    let missing = declared.iter().find(|output| script.value.get(output.name.as_str()).is_none());
    missing.map_or(Ok(()), |output| {
        let name = &output.name;
        Err(format!("the output of the script has no field \"{name}\", which the step declares"))
    })
}

/// Checks that the step of a call can take a result that a person supplies.
pub(crate) fn check_result(
    run: &WorkflowRun,
    call: ToolCallId,
    result: &str,
) -> Result<(), CommandRejection> {
    let Some((node, step)) = run.node_of(call).zip(run.step_of(call)) else { return Ok(()) };
    let is_script = matches!(step.kind, WorkflowNodeKind::Script { .. });
    let checked = match (is_script, run.item_of(call)) {
        (true, Some(_)) => ScriptOutput::parse(result).map(drop),
        (true, None) => {
            ScriptOutput::parse(result).and_then(|script| check_declared(step, &script))
        }
        // The outputs of a map are those of all its items.
        (false, Some(_)) => Ok(()),
        (false, None) => check_outputs(step, result),
    };
    let node = run.plan().nodes()[node].name().clone();
    checked.map_err(|problem| CommandRejection::UnfitResult { node, problem })
}
