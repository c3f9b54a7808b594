//! Notifications to webhooks: signed, repeated for a day, and kept across restarts.
//!
//! The journal is the queue. Each webhook has an outbox file with the position up to which it has
//! looked at events, and the notifications that are not delivered yet. A notification is sent at least
//! once, always with the same id.

mod delivery;
mod notice;
mod outbox;

pub(crate) use delivery::{WebhookDelivery, open_webhooks};
