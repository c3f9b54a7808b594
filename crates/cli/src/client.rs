//! The client of a server: addresses, requests, errors and streams of events.

mod address;
mod api_client;
mod event_stream;
mod link;
mod problem;

pub(crate) use api_client::ApiClient;
pub(crate) use event_stream::TaskEvents;
pub(crate) use link::{ServerLink, named_server};
