//! The delivery of one webhook: finds events in the journal and sends their notifications.

use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use polity_definition::{WebhookSettings, WebhookTopic};
use polity_drivers::EnvSource;
use polity_drivers::webhook::{WebhookError, WebhookSender};
use polity_engine::clock::{Clock, SystemClock};
use polity_host::HostError;
use polity_model::digest::Digest;
use polity_model::event::JournalPosition;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::notice::{notice_of, topic_of};
use super::outbox::{Outbox, PENDING_MAX, PendingNotice};
use crate::error::ServeError;
use crate::operation::event_hub::{BATCH_EVENTS, JournalFrame};
use crate::state::ServerState;

/// The folder of the outboxes, in the data folder.
const FOLDER: &str = "webhooks";

/// The characters of the digest in the name of an outbox.
const NAME_CHARACTERS: usize = 16;

/// The time after which a failure of the home is tried again.
const RETRY_DELAY: Duration = Duration::from_secs(10);

/// The webhooks of a home, each with its outbox.
pub(crate) fn open_webhooks(
    webhooks: &[WebhookSettings],
    environment: &EnvSource,
    data: &Path,
    newest: JournalPosition,
) -> Result<Vec<WebhookDelivery>, ServeError> {
    let open = |settings: &WebhookSettings| -> Result<WebhookDelivery, ServeError> {
        let sender = WebhookSender::new(settings, environment)?;
        let path = data.join(FOLDER).join(outbox_name(settings));
        let outbox =
            Outbox::open(path.clone(), newest).map_err(|source| ServeError::Io { path, source })?;
        Ok(WebhookDelivery { topics: settings.events.clone(), sender, outbox })
    };
    webhooks.iter().map(open).collect()
}

/// The file of an outbox. Another address or other events begin anew.
fn outbox_name(settings: &WebhookSettings) -> String {
    let topics: Vec<_> = settings.events.iter().map(|topic| topic.as_str()).collect();
    let text =
        format!("{} {} {}", settings.url.as_str(), settings.secret_env.as_str(), topics.join(" "));
    let digest = Digest::of(text.as_bytes()).to_string();
    let hex: String =
        digest.chars().filter(char::is_ascii_hexdigit).take(NAME_CHARACTERS).collect();
    format!("{hex}.json")
}

/// A webhook with its progress.
pub(crate) struct WebhookDelivery {
    topics: Vec<WebhookTopic>,
    sender: WebhookSender,
    outbox: Outbox,
}

/// The outcome of one attempt.
enum DeliveryOutcome {
    /// The next notification may be sent.
    Next,
    /// The server of the webhook wants no more.
    Stop,
}

impl WebhookDelivery {
    /// Sends notifications as long as the server runs.
    pub(crate) async fn run(mut self, state: Weak<ServerState>) {
        loop {
            let Some(strong) = state.upgrade() else { return };
            // It listens before it reads, so that nothing is missed in between.
            let live = strong.hub.subscribe();
            let pause = match self.pass(&strong).await {
                Ok(DeliveryOutcome::Next) => None,
                Ok(DeliveryOutcome::Stop) => {
                    let server = self.sender.server();
                    tracing::error!(server, "the webhook is gone; it is called after a restart");
                    return;
                }
                Err(error) => {
                    tracing::error!(%error, "cannot read events for a webhook");
                    Some(RETRY_DELAY)
                }
            };
            drop(strong);
            match pause {
                Some(pause) => tokio::time::sleep(pause).await,
                None => self.wait(live).await,
            }
        }
    }

    /// Finds new events, and sends everything that is due.
    async fn pass(&mut self, state: &Arc<ServerState>) -> Result<DeliveryOutcome, HostError> {
        loop {
            self.collect(state).await?;
            let Some(notice) = self.outbox.due(SystemClock.now()) else {
                self.save();
                return Ok(DeliveryOutcome::Next);
            };
            let attempt = self.send(state, notice).await?;
            self.save();
            if let DeliveryOutcome::Stop = attempt {
                return Ok(attempt);
            }
        }
    }

    /// Looks at the events since the last time.
    async fn collect(&mut self, state: &ServerState) -> Result<(), HostError> {
        loop {
            let store = state.host.queries().store();
            let events = store.events_after(self.outbox.cursor(), BATCH_EVENTS).await?;
            let is_last = events.len() < BATCH_EVENTS as usize;
            for recorded in events {
                let topic = topic_of(&recorded.event);
                let is_wanted = topic.is_some_and(|topic| self.topics.contains(&topic));
                let now = SystemClock.now();
                if let Some(dropped) = self.outbox.advance(recorded.position, is_wanted, now) {
                    tracing::error!(
                        position = dropped.position.0,
                        limit = PENDING_MAX,
                        "too many notifications wait; the oldest is dropped"
                    );
                }
            }
            if is_last {
                return Ok(());
            }
        }
    }

    /// Sends one notification.
    async fn send(
        &mut self,
        state: &ServerState,
        pending: PendingNotice,
    ) -> Result<DeliveryOutcome, HostError> {
        let queries = state.host.queries();
        let position = pending.position;
        let before = JournalPosition(position.0.saturating_sub(1));
        let recorded = queries.store().events_after(before, 1).await?.pop();
        let recorded = recorded.filter(|recorded| recorded.position == position);
        let notice = match &recorded {
            Some(recorded) => notice_of(queries, recorded).await?,
            None => None,
        };
        // The task was removed, or is a part of another.
        let Some(notice) = notice else {
            self.outbox.remove(position);
            return Ok(DeliveryOutcome::Next);
        };
        match self.sender.send(&notice.id, &notice.body, SystemClock.now()).await {
            Ok(()) => self.outbox.remove(position),
            Err(error) if error.is_gone() => {
                self.outbox.remove(position);
                return Ok(DeliveryOutcome::Stop);
            }
            Err(error) => self.postpone(pending, &notice.id, &error),
        }
        Ok(DeliveryOutcome::Next)
    }

    fn postpone(&mut self, pending: PendingNotice, id: &str, error: &WebhookError) {
        let (attempts, now) = (pending.attempts + 1, SystemClock.now());
        if self.outbox.postpone(pending.position, error.is_outage(), now) {
            tracing::warn!(id, attempts, %error, "a notification is sent again later");
        } else {
            tracing::error!(id, attempts, %error, "a notification is given up");
        }
    }

    fn save(&mut self) {
        // Without the file, notifications are sent again after a restart.
        if let Err(error) = self.outbox.save() {
            tracing::error!(%error, "cannot write the outbox of a webhook");
        }
    }

    /// Waits for an event with a notification, or for the next attempt.
    async fn wait(&self, mut live: Receiver<Arc<JournalFrame>>) {
        let now = SystemClock.now();
        let rest = self.outbox.next_attempt().map(|next| next.duration_since(now));
        let rest = rest.map(|rest| Duration::try_from(rest).unwrap_or_default());
        let event = async {
            loop {
                match live.recv().await {
                    Ok(frame) => {
                        let topic = topic_of(&frame.recorded.event);
                        if topic.is_some_and(|topic| self.topics.contains(&topic)) {
                            return;
                        }
                    }
                    Err(RecvError::Lagged(_)) => return,
                    // The server ends, and with it this delivery.
                    Err(RecvError::Closed) => std::future::pending().await,
                }
            }
        };
        match rest {
            // Both the time and an event end the wait.
            Some(rest) => {
                let _ = tokio::time::timeout(rest, event).await;
            }
            None => event.await,
        }
    }
}
