//! The OpenAPI 3.1 document, built from the table of routes.

use axum::Json;
use axum::response::{IntoResponse, Response};
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::route::{AnswerBody, Route};
use crate::http::ProblemDetails;

/// Answers with the document.
pub(super) async fn show() -> Response {
    Json(openapi_document()).into_response()
}

/// The description of the whole API.
pub fn openapi_document() -> Value {
    // Answers are written, not read: fields that are left out are optional.
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    });
    let mut requests = settings.clone().into_generator();
    let mut answers = settings.for_serialize().into_generator();
    let problem = answers.subschema_for::<ProblemDetails>();
    let mut paths = Map::new();
    for route in super::routes() {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.as_str().to_lowercase()] =
            operation(&route, &mut requests, &mut answers, &json!(problem));
    }
    for (path, summary) in [
        ("/healthz", "Answers as long as the process works."),
        ("/readyz", "Answers 200 if the server takes work."),
    ] {
        let answer = json!({"description": summary, "content": {"application/json": {"schema": {"type": "object"}}}});
        paths.insert(
            path.to_owned(),
            json!({"get": {
                "operationId": path.trim_start_matches('/'),
                "summary": summary,
                "security": [],
                "responses": {"200": answer, "503": answer},
            }}),
        );
    }
    let mut schemas = answers.take_definitions(true);
    schemas.extend(requests.take_definitions(true));
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Polity",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Runs, supervises and simulates AI agents.",
            "license": {"name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "api_key": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
            },
        },
        "security": [{"bearer": []}, {"api_key": []}],
    })
}

fn operation(
    route: &Route,
    requests: &mut SchemaGenerator,
    answers: &mut SchemaGenerator,
    problem: &Value,
) -> Value {
    let mut parameters = path_parameters(route.path);
    if let Some(query) = route.query {
        parameters.extend(query_parameters(&json!(query(requests))));
    }
    if route.has_key {
        parameters.push(json!({
            "name": "Idempotency-Key",
            "in": "header",
            "description": "A repeated request with the same key does not start its work twice.",
            "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[ -~]+$"},
        }));
    }
    let mut responses = Map::new();
    for (status, body) in &route.answers {
        let (media_type, schema) = match body {
            AnswerBody::Json(source) => ("application/json", json!(source(answers))),
            AnswerBody::Text(media_type) => (*media_type, json!({"type": "string"})),
        };
        let content = json!({media_type: {"schema": schema}});
        responses.insert(
            status.to_string(),
            json!({"description": "The request succeeded.", "content": content}),
        );
    }
    let failed = json!({
        "description": "The request failed.",
        "content": {"application/problem+json": {"schema": problem}},
    });
    responses.insert("4XX".to_owned(), failed.clone());
    responses.insert("5XX".to_owned(), failed);
    let tag = route.path.trim_start_matches("/api/v1/").split('/').next().unwrap_or_default();
    let mut operation = json!({
        "operationId": route.operation,
        "summary": route.summary,
        "description": format!("Needs the scope `{}`.", route.scope.as_str()),
        "tags": [tag],
        "parameters": parameters,
        "responses": responses,
    });
    if let Some(request) = route.request {
        let schema = json!(request(requests));
        operation["requestBody"] =
            json!({"required": true, "content": {"application/json": {"schema": schema}}});
    }
    operation
}

fn path_parameters(path: &str) -> Vec<Value> {
    let names = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let parameter = |name: &str| {
        let format = if name.ends_with("id") {
            json!({"type": "string", "format": "uuid"})
        } else {
            json!({"type": "string", "pattern": "^[a-z][a-z0-9_]*$"})
        };
        json!({"name": name, "in": "path", "required": true, "schema": format})
    };
    names.map(parameter).collect()
}

fn query_parameters(schema: &Value) -> Vec<Value> {
    let properties = schema["properties"].as_object().cloned().unwrap_or_default();
    let parameter = |(name, mut schema): (String, Value)| {
        let description = schema.as_object_mut().and_then(|schema| schema.remove("description"));
        // A parameter that is left out has no value; none is null.
        if let Some(kinds) = schema["type"].as_array().cloned() {
            schema["type"] = kinds.into_iter().find(|kind| kind != "null").unwrap_or_default();
        }
        json!({"name": name, "in": "query", "description": description, "schema": schema})
    };
    properties.into_iter().map(parameter).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_route_is_described_once_with_its_answers() {
        let document = openapi_document();
        let mut operations = BTreeSet::new();
        for route in super::super::routes() {
            let method = route.method.as_str().to_lowercase();
            let operation = &document["paths"][route.path][method];
            assert!(operation["responses"].as_object().unwrap().len() > 2, "{}", route.path);
            assert!(operations.insert(route.operation), "{} is used twice", route.operation);
        }
    }

    #[test]
    fn every_reference_is_defined() {
        let document = openapi_document();
        let text = document.to_string();
        for reference in text.split("\"#/components/schemas/").skip(1) {
            let name = reference.split('"').next().unwrap();
            assert!(!document["components"]["schemas"][name].is_null(), "{name}");
        }
    }
}
