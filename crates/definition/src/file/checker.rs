//! Collects the problems of one file, with the position of each value.

use std::fmt::Display;

use polity_masking::{contains_token, is_literal_secret};
use polity_model::name::Name;

use crate::file::PINNED_FILE;
use crate::file::path::{FieldPath, PathSegment};
use crate::file::problem::{DefinitionProblem, FindingText, SourcePosition};
use crate::file::source::{SourceNode, SourceNodeKind};
use crate::workflow::ScriptPath;

/// One file while its rules are checked.
#[derive(Debug)]
pub(crate) struct FileChecker {
    file: String,
    tree: SourceNode,
    problems: Vec<DefinitionProblem>,
    references: Vec<(FieldPath, NameReference)>,
}

/// A name that another file must define.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NameReference {
    Agent(Name),
    Workflow(Name),
    AgentOrWorkflow(Name),
    Script(Name),
    /// The script of a workflow's node.
    ScriptFile(ScriptPath),
    /// An MCP server, named as part of a tool.
    Server(String),
}

impl FileChecker {
    /// Starts with the problems of parsing and decoding. Invalid values are pruned from `tree`.
    pub(crate) fn new(file: &str, tree: SourceNode, problems: Vec<DefinitionProblem>) -> Self {
        Self { file: file.to_owned(), tree, problems, references: Vec::new() }
    }

    /// All problems.
    pub(crate) fn into_problems(self) -> Vec<DefinitionProblem> {
        self.problems
    }

    /// Records that the value at `path` names something of another file. It is checked once all
    /// files are read.
    pub(crate) fn refer(&mut self, path: FieldPath, reference: NameReference) {
        self.references.push((path, reference));
    }

    /// Takes the references of the file, with their paths.
    pub(crate) fn take_references(&mut self) -> Vec<(FieldPath, NameReference)> {
        std::mem::take(&mut self.references)
    }

    /// Records a problem of the value at `path`, or of its container if it is absent.
    pub(crate) fn report(&mut self, path: &FieldPath, finding: FindingText) {
        let problem = self.problem(path, finding);
        self.problems.push(problem);
    }

    /// The same without recording it: for problems that depend on other files.
    pub(crate) fn problem(&self, path: &FieldPath, mut finding: FindingText) -> DefinitionProblem {
        let place = self.place(path);
        // Rules count only the decoded items; readers of the file count all.
        let counted = path.to_string();
        if counted != place.field {
            finding.message = finding.message.replace(&counted, &place.field);
        }
        finding.at(&self.file, &place)
    }

    /// Records a problem of a mapping's entry as a whole, which is shown at its key.
    pub(crate) fn report_key(&mut self, path: &FieldPath, finding: FindingText) {
        let mut place = self.place(path);
        if let Some((last, container)) = path.0.split_last()
            && let Some(container) = self.node(&FieldPath(container.to_vec()))
            && let Some(entry) = step(container, last)
        {
            (place.line, place.column) = entry.key_place;
        }
        self.problems.push(finding.at(&self.file, &place));
    }

    /// True for a definition that a task has pinned.
    pub(crate) fn is_pinned_definition(&self) -> bool {
        self.file == PINNED_FILE
    }

    /// True if there are no problems so far.
    pub(crate) fn is_clean(&self) -> bool {
        self.problems.is_empty()
    }

    /// Requires a field. An invalid one is reported already.
    pub(crate) fn require<T>(&mut self, path: &FieldPath, value: Option<T>) -> Option<T> {
        if value.is_none() && !self.is_there(path) {
            self.report(path, FindingText::new(format!("missing field \"{path}\"")));
        }
        value
    }

    /// Requires a field under a condition, which the message names.
    pub(crate) fn require_when<T>(
        &mut self,
        path: &FieldPath,
        value: Option<T>,
        when: &str,
    ) -> Option<T> {
        if value.is_none() && !self.is_there(path) {
            let message = format!("missing field \"{path}\", which is needed {when}");
            self.report(path, FindingText::new(message));
        }
        value
    }

    /// Refuses a field that has no meaning here.
    pub(crate) fn refuse_unless(&mut self, allowed: bool, path: &FieldPath, when: &str) {
        if !allowed && self.is_there(path) {
            let message = format!("\"{path}\" has a meaning only {when}");
            self.report(path, FindingText::new(message));
        }
    }

    /// True for a definition that a task has pinned. It must stay readable if a rule is added later.
    pub(crate) fn is_pinned(&self) -> bool {
        self.file == PINNED_FILE
    }

    /// Refuses a secret that is written in the file. The message does not repeat it. Definitions
    /// that are pinned already stay readable.
    pub(crate) fn refuse_secret(&mut self, path: &FieldPath, name: &str, value: &str) {
        if !self.is_pinned() && is_literal_secret(name, value) {
            let message = format!(
                "{path}: the value looks like a secret, which may not be written in a file: put it \
                 into an environment variable and write \"${{{name}}}\" here"
            );
            self.report(path, FindingText::new(message));
        }
    }

    /// Refuses a secret in a text that may refer to variables. The message does not repeat it.
    pub(crate) fn refuse_secret_part(&mut self, path: &FieldPath, text: &str) {
        if !self.is_pinned() && is_literal_secret("", text) {
            let message = format!(
                "{path}: a part of it looks like a secret, which may not be written in a file: put \
                 it into an environment variable and write \"${{NAME}}\" in its place"
            );
            self.report(path, FindingText::new(message));
        }
    }

