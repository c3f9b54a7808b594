//! A retry of a failed agent after many turns: it costs as much as reading the task once.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use polity_definition::TokenPrice;
use polity_engine::driver::{
    AnswerEnding, AskedArguments, AskedTool, BoxFuture, ModelDriver, ModelFailure, ModelReply,
    ModelRequest, NotReady,
};
use polity_engine::pinned::PinnedAgent;
use polity_engine::runtime::{RetryRequest, load_task};
use polity_model::event::RaisedLimits;
use polity_model::failure::{AttemptFailure, ErrorCategory};
use polity_model::machine::task::TaskStatus;
use polity_model::usage::Usage;
use polity_testkit::bench::{cpu, figure};
use serde_json::json;

use crate::harness::{BenchRuntime, agent, block_on, folder};
use crate::long_conversation::CountingTool;
use crate::measure::median;

/// The number of turns before the failure.
const TURNS: usize = 400;

/// The largest ratio of a retry's cost to that of reading the task.
const RATIO_MAX: f64 = 1.5;

pub(crate) fn measure(quick: bool) {
    let tasks = if quick { 1 } else { 12 };
    let folder = folder();
    let models = Arc::new(BreakingModel::default());
    let (mut reads, mut retries) = (Vec::new(), Vec::new());
    block_on(async {
        let shared_models = Arc::clone(&models) as Arc<dyn ModelDriver>;
        let runtime =
            BenchRuntime::new(folder.path(), shared_models, Arc::new(CountingTool::new()), 1);
        // The endpoint is never called.
        let agent = agent("http://127.0.0.1:1", 0);
        for number in 0..tasks {
            let mut failed = runtime.create(&agent, &format!("conversation {number}")).await;
            assert_eq!(failed.wait().await.unwrap(), TaskStatus::Failed);
            let before = cpu();
            let loaded = load_task(&*runtime.store, failed.id).await.unwrap();
            reads.push(cpu().saturating_sub(before));
            assert_eq!(loaded.state.iterations() as usize, TURNS);
            drop(loaded);
            let before = cpu();
            let request = RetryRequest {
                request: None,
                task: failed.id,
                raised: RaisedLimits::default(),
                definitions: None,
            };
            let mut handle = runtime.runtime.retry(request).await.unwrap();
            assert_eq!(handle.wait().await.unwrap(), TaskStatus::Completed);
            let called = models.calls.lock().unwrap().last().copied().unwrap_or_default();
            retries.push(called.saturating_sub(before));
        }
    });
    let (read, retry) = (median(&mut reads), median(&mut retries));
    let ratio = retry.as_secs_f64() / read.as_secs_f64();
    figure(
        &format!("a retry of a failed agent of {TURNS} turns, until it calls its model"),
        &format!(
            "{:.1} ms of our CPU, {ratio:.2} times reading the task",
            retry.as_secs_f64() * 1e3
        ),
        "reads the task once (≤ 1.5 times)",
        ratio <= RATIO_MAX,
    );
}

/// A model that calls a tool in each turn, fails after the last, and answers the call after that. It
/// records the processor time of each call.
#[derive(Default)]
struct BreakingModel {
    calls: Mutex<Vec<Duration>>,
}

impl ModelDriver for BreakingModel {
    fn ready(&self, _pinned: &PinnedAgent) -> Result<(), NotReady> {
        Ok(())
    }

    fn price(&self, _pinned: &PinnedAgent) -> Option<TokenPrice> {
        Some(TokenPrice::FREE)
    }

    fn call<'a>(
        &'a self,
        _request: ModelRequest<'a>,
    ) -> BoxFuture<'a, Result<ModelReply, ModelFailure>> {
        let mut calls = self.calls.lock().unwrap();
        calls.push(cpu());
        let number = (calls.len() - 1) % (TURNS + 2);
        let arguments = json!({"who": "no one", "n": calls.len()});
        let asked = AskedTool {
            server: "notes".to_owned(),
            tool: "note".to_owned(),
            arguments: AskedArguments::Object(arguments.as_object().unwrap().clone()),
            signature: None,
        };
        Box::pin(async move {
            if number == TURNS {
                let (category, message) = (ErrorCategory::Permanent, "broken".to_owned());
                return Err(ModelFailure::new(AttemptFailure { category, message }));
            }
            let is_last = number > TURNS;
            Ok(ModelReply {
                content: if is_last { "done" } else { "Let me note that." }.to_owned(),
                tool_calls: if is_last { Vec::new() } else { vec![asked] },
                usage: Usage { input_tokens: 3, output_tokens: 1, ..Usage::default() },
                ending: AnswerEnding::Complete,
                stop_reason: None,
                mark: None,
            })
        })
    }
}
