//! Begins the work. The queue drives it when the task's turn has come, in the process that owns
//! the task. Resuming a task that had not begun comes here too.

use polity_model::event::{Event, ExecutionChange};
use polity_model::ids::ExecutionId;
use polity_model::machine::task::TaskStatus;

use super::acting::Acting;
use super::programs::{begin_or_wait, program};
use super::remotes::{remote, send};
use super::resume_task::resume_calls;
use super::walking::Walking;
use super::{call_model, moved, out_of_place};
use crate::decide::{CommandRejection, Decision, DecisionContext, llm};
use crate::state::TaskState;

/// The task's turn has come.
#[derive(Debug, Clone, Copy)]
pub struct StartTask;

impl StartTask {
    pub(crate) fn decide(
        self,
        state: &TaskState,
        ctx: &mut DecisionContext,
    ) -> Result<Decision, CommandRejection> {
        match state.status() {
            TaskStatus::Pending => {}
            TaskStatus::Running => return Err(out_of_place(state, "StartTask")),
            TaskStatus::AwaitingHuman => {
                return Err(CommandRejection::AwaitingHuman { task: state.id() });
            }
            status @ (TaskStatus::Completed | TaskStatus::Failed | TaskStatus::Cancelled) => {
                return Err(CommandRejection::Finished { task: state.id(), status });
            }
        }
        // A workflow begins with its first node; a task that goes on from a checkpoint in the middle
        // of a turn, with the calls of that.
        if let Some(walk) = state.walk() {
            let mut acting = Acting::of(state, ctx)?;
            acting.push(Event::TaskStarted);
            return Ok(Walking::start(acting, walk));
        }
        if let Some(cli) = program(state) {
            return Ok(begin_or_wait(state, cli, ctx, vec![Event::TaskStarted]));
        }
        if remote(state).is_some() {
            return Ok(send(state, ctx, vec![Event::TaskStarted]));
        }
        // Each call of the model has its own retries, and the execution has those of them all.
        let llm = llm(state)?;
        let max_retries = llm.max_retries.saturating_mul(llm.max_iterations.get());
        let agent = llm.identity.name.clone();
        let id = ExecutionId::from_random_bytes(ctx.entropy.id_bytes());
        let execution = [
            moved(id, ExecutionChange::Start { agent, max_retries }),
            moved(id, ExecutionChange::RUN),
        ];
        if state.calls().open().next().is_some() {
            let first = std::iter::once(Event::TaskStarted).chain(execution);
            return resume_calls(state, ctx, first);
        }
        Ok(call_model(state, ctx, vec![Event::TaskStarted], execution))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::testing::{acting, cancelled, ctx, pending, running};
    use crate::decide::Effect;

    #[test]
    fn a_pending_task_calls_its_model() {
        let decision = StartTask.decide(&pending(), &mut ctx()).unwrap();
        let labels: Vec<_> = decision.events.iter().map(Event::label).collect();
        assert_eq!(
            labels,
            ["task_started", "execution_changed", "execution_changed", "model_called"]
        );
        assert_eq!(decision.effects, [Effect::CallModel]);
    }

    #[test]
    fn no_task_starts_twice() {
        let refused = StartTask.decide(&running(), &mut ctx());
        assert!(matches!(refused, Err(CommandRejection::OutOfPlace { .. })));
        let refused = StartTask.decide(&cancelled(), &mut ctx());
        assert!(matches!(refused, Err(CommandRejection::Finished { .. })));
        // Another worker of the process has put it before a person.
        let refused = StartTask.decide(&acting(&["files/delete"]), &mut ctx());
        assert!(matches!(refused, Err(CommandRejection::AwaitingHuman { .. })), "{refused:?}");
    }
}
