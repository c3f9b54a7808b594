//! The client of one A2A interface: performs operations and maps answers to outcomes.

use std::time::Duration;

use polity_engine::driver::{MessageDelivery, RemoteEnd, RemoteOutcome, TextSink};
use polity_model::failure::{AttemptFailure, ErrorCategory};
use polity_model::remote::{RemoteReport, RemoteTask};
use polity_model::usage::Usage;
use serde_json::Value;

use super::credentials::RemoteCredentials;
use super::decode::{self, A2aReply, A2aState, A2aStreamEvent, A2aTask};
use super::encode::{A2aInterface, A2aOperation};
use super::error::{RemoteError, SendFailure};
use super::http::RemoteHttp;
use crate::http::redact_url;

/// The first delay between two polls of a task; each delay is longer.
pub(super) const POLL_FIRST: Duration = Duration::from_millis(100);

/// The longest delay between two polls.
const POLL_MAX: Duration = Duration::from_secs(5);

/// The longest wait for an answer to a read-only operation.
const QUERY_TIMEOUT: Duration = Duration::from_secs(30);

/// The longest time on a stream before the task is polled anyway.
const STREAM_TIMEOUT: Duration = Duration::from_secs(30);

/// A connected agent: its interface and the credentials to use.
pub(super) struct A2aClient<'a> {
    pub(super) http: &'a RemoteHttp,
    pub(super) credentials: RemoteCredentials,
    pub(super) interface: A2aInterface,
    /// True if the agent streams task updates.
    pub(super) can_stream: bool,
}

