//! Fake programs for the scripts of workflows.

use polity_engine::driver::{
    LostRun, ProgramPreparation, ProgramRunner, RunCleanup, RunDedup, RunOutcome, RunOverrides,
    RunRequest,
};
use polity_model::run::{ProcessExit, RunReport};

use crate::prelude::*;
use crate::workflow_harness::WorkflowTools;

/// Runs scripts. Without an answer of its own, a script records its argument `text` and returns it.
pub(crate) struct WorkflowPrograms {
    tools: Arc<WorkflowTools>,
    /// The answers by the label of the script.
    answers: Mutex<BTreeMap<String, RunEnd>>,
    /// The input and the pinned text of each run.
    runs: Mutex<Vec<(Value, Option<String>)>>,
}

impl WorkflowPrograms {
    pub(crate) fn new(tools: &Arc<WorkflowTools>) -> Self {
        Self { tools: Arc::clone(tools), answers: Mutex::default(), runs: Mutex::default() }
    }

    /// Sets the end of each run of a script.
    pub(crate) fn end(&self, script: &str, end: RunEnd) {
        self.answers.lock().unwrap().insert(script.to_owned(), end);
    }

    /// Sets the output of a script.
    pub(crate) fn print(&self, script: &str, output: &Value) {
        self.end(script, RunEnd::Answered(output.to_string()));
    }

    /// The inputs of the runs and the scripts that they ran, in order.
    pub(crate) fn runs(&self) -> Vec<(Value, Option<String>)> {
        self.runs.lock().unwrap().clone()
    }
}

/// The text that a script is given to record.
pub(crate) fn text_of_script(input: &str) -> Option<String> {
    let input: Value = serde_json::from_str(input).ok()?;
    Some(input.get("arguments")?.get("text")?.as_str()?.to_owned())
}

/// The output of a script that records a text, which begins with the name of its node.
pub(crate) fn output_of_script(text: &str) -> String {
    let node = text.split(' ').next().unwrap_or_default();
    let updates = json!({ format!("metadata.s_{node}"): text, "messages": [format!("by {text}")] });
    json!({ "output": [text], "state_updates": updates, "routing_key": "k0" }).to_string()
}

impl ProgramPreparation for WorkflowPrograms {
    fn ready(&self, _: &AgentDefinition, _: &RunOverrides) -> Result<(), NotReady> {
        Ok(())
    }

    fn slot_pool(&self, agent: &AgentDefinition, _: &RunOverrides) -> String {
        agent.name.to_string()
    }

    fn working_directory(&self, _: &AgentDefinition, _: &RunOverrides) -> String {
        "/home".to_owned()
    }

    fn mask_secrets(&self, _: &AgentDefinition, _: &RunOverrides, values: Value) -> Value {
        values
    }
}

impl RunDedup for WorkflowPrograms {}

impl ProgramRunner for WorkflowPrograms {
    fn run<'a>(&'a self, request: RunRequest<'a>) -> BoxFuture<'a, RunOutcome> {
        Box::pin(async move {
            let script = request.agent.program().unwrap().script.as_ref().unwrap();
            let input = serde_json::from_str(request.input).unwrap();
            let pinned = request.script.map(|script| script.content.clone());
            self.runs.lock().unwrap().push((input, pinned));
            let known = self.answers.lock().unwrap().get(script.label()).cloned();
            let end = known.unwrap_or_else(|| {
                let text = text_of_script(request.input).unwrap();
                self.tools.note(text.clone());
                RunEnd::Answered(output_of_script(&text))
            });
            request.progress.started(7);
            let mut stop = request.stop.clone();
            let end = tokio::select! {
                () = sleep(30) => end,
                _ = stop.wait_for(|stop| *stop) => RunEnd::Stopped,
            };
            let (process_id, exit) = (Some(7), Some(ProcessExit::Code(0)));
            let report = RunReport { process_id, exit, ..RunReport::default() };
            RunOutcome { end, report, usage: Usage::default() }
        })
    }

    fn recover<'a>(&'a self, _: LostRun<'a>) -> BoxFuture<'a, Option<RunOutcome>> {
        Box::pin(async { None })
    }
}

impl RunCleanup for WorkflowPrograms {}
