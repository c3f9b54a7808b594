//! `notify.on_review`: whoever opens a review tells someone of it, once it is in the journal.

use std::collections::BTreeSet;
use std::sync::Arc;

use polity_definition::OnReview;
use polity_drivers::notify::{NotTold, Notice, NotifyOptions, tell};
use polity_engine::runtime::{Live, Runtime};
use polity_model::event::{Event, StreamId, StreamSequence};
use polity_model::ids::{CheckpointId, InstanceId, TaskId};
use polity_model::machine::task::TaskStatus;
use polity_model::review::Review;
use polity_store::{Store, StoreError, TaskFilter};
use serde_json::json;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{Semaphore, broadcast, oneshot};
use tokio::task::{JoinHandle, JoinSet};

use crate::app::{App, environment, launcher};
use crate::commands::review;
use crate::error::CliError;
use crate::signals::Signals;
use crate::view::live::interject;
use crate::view::{harmless, style};

/// How many reviews are told of at the same time; others wait their turn.
const AT_ONCE_MAX: usize = 16;

/// Tells of the reviews that this process opens, for as long as this is kept.
pub(crate) struct Notices {
    app: App,
    stop: oneshot::Sender<()>,
    done: JoinHandle<()>,
}

impl Notices {
    /// Begins to listen, if there is a way to tell anyone. Must be called within a Tokio runtime,
    /// and before there is any work.
    pub(crate) fn start(
        app: &App,
        settings: OnReview,
        runtime: &Runtime,
        store: &Arc<dyn Store>,
    ) -> Result<Option<Self>, CliError> {
        if settings == OnReview::default() {
            return Ok(None);
        }
        let options = NotifyOptions::new(app.absolute_root()?, environment(), launcher()?);
        let teller = Teller {
            app: app.clone(),
            store: Arc::clone(store),
            settings,
            options,
            turns: Semaphore::new(AT_ONCE_MAX),
        };
        let listener = Listener {
            teller: Arc::new(teller),
            instance: runtime.instance(),
            known: BTreeSet::new(),
            telling: JoinSet::new(),
        };
        let (stop, stopped) = oneshot::channel();
        let done = tokio::spawn(listener.listen(runtime.subscribe(), stopped));
        Ok(Some(Self { app: app.clone(), stop, done }))
    }

    /// Waits until everyone is told, or has taken too long, or the user will not wait.
    pub(crate) async fn close(self) {
        let Self { app, stop, mut done } = self;
        // One that has ended by itself needs not be told.
        let _ = stop.send(());
        let impatient = async {
            match Signals::listen() {
                Ok(mut signals) => signals.next().await,
                Err(error) => {
                    tracing::debug!(error = error.message(), "notices cannot be broken off");
                    std::future::pending().await
                }
            }
        };
        tokio::select! {
            biased;
            // It ends in no other way than well.
            _ = &mut done => {}
            _ = impatient => {
                done.abort();
                let hint = "the review waits all the same: `polity review list`";
                warn(&app, "stopped before everyone was told of a review", hint);
            }
        }
    }
}

/// Notices which reviews this process opens.
struct Listener {
    teller: Arc<Teller>,
    /// This process; the reviews of others are told of by them.
    instance: InstanceId,
    /// The reviews that are taken care of.
    known: BTreeSet<CheckpointId>,
    telling: JoinSet<()>,
}

impl Listener {
    async fn listen(
        mut self,
        mut live: broadcast::Receiver<Live>,
        mut stopped: oneshot::Receiver<()>,
    ) {
        loop {
            tokio::select! {
                // What has happened is told before anyone stops.
                biased;
                news = live.recv() => match news {
                    Ok(Live::Event(recorded)) => {
                        if let (Event::ReviewOpened { checkpoint_id, .. }, StreamId::Task(task)) =
                            (&recorded.event, &recorded.stream)
                        {
                            self.look_at(*task, Some(*checkpoint_id));
                        }
                    }
                    Ok(Live::Text { .. }) => {}
                    Err(RecvError::Lagged(_)) => self.look_at_all(),
                    Err(RecvError::Closed) => break,
                },
                Some(_) = self.telling.join_next() => {}
                // Dropping the other end says the same.
                _ = &mut stopped => break,
            }
        }
        while self.telling.join_next().await.is_some() {}
    }

