//! The rules of scripts, maps and compensations.

use polity_model::name::Name;

use super::check::{KnownNodes, check_node};
use super::file::{MapNodeFile, NodeFile, ScriptNodeFile, StepFile, WorkflowNodeFile};
use super::outputs::OutputsFile;
use super::{
    COMPENSATION_PREFIX, ITEM_INDEX, ITEM_NAME_DEFAULT, MAP_PARALLEL_DEFAULT, ScriptProgram,
    WorkflowNode, WorkflowNodeKind,
};
use crate::agent::EmptyOutputPolicy;
use crate::evaluation::scope::ScopeField;
use crate::file::checker::{FileChecker, NameReference};
use crate::file::path::FieldPath;
use crate::file::problem::FindingText;

/// Checks that a script has a file or a command.
pub(super) fn check_script(
    file: ScriptNodeFile,
    path: &FieldPath,
    checker: &mut FileChecker,
) -> Option<WorkflowNodeKind> {
    let (file_path, command_path) = (path.field("file"), path.field("command"));
    match (checker.is_there(&file_path), checker.is_there(&command_path)) {
        (true, true) => {
            let message = format!("{path}: a script has a file or a command, not both");
            checker.report(&command_path, FindingText::new(message));
        }
        (false, false) => {
            let message =
                format!("missing field \"{file_path}\": a script has a file or a command");
            checker.report(&file_path, FindingText::new(message).allowed("file, command"));
        }
        (true, false) | (false, true) => {}
    }
    let program = match (file.file, file.command) {
        (Some(file), None) => ScriptProgram::File(file),
        (None, Some(command)) => ScriptProgram::Command(command),
        (None, None) | (Some(_), Some(_)) => return None,
    };
    if let ScriptProgram::File(file) = &program {
        checker.refer(file_path, NameReference::ScriptFile(file.clone()));
    }
    let envs_path = path.field("envs");
    let envs = file.envs.unwrap_or_default();
    for (name, value) in &envs {
        checker.refuse_secret(&envs_path.field(name.as_str()), name.as_str(), value);
    }
    Some(WorkflowNodeKind::Script {
        program,
        arguments: file.arguments.unwrap_or_default(),
        envs,
        empty_output: file.empty_output.unwrap_or(EmptyOutputPolicy::Fail),
    })
}

/// Checks a map and the step inside it.
pub(super) fn check_map(
    name: &Name,
    file: MapNodeFile,
    path: &FieldPath,
    known: &KnownNodes<'_>,
    checker: &mut FileChecker,
) -> Option<WorkflowNodeKind> {
    let over_path = path.field("over");
    let over = checker.require(&over_path, file.over);
    if let Some(kind) = over.as_ref().and_then(super::ValueSource::never_list) {
        let message = format!(
            "{over_path} gives {kind}, but a list is needed: write one {{{{ expression }}}} that \
             gives a list, or a list"
        );
        checker.report(&over_path, FindingText::new(message));
    }
    let (node_path, workflow_path) = (path.field("node"), path.field("workflow"));
    match (checker.is_there(&node_path), checker.is_there(&workflow_path)) {
        (true, true) => {
            let message = format!("{path}: a map runs a node or a workflow, not both");
            checker.report(&workflow_path, FindingText::new(message));
        }
        (false, false) => {
            let message = format!("missing field \"{node_path}\": a map runs a node or a workflow");
            checker.report(&node_path, FindingText::new(message).allowed("node, workflow"));
        }
        (true, false) | (false, true) => {}
    }
    let item_name = check_item_name(file.r#as, path, checker);
    let (step, step_path) = match (file.node, file.workflow) {
        (Some(step), None) => (NodeFile::from(step), node_path),
        (None, Some(workflow)) => {
            let file = WorkflowNodeFile { workflow: Some(workflow), ..Default::default() };
            (NodeFile::Workflow(file), path.clone())
        }
        (None, None) | (Some(_), Some(_)) => return None,
    };
    let node = check_node(name.clone(), &step_path, step, known, checker);
    Some(WorkflowNodeKind::Map {
        over: over?,
        item_name: item_name?,
        node: Box::new(node?),
        max_parallel: file.max_parallel.unwrap_or(MAP_PARALLEL_DEFAULT),
        on_item_error: file.on_item_error.unwrap_or_default(),
    })
}

/// Checks that a map has at most one output: its list.
pub(super) fn check_map_outputs(
    outputs: Option<&OutputsFile>,
    path: &FieldPath,
    checker: &mut FileChecker,
) {
    if outputs.is_some_and(|outputs| outputs.clone().into_outputs().len() > 1) {
        let path = path.field("outputs");
        let message = format!("{path}: a map has one output, the list: give it one name");
        checker.report(&path, FindingText::new(message));
    }
}

/// Checks that templates can use the name of an item.
fn check_item_name(
    written: Option<Name>,
    path: &FieldPath,
    checker: &mut FileChecker,
) -> Option<Name> {
    let path = path.field("as");
    let Some(name) = written else { return ITEM_NAME_DEFAULT.parse().ok() };
    let text = name.as_str();
    if text == ITEM_INDEX || ScopeField::named(text).is_some() {
        let message =
            format!("{path}: \"{name}\" has a meaning already; give the item another name");
        checker.report(&path, FindingText::new(message).found(text));
    }
    Some(name)
}

/// Checks the step that undoes a node.
pub(super) fn check_compensation(
    node: &Name,
    step: StepFile,
    path: &FieldPath,
    known: &KnownNodes<'_>,
    checker: &mut FileChecker,
) -> Option<WorkflowNode> {
    let path = path.field("compensate");
    if matches!(step, StepFile::Condition(_)) {
        let message = format!("{path}: a condition undoes nothing");
        let allowed = "agent, tool, workflow, script";
        checker.report(&path.field("type"), FindingText::new(message).allowed(allowed));
        return None;
    }
    let name: Name = match format!("{COMPENSATION_PREFIX}{node}").parse() {
        Ok(name) => name,
        Err(error) => {
            let message = format!("{path}: its name would be invalid: {error}");
            checker.report(&path, FindingText::new(message));
            return None;
        }
    };
    if known.names.contains(&name) {
        let message = format!(
            "{path}: there is a node \"{name}\", the name of this compensation: give that node \
             another name"
        );
        checker.report(&path, FindingText::new(message));
        return None;
    }
    check_node(name, &path, step.into(), known, checker)
}