    /// Refuses a secret in a prompt, which the model and everyone who reads the file would see.
    pub(crate) fn refuse_secret_in_prompt(&mut self, path: &FieldPath, prompt: &str) {
        if !self.is_pinned() && contains_token(prompt) {
            let message = format!(
                "{path}: the prompt contains a secret: remove it, and give it to a tool that needs \
                 it in an environment variable"
            );
            self.report(path, FindingText::new(message));
        }
    }

    /// Refuses a secret that is written in an argument. The message does not repeat it.
    pub(crate) fn refuse_secret_argument(&mut self, path: &FieldPath, argument: &str, field: &str) {
        if !self.is_pinned() && contains_token(argument) {
            let message = format!(
                "{path}: the argument looks like a secret, and anyone on the machine can read \
                 arguments: put it into an environment variable and name that in {field}"
            );
            self.report(path, FindingText::new(message));
        }
    }

    /// Reports every repeated item of a list.
    pub(crate) fn refuse_repeats<T: PartialEq + Display>(&mut self, path: &FieldPath, items: &[T]) {
        for (index, item) in items.iter().enumerate() {
            if items[..index].contains(item) {
                let message = format!("{path}: \"{item}\" is listed twice");
                self.report(&path.index(index), FindingText::new(message).found(item.to_string()));
            }
        }
    }

    /// True if the file has a value at `path`, valid or not. Values inside a pruned value count as
    /// present.
    pub(crate) fn is_there(&self, path: &FieldPath) -> bool {
        match self.node(path) {
            Some(node) => node.kind != SourceNodeKind::Null,
            None => self.is_pruned(path),
        }
    }

    /// True if the value at `path`, or one that contains it, was already reported.
    pub(crate) fn is_pruned(&self, path: &FieldPath) -> bool {
        let mut node = &self.tree;
        for segment in &path.0 {
            let Some(next) = step(node, segment) else { break };
            node = next.node;
        }
        node.kind == SourceNodeKind::Pruned
    }

    /// True if the file has an empty list or mapping at `path`.
    pub(crate) fn is_empty(&self, path: &FieldPath) -> bool {
        self.node(path).is_some_and(|node| match &node.kind {
            SourceNodeKind::Sequence(items) => items.is_empty(),
            SourceNodeKind::Mapping(entries) => entries.is_empty(),
            _ => false,
        })
    }

    /// True if some item of the list at `path` could not be decoded.
    pub(crate) fn has_wrong_items(&self, path: &FieldPath) -> bool {
        self.node(path).is_some_and(|node| match &node.kind {
            SourceNodeKind::Sequence(items) => {
                items.iter().any(|item| item.kind == SourceNodeKind::Pruned)
            }
            kind => *kind == SourceNodeKind::Pruned,
        })
    }

    /// The text at `path`, if there is one and it is not wrong.
    pub(crate) fn text(&self, path: &FieldPath) -> Option<&str> {
        let SourceNodeKind::Text(text) = &self.node(path)?.kind else { return None };
        Some(text)
    }

    /// The path to an entry of the mapping, or to an item of the list, at `path`.
    pub(crate) fn step_into(&self, path: &FieldPath, step: &str) -> FieldPath {
        match step.parse() {
            Ok(index) if self.is_list(path) => path.index(index),
            Ok(_) | Err(_) => path.field(step),
        }
    }

    /// True if there is a list at `path`.
    pub(crate) fn is_list(&self, path: &FieldPath) -> bool {
        self.node(path).is_some_and(|node| matches!(node.kind, SourceNodeKind::Sequence(_)))
    }

    fn node(&self, path: &FieldPath) -> Option<&SourceNode> {
        path.0.iter().try_fold(&self.tree, |node, segment| Some(step(node, segment)?.node))
    }

    /// The position of the value at `path`, or of the closest value around it.
    pub(crate) fn place(&self, path: &FieldPath) -> SourcePosition {
        let mut node = &self.tree;
        let (mut line, mut column) = (node.line, node.column);
        let mut shown = path.clone();
        for (depth, segment) in path.0.iter().enumerate() {
            let Some(next) = step(node, segment) else { break };
            shown.0[depth] = next.as_written;
            node = next.node;
            // An omitted value has no position of its own.
            let left_out = node.kind == SourceNodeKind::Null;
            (line, column) = if left_out { next.key_place } else { (node.line, node.column) };
        }
        SourcePosition { line, column, field: shown.to_string() }
    }
}

/// One step into the tree.
struct TreeStep<'t> {
    /// The step as written, which counts all items of a list; checks count only the readable ones.
    as_written: PathSegment,
    /// The position of the key; of the node itself for an item of a list.
    key_place: (u32, u32),
    node: &'t SourceNode,
}

fn step<'t>(node: &'t SourceNode, segment: &PathSegment) -> Option<TreeStep<'t>> {
    match (&node.kind, segment) {
        (SourceNodeKind::Mapping(_), PathSegment::Field(name)) => {
            let (key, node) = node.entry(name)?;
            Some(TreeStep { as_written: segment.clone(), key_place: (key.line, key.column), node })
        }
        (SourceNodeKind::Sequence(items), PathSegment::Index(index)) => {
            let mut readable =
                items.iter().enumerate().filter(|(_, item)| item.kind != SourceNodeKind::Pruned);
            let (index, node) = readable.nth(*index)?;
            let key_place = (node.line, node.column);
            Some(TreeStep { as_written: PathSegment::Index(index), key_place, node })
        }
        _ => None,
    }
}
