//! The trace context of calls, so that models, tools, programs and other agents continue the trace of
//! the task that calls them.

use std::sync::Arc;

use polity_model::ids::{TaskId, ToolCallId};

use super::BoxFuture;

/// A step of a task during which a driver makes a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TracedStep {
    /// The task.
    pub task: TaskId,
    /// The kind of step.
    pub kind: TracedStepKind,
}

/// The kinds of steps that are spans of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TracedStepKind {
    /// The work of a CLI agent or a remote agent.
    Work,
    /// A model call.
    ModelCall,
    /// A tool call.
    ToolCall(ToolCallId),
}

/// Names the trace contexts of steps, if traces are exported.
pub trait TraceContexts: Send + Sync {
    /// The `traceparent` of a step that has begun, as W3C Trace Context defines it.
    fn traceparent(&self, step: TracedStep) -> BoxFuture<'_, Option<Arc<str>>>;
}

tokio::task_local! {
    static TRACEPARENT: Option<Arc<str>>;
}

/// The `traceparent` of the step that the current future belongs to.
pub fn current_traceparent() -> Option<Arc<str>> {
    TRACEPARENT.try_with(Clone::clone).ok().flatten()
}

/// Makes a call within a step. Without trace contexts, it only makes the call.
pub(crate) async fn traced<F: Future>(
    contexts: Option<&Arc<dyn TraceContexts>>,
    step: TracedStep,
    call: F,
) -> F::Output {
    match contexts {
        Some(contexts) => TRACEPARENT.scope(contexts.traceparent(step).await, call).await,
        None => call.await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct OneContext;

    impl TraceContexts for OneContext {
        fn traceparent(&self, step: TracedStep) -> BoxFuture<'_, Option<Arc<str>>> {
            Box::pin(async move { Some(step.task.to_string().into()) })
        }
    }

    #[tokio::test]
    async fn traceparent_is_there_only_during_a_traced_step() {
        let task = TaskId::from_random_bytes([1; 16]);
        let step = TracedStep { task, kind: TracedStepKind::Work };
        let contexts: Arc<dyn TraceContexts> = Arc::new(OneContext);
        let call = async || current_traceparent();
        assert_eq!(traced(Some(&contexts), step, call()).await, Some(task.to_string().into()));
        assert_eq!(traced(None, step, call()).await, None);
        assert_eq!(current_traceparent(), None);
    }
}
