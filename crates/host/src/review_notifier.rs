//! Notifications of open reviews, as `notify.on_review` configures them.

use std::collections::BTreeSet;
use std::sync::Arc;

use polity_definition::OnReview;
use polity_drivers::notify::{NotificationPayload, NotifyOptions, send_notification};
use polity_engine::runtime::{LiveEvent, Runtime};
use polity_model::event::{Event, StreamId, StreamSequence};
use polity_model::ids::{CheckpointId, InstanceId, TaskId};
use polity_model::review::Review;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{Semaphore, broadcast, oneshot};
use tokio::task::{JoinHandle, JoinSet};

use crate::context::HostContext;
use crate::error::HostError;
use crate::queries::HomeQueries;
use crate::warning::{HostWarning, ReviewWarning};

/// The most notifications that are sent at the same time.
const CONCURRENT_NOTIFICATIONS_MAX: usize = 16;

/// Notifies reviewers of the reviews that this process opens.
pub(crate) struct ReviewNotifier {
    context: HostContext,
    stop: oneshot::Sender<()>,
    done: JoinHandle<()>,
}

impl ReviewNotifier {
    /// Starts to listen, if a command or webhook is configured. Must be called within a Tokio runtime
    /// and before any task is created.
    pub(crate) fn start(
        context: &HostContext,
        settings: OnReview,
        runtime: &Runtime,
        queries: &HomeQueries,
    ) -> Result<Option<Self>, HostError> {
        if settings == OnReview::default() {
            return Ok(None);
        }
        let environment = context.environment().clone();
        let options = NotifyOptions {
            program_check: context.folder().program_check(),
            ..NotifyOptions::new(context.absolute_root()?, environment, context.launcher()?)
        };
        let sender = NotificationSender {
            context: context.clone(),
            queries: queries.clone(),
            settings,
            options,
            permits: Semaphore::new(CONCURRENT_NOTIFICATIONS_MAX),
        };
        let listener = ReviewListener {
            sender: Arc::new(sender),
            instance: runtime.instance(),
            notified: BTreeSet::new(),
            sending: JoinSet::new(),
        };
        let (stop, stopped) = oneshot::channel();
        let done = tokio::spawn(listener.listen(runtime.subscribe(), stopped));
        Ok(Some(Self { context: context.clone(), stop, done }))
    }

    /// Waits until every notification is delivered or has failed, or until `abort` completes.
    pub(crate) async fn close(self, abort: impl Future<Output = ()>) {
        let Self { context, stop, mut done } = self;
        // A listener that has ended by itself needs no request to stop.
        let _ = stop.send(());
        tokio::select! {
            biased;
            _ = &mut done => {}
            () = abort => {
                done.abort();
                context.warn(HostWarning::Review(ReviewWarning::Aborted));
            }
        }
    }
}

/// Finds the reviews that this process opens.
struct ReviewListener {
    sender: Arc<NotificationSender>,
    /// This process. Other processes notify of their own reviews.
    instance: InstanceId,
    /// The reviews for which a notification was sent.
    notified: BTreeSet<CheckpointId>,
    sending: JoinSet<()>,
}

impl ReviewListener {
    async fn listen(
        mut self,
        mut live: broadcast::Receiver<LiveEvent>,
        mut stopped: oneshot::Receiver<()>,
    ) {
        loop {
            tokio::select! {
                // Events that have happened come before the request to stop.
                biased;
                news = live.recv() => match news {
                    Ok(LiveEvent::Event(recorded)) => {
                        if let (Event::ReviewOpened { checkpoint_id, .. }, StreamId::Task(task)) =
                            (&recorded.event, &recorded.stream)
                        {
                            self.check_task(*task, Some(*checkpoint_id)).await;
                        }
                    }
                    Ok(LiveEvent::Text { .. }) => {}
                    Err(RecvError::Lagged(_)) => self.check_all_tasks().await,
                    Err(RecvError::Closed) => break,
                },
                Some(_) = self.sending.join_next() => {}
                // A dropped sender also ends the loop.
                _ = &mut stopped => break,
            }
        }
        while self.sending.join_next().await.is_some() {}
    }

    /// Sends a notification of a task's review, if this process opened it and has sent none yet.
    async fn check_task(&mut self, task: TaskId, expected: Option<CheckpointId>) {
        match self.opened_here(task).await {
            Ok(Some(review)) if expected.is_none_or(|expected| expected == review) => {
                if self.notified.insert(review) {
                    self.sending.spawn(Arc::clone(&self.sender).send(task, review));
                }
            }
            // Another process opened it, or it is closed.
            Ok(_) => {}
            Err(error) => self.sender.warn(ReviewWarning::Unreadable(error)),
        }
    }

    /// Checks every waiting task, after events were missed.
    async fn check_all_tasks(&mut self) {
        match self.sender.queries.tasks_awaiting_review().await {
            Ok(rows) => {
                for row in rows.iter().rev() {
                    self.check_task(row.id, None).await;
                }
            }
            Err(error) => self.sender.warn(ReviewWarning::Unreadable(error)),
        }
    }

    /// The newest review of a task, if this process owned the task when it was opened.
    async fn opened_here(&self, task: TaskId) -> Result<Option<CheckpointId>, HostError> {
        let events = self.sender.queries.events(task, StreamSequence::default()).await?;
        let mut owner = None;
        let mut opened = None;
        for recorded in &events {
            if let Event::TaskClaimed { instance, .. } = &recorded.event {
                owner = Some(*instance);
            }
            if let Event::ReviewOpened { checkpoint_id, .. } = &recorded.event {
                opened = (owner == Some(self.instance)).then_some(*checkpoint_id);
            }
        }
        Ok(opened)
    }
}

/// Sends notifications. A failure becomes a warning and does not touch the task.
struct NotificationSender {
    context: HostContext,
    queries: HomeQueries,
    settings: OnReview,
    options: NotifyOptions,
    permits: Semaphore,
}

impl NotificationSender {
    async fn send(self: Arc<Self>, task: TaskId, checkpoint: CheckpointId) {
        // The semaphore is never closed.
        let _permit = self.permits.acquire().await;
        let review = match self.queries.open_review(task).await {
            Ok(Some(review)) if review.checkpoint_id == checkpoint => review,
            // The review has been answered.
            Ok(_) => return,
            Err(error) => return self.warn(ReviewWarning::Unreadable(error)),
        };
        let notice = match self.notice(&review) {
            Ok(notice) => notice,
            Err(error) => return self.warn(ReviewWarning::NotSerializable { task, error }),
        };
        for cause in send_notification(&self.settings, &notice, &self.options).await {
            self.warn(ReviewWarning::NotDelivered { task: review.task_id, cause });
        }
    }

    fn notice(&self, review: &Review) -> Result<NotificationPayload, serde_json::Error> {
        let variables = vec![
            ("POLITY_TASK_ID", review.task_id.to_string()),
            ("POLITY_REVIEW_POSITION", review.position.clone()),
            ("POLITY_REVIEW_QUESTION", review.question.clone()),
            ("POLITY_HOME", self.options.home.to_string_lossy().into_owned()),
        ];
        Ok(NotificationPayload { json: serde_json::to_vec(review)?, variables })
    }

    fn warn(&self, warning: ReviewWarning) {
        self.context.warn(HostWarning::Review(warning));
    }
}
