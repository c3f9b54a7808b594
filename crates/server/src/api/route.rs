//! A route of the table.

use std::sync::Arc;

use axum::handler::Handler;
use axum::http::Method;
use axum::routing::{MethodFilter, MethodRouter, on};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::Value;

use crate::auth::Scope;
use crate::state::ServerState;

/// Makes the schema of a type.
pub(super) type SchemaSource = fn(&mut SchemaGenerator) -> Schema;

/// The body of an answer.
#[derive(Clone, Copy)]
pub(super) enum AnswerBody {
    /// JSON of this type.
    Json(SchemaSource),
    /// Text of this media type.
    Text(&'static str),
}

impl AnswerBody {
    /// The media types of drawings.
    pub(super) const DRAWINGS: &[&str] =
        &["image/svg+xml", "text/vnd.mermaid", "text/vnd.graphviz"];
}

/// A route: its handler, the scope that callers need, and its documentation.
pub(super) struct Route {
    pub(super) method: Method,
    pub(super) path: &'static str,
    pub(super) scope: Scope,
    /// The name of the operation in generated clients.
    pub(super) operation: &'static str,
    pub(super) summary: &'static str,
    pub(super) handler: MethodRouter<Arc<ServerState>>,
    pub(super) query: Option<SchemaSource>,
    pub(super) request: Option<SchemaSource>,
    /// True if the header `Idempotency-Key` is accepted.
    pub(super) has_key: bool,
    pub(super) answers: Vec<(u16, AnswerBody)>,
    /// The statuses of problems beyond those of every route of its kind.
    pub(super) problems: &'static [u16],
    /// An example of the body of the request.
    pub(super) example: Option<Value>,
}

impl Route {
    fn new<H, T>(
        method: Method,
        path: &'static str,
        operation: &'static str,
        scope: Scope,
        summary: &'static str,
        handler: H,
    ) -> Self
    where
        H: Handler<T, Arc<ServerState>>,
        T: 'static,
    {
        let filter = if method == Method::GET { MethodFilter::GET } else { MethodFilter::POST };
        Self {
            method,
            path,
            scope,
            operation,
            summary,
            handler: on(filter, handler),
            query: None,
            request: None,
            has_key: false,
            answers: Vec::new(),
            problems: &[],
            example: None,
        }
    }

    /// A route that reads.
    pub(super) fn get<H, T>(
        path: &'static str,
        operation: &'static str,
        summary: &'static str,
        handler: H,
    ) -> Self
    where
        H: Handler<T, Arc<ServerState>>,
        T: 'static,
    {
        Self::new(Method::GET, path, operation, Scope::Read, summary, handler)
    }

    /// A route that changes something.
    pub(super) fn post<H, T>(
        path: &'static str,
        operation: &'static str,
        scope: Scope,
        summary: &'static str,
        handler: H,
    ) -> Self
    where
        H: Handler<T, Arc<ServerState>>,
        T: 'static,
    {
        Self::new(Method::POST, path, operation, scope, summary, handler)
    }

    /// Documents the query.
    pub(super) fn query<T: JsonSchema>(mut self) -> Self {
        self.query = Some(|generator| T::json_schema(generator));
        self
    }

    /// Documents the body of the request.
    pub(super) fn takes<T: JsonSchema>(mut self) -> Self {
        self.request = Some(SchemaGenerator::subschema_for::<T>);
        self
    }

    /// Documents the header `Idempotency-Key`.
    pub(super) fn takes_key(mut self) -> Self {
        self.has_key = true;
        self
    }

    /// Documents the statuses of further problems.
    pub(super) fn fails(mut self, statuses: &'static [u16]) -> Self {
        self.problems = statuses;
        self
    }

    /// Documents an example of the body of the request.
    pub(super) fn example(mut self, example: Value) -> Self {
        self.example = Some(example);
        self
    }

    /// Documents a JSON answer.
    pub(super) fn answers<T: JsonSchema>(mut self, status: u16) -> Self {
        self.answers.push((status, AnswerBody::Json(SchemaGenerator::subschema_for::<T>)));
        self
    }

    /// Documents an answer that is text of one of several media types.
    pub(super) fn answers_one_of(mut self, status: u16, media_types: &[&'static str]) -> Self {
        self.answers.extend(media_types.iter().map(|kind| (status, AnswerBody::Text(kind))));
        self
    }

    /// Documents an answer that is text.
    pub(super) fn answers_text(mut self, status: u16, media_type: &'static str) -> Self {
        self.answers.push((status, AnswerBody::Text(media_type)));
        self
    }
}