impl A2aClient<'_> {
    pub(super) async fn call(&self, operation: A2aOperation<'_>) -> Result<Value, RemoteError> {
        let request = self.interface.request(operation);
        let answered = self.http.call(request, &self.credentials.headers).await;
        let answered = answered.and_then(|json| self.interface.unwrap_result(json));
        answered.map_err(|error| redact_error(&self.credentials, error))
    }

    async fn fetch_task(&self, id: &str) -> Result<A2aTask, RemoteError> {
        decode::decode_task(with_timeout(self.call(A2aOperation::Get(id))).await?)
            .map_err(RemoteError::Unreadable)
    }

    /// Reads task updates until the task is settled or the stream ends.
    async fn read_stream(&self, id: &str, progress: &dyn TextSink) -> Result<(), RemoteError> {
        let request = self.interface.request(A2aOperation::Subscribe(id));
        let on_event = |json: Value| {
            progress.progress();
            Ok(match decode::decode_event(self.interface.unwrap_result(json)?) {
                A2aStreamEvent::StateChanged(state) => state.is_settled(),
                A2aStreamEvent::ArtifactText(text) => {
                    progress.text(&self.credentials.secrets.redact(&text));
                    false
                }
                A2aStreamEvent::Other => false,
            })
        };
        self.http.stream_events(request, &self.credentials.headers, on_event).await
    }

    fn report(&self) -> RemoteReport {
        RemoteReport {
            url: redact_url(&self.interface.url),
            protocol: self.interface.binding.to_string(),
            ..RemoteReport::default()
        }
    }

    fn token(&self) -> Option<&str> {
        self.credentials.variable.as_deref()
    }

    fn redact(&self, text: &str) -> String {
        self.credentials.secrets.redact(text)
    }

    /// Maps the answer to a message.
    pub(super) fn to_sent(&self, answered: Result<Value, RemoteError>) -> MessageDelivery {
        let reply =
            answered.and_then(|json| decode::decode_reply(json).map_err(RemoteError::Unreadable));
        let (end, state) = match reply {
            Ok(A2aReply::Task(task)) if task.status.state.is_settled() => {
                return MessageDelivery::Over(self.outcome_of(&task));
            }
            Ok(A2aReply::Task(task)) => return MessageDelivery::Accepted(task.to_remote_task()),
            Ok(A2aReply::Message(message)) => {
                (RemoteEnd::Answered(self.redact(&message.text())), Some("answered".to_owned()))
            }
            Err(error) => match error.to_send_failure(self.token()) {
                SendFailure::Failed(failure, retry_after) => {
                    (RemoteEnd::Failed { failure: self.prefix_url(&failure), retry_after }, None)
                }
                SendFailure::InDoubt(why) => (RemoteEnd::InDoubt(why), None),
            },
        };
        let report = RemoteReport { state, is_over: true, ..self.report() };
        let usage = match &end {
            RemoteEnd::Failed { .. } => Usage::default(),
            RemoteEnd::Answered(_) | RemoteEnd::Asks(_) | RemoteEnd::InDoubt(_) => Usage::UNKNOWN,
        };
        MessageDelivery::Over(RemoteOutcome { end, report, usage })
    }

    /// Prefixes the failure with the agent's URL.
    fn prefix_url(&self, failure: &AttemptFailure) -> AttemptFailure {
        let message = format!("{}: {}", redact_url(&self.interface.url), failure.message);
        AttemptFailure { category: failure.category, message }
    }

    /// The outcome of a settled task.
    fn outcome_of(&self, task: &A2aTask) -> RemoteOutcome {
        let state = task.status.state;
        let status_text = task.status_text().map(|status_text| self.redact(&status_text));
        let suffix = status_text.as_ref().map(|text| format!(": {text}")).unwrap_or_default();
        let failed = |category, message| {
            let failure = AttemptFailure { category, message };
            RemoteEnd::Failed { failure, retry_after: None }
        };
        let agent_failed = |what| failed(ErrorCategory::AgentError, format!("{what}{suffix}"));
        let end = match state {
            A2aState::Completed => RemoteEnd::Answered(self.redact(&task.result())),
            A2aState::InputRequired => {
                RemoteEnd::Asks(status_text.clone().unwrap_or_else(|| {
                    "The agent asks for more, and does not say what.".to_owned()
                }))
            }
            A2aState::Failed => agent_failed("the agent failed"),
            A2aState::Rejected => agent_failed("the agent does not take this work"),
            A2aState::Canceled => agent_failed("the task was cancelled on the other server"),
            A2aState::AuthRequired => {
                let what = match self.token() {
                    Some(variable) => format!("set {variable} to a token that may do it"),
                    None => "give the agent's file an auth with a token that may do it".to_owned(),
                };
                let message = format!("the agent needs more rights for this{suffix}; {what}");
                failed(ErrorCategory::Permanent, message)
            }
            // Unsettled states do not reach this function.
            A2aState::Submitted | A2aState::Working | A2aState::Unknown => {
                RemoteEnd::InDoubt("the task goes on".to_owned())
            }
        };
        let report = RemoteReport {
            task: Some(task.to_remote_task()),
            state: Some(state.label().to_owned()),
            is_over: state.is_final(),
            ..self.report()
        };
        RemoteOutcome { end, report, usage: task.usage() }
    }
}

impl A2aClient<'_> {
    /// Follows a task until it is settled. Returns `None` if the server is unavailable for now.
    pub(super) async fn follow(
        &self,
        id: &str,
        task: &RemoteTask,
        wait: &mut Duration,
        progress: &dyn TextSink,
    ) -> Option<RemoteOutcome> {
        let mut can_stream = self.can_stream && self.interface.binding.can_subscribe();
        let mut polled = PolledProgress::default();
        loop {
            let found = self.fetch_task(id).await;
            match found {
                Ok(found) if found.status.state.is_settled() => {
                    return Some(self.outcome_of(&found));
                }
                Ok(found) => {
                    let text = self.redact(&found.artifact_text());
                    let shown = (!can_stream).then_some(progress);
                    if polled.update(found.status.state, text, shown) {
                        progress.progress();
                        *wait = POLL_FIRST;
                    }
                }
                Err(error) if error.is_transient() => return None,
                Err(error) => return Some(self.lost_outcome(task, &error)),
            }
            if can_stream {
                match tokio::time::timeout(STREAM_TIMEOUT, self.read_stream(id, progress)).await {
                    // The stream may be incomplete, so the task is fetched once more.
                    Ok(Ok(())) | Err(_) => *wait = POLL_FIRST,
                    Ok(Err(error @ RemoteError::TooLarge(_))) => {
                        return Some(self.lost_outcome(task, &error));
                    }
                    // Polling works without a stream.
                    Ok(Err(error)) => {
                        tracing::debug!(%error, "a task is looked at from time to time");
                        can_stream = error.is_transient();
                    }
                }
            }
            back_off(wait).await;
        }
    }

    /// The outcome of a task whose state cannot be read.
    fn lost_outcome(&self, task: &RemoteTask, error: &RemoteError) -> RemoteOutcome {
        let (category, is_over) = (ErrorCategory::Permanent, error.is_unknown_task());
        let mut failure = self.prefix_url(&error.to_failure(category, self.token()));
        if is_over {
            failure.message.push_str("; the server does not know the task any more");
        }
        let end = RemoteEnd::Failed { failure, retry_after: None };
        let report = RemoteReport { task: Some(task.clone()), is_over, ..self.report() };
        RemoteOutcome { end, report, usage: Usage::UNKNOWN }
    }
}