    /// Has someone told of what a task asks, if this process asks it and no one is told yet.
    fn look_at(&mut self, task: TaskId, asked: Option<CheckpointId>) {
        match self.opened_here(task) {
            Ok(Some(review)) if asked.is_none_or(|asked| asked == review) => {
                if self.known.insert(review) {
                    self.telling.spawn(Arc::clone(&self.teller).tell(task, review));
                }
            }
            // It is another's, or over.
            Ok(_) => {}
            Err(error) => self.teller.unread(&CliError::from(error)),
        }
    }

    /// Looks at all that waits, since something was missed.
    fn look_at_all(&mut self) {
        let statuses = vec![TaskStatus::AwaitingHuman];
        let waiting = TaskFilter { statuses, ..TaskFilter::default() };
        match self.teller.store.task_rows(&waiting) {
            Ok(rows) => rows.iter().for_each(|row| self.look_at(row.id, None)),
            Err(error) => self.teller.unread(&CliError::from(error)),
        }
    }

    /// The newest review of a task, if it was opened in the name of this process.
    fn opened_here(&self, task: TaskId) -> Result<Option<CheckpointId>, StoreError> {
        let events = self.teller.store.events(&StreamId::Task(task), StreamSequence::default())?;
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

/// Tells of reviews, and says on stderr what went wrong with that. The task is none the worse.
struct Teller {
    app: App,
    store: Arc<dyn Store>,
    settings: OnReview,
    options: NotifyOptions,
    turns: Semaphore,
}

impl Teller {
    async fn tell(self: Arc<Self>, task: TaskId, checkpoint: CheckpointId) {
        // It is never closed.
        let _turn = self.turns.acquire().await;
        let review = match review::open(&self.store, task).await {
            Ok(Some(review)) if review.checkpoint_id == checkpoint => review,
            // Someone has decided already.
            Ok(_) => return,
            Err(error) => return self.unread(&error),
        };
        let notice = match self.notice(&review) {
            Ok(notice) => notice,
            Err(error) => {
                let message = format!("the review of task {task} cannot be told as JSON: {error}");
                return warn(&self.app, &message, "look at it with `polity review list`");
            }
        };
        for not_told in tell(&self.settings, &notice, &self.options).await {
            self.not_told(&review, &not_told);
        }
    }

    fn notice(&self, review: &Review) -> Result<Notice, serde_json::Error> {
        let variables = vec![
            ("POLITY_TASK_ID", review.task_id.to_string()),
            ("POLITY_REVIEW_POSITION", review.position.clone()),
            ("POLITY_REVIEW_QUESTION", review.question.clone()),
            ("POLITY_HOME", self.options.home.to_string_lossy().into_owned()),
        ];
        Ok(Notice { json: serde_json::to_vec(review)?, variables })
    }

    fn not_told(&self, review: &Review, why: &NotTold) {
        let message = format!("no one was told that task {} waits: {why}", review.task_id);
        warn(&self.app, &message, why.hint());
    }

    fn unread(&self, error: &CliError) {
        let message = format!("no one was told of a review: {}", error.message());
        warn(&self.app, &message, "`polity review list` shows what waits");
    }
}

/// Says that someone may not know that a task waits. That is said whatever else is not shown.
fn warn(app: &App, message: &str, hint: &str) {
    if app.json() {
        let warning = json!({"code": "notify", "message": message, "hint": hint});
        interject(app, &json!({ "warning": warning }).to_string());
        return;
    }
    interject(app, &format!("{}: {}", style::warning("warning"), harmless(message)));
    interject(app, &format!("  {}: {hint}", style::hint("hint")));
}
