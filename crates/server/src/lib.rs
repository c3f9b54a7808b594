//! The network front end: HTTP API, live events, authentication and operation of a server.
//!
//! [`Server::open`] takes a home, and [`Server::run`] serves it until a stop is requested. The routes
//! of the API are a table in `api`, from which the router, the scopes and the OpenAPI document are
//! built, so that none of them can differ from the others.

#![warn(clippy::print_stdout, clippy::print_stderr, reason = "only the front end prints")]

mod api;
pub mod auth;
mod error;
mod http;
mod listener;
mod operation;
mod server;
mod state;
mod webhooks;

pub use api::openapi_document;
pub use error::ServeError;
pub use listener::TlsError;
pub use operation::server_lock::{RunningServer, published_server, running_server};
pub use server::{Server, ServerOptions};