/// The progress of a task that is polled.
#[derive(Default)]
struct PolledProgress {
    state: Option<A2aState>,
    text: String,
}

impl PolledProgress {
    /// Notes a state and the text so far, and shows the new part. Returns true if there is progress.
    fn update(&mut self, state: A2aState, text: String, shown: Option<&dyn TextSink>) -> bool {
        let has_changed = self.state != Some(state) || self.text != text;
        let new = text.strip_prefix(&self.text).filter(|new| !new.is_empty());
        if let (Some(new), Some(shown)) = (new, shown) {
            shown.text(new);
        }
        (self.state, self.text) = (Some(state), text);
        has_changed
    }
}

/// Applies the timeout of read-only operations.
pub(super) async fn with_timeout<T>(
    look: impl Future<Output = Result<T, RemoteError>>,
) -> Result<T, RemoteError> {
    let late = format!("it did not answer within {} seconds", QUERY_TIMEOUT.as_secs());
    tokio::time::timeout(QUERY_TIMEOUT, look).await.unwrap_or(Err(RemoteError::Lost(late)))
}

/// Waits, and doubles the next delay up to the limit.
pub(super) async fn back_off(wait: &mut Duration) {
    tokio::time::sleep(*wait).await;
    *wait = (*wait * 2).min(POLL_MAX);
}

/// Redacts the token in an error; some servers echo it.
pub(super) fn redact_error(credentials: &RemoteCredentials, error: RemoteError) -> RemoteError {
    let redact = |text: String| credentials.secrets.redact(&text);
    match error {
        RemoteError::Unreachable(why) => RemoteError::Unreachable(redact(why)),
        RemoteError::Lost(why) => RemoteError::Lost(redact(why)),
        RemoteError::Status { status, message, retry_after } => {
            RemoteError::Status { status, message: redact(message), retry_after }
        }
        RemoteError::Rpc { code, message } => RemoteError::Rpc { code, message: redact(message) },
        RemoteError::Unreadable(why) => RemoteError::Unreadable(redact(why)),
        RemoteError::TooLarge(limit) => RemoteError::TooLarge(limit),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[derive(Default)]
    struct ShownText(Mutex<String>);

    impl TextSink for ShownText {
        fn text(&self, piece: &str) {
            self.0.lock().unwrap().push_str(piece);
        }
    }

    #[test]
    fn polled_text_is_shown_once() {
        let shown = ShownText::default();
        let mut polled = PolledProgress::default();
        for (state, text, has_progress) in [
            (A2aState::Submitted, "", true),
            (A2aState::Working, "", true),
            (A2aState::Working, "", false),
            (A2aState::Working, "one ", true),
            (A2aState::Working, "one two ", true),
            (A2aState::Working, "one two ", false),
            // A replaced artifact is progress, and cannot be appended.
            (A2aState::Working, "other", true),
            (A2aState::Working, "other three", true),
        ] {
            let progress = polled.update(state, text.to_owned(), Some(&shown));
            assert_eq!(progress, has_progress, "{state:?} {text}");
        }
        assert_eq!(*shown.0.lock().unwrap(), "one two  three");
    }
}
