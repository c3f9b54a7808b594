//! The OpenAPI 3.1 document, built from the table of routes.

use std::collections::BTreeSet;

use axum::Json;
use axum::http::StatusCode;
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
    let failures = problem_responses(&json!(problem));
    let mut paths = Map::new();
    for route in super::routes() {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.as_str().to_lowercase()] = operation(&route, &mut requests, &mut answers);
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
    let tags = tags(&paths);
    let mut schemas = answers.take_definitions(true);
    let of_requests = requests.take_definitions(true);
    schemas.extend(of_requests.into_iter().map(|(name, schema)| (name, without_defaults(schema))));
    let mut document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Polity",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Runs, supervises and simulates AI agents.",
            "license": {"name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0"},
        },
        "servers": [{"url": "/", "description": "The server that serves this document."}],
        "tags": tags,
        "paths": paths,
        "components": {
            "schemas": schemas,
            "responses": failures,
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A token of `polity token create`, or the one in `data/server.token`.",
                },
                "api_key": {
                    "type": "apiKey",
                    "in": "header",
                    "name": "X-Api-Key",
                    "description": "The same tokens, for clients that cannot send `Authorization`.",
                },
            },
        },
        "security": [{"bearer": []}, {"api_key": []}],
    });
    plain_enums(&mut document);
    document
}

/// The statuses of the problems of every route.
const ROUTE_PROBLEMS: [u16; 9] = [401, 403, 404, 409, 421, 422, 429, 500, 503];

/// The statuses of the problems of routes with a body.
const BODY_PROBLEMS: [u16; 4] = [400, 408, 413, 415];

/// The statuses of the problems of single routes.
const OTHER_PROBLEMS: [u16; 3] = [501, 502, 504];

/// The answers to requests that failed, by name.
fn problem_responses(schema: &Value) -> Map<String, Value> {
    let statuses = ROUTE_PROBLEMS.iter().chain(&BODY_PROBLEMS).chain(&OTHER_PROBLEMS);
    let response = |status: &u16| {
        let reason = StatusCode::from_u16(*status).ok().and_then(|code| code.canonical_reason());
        let reason = reason.unwrap_or("error").to_lowercase();
        let mut response = json!({
            "description": format!("The request failed: {reason}."),
            "content": {"application/problem+json": {"schema": schema}},
        });
        if matches!(status, 429 | 503) {
            response["headers"] = json!({"Retry-After": {
                "description": "The number of seconds after which a new attempt makes sense.",
                "schema": {"type": "integer"},
            }});
        }
        (format!("problem_{status}"), response)
    };
    statuses.map(response).collect()
}

/// Replaces choices among documented constants by plain lists of values: generators of clients make
/// a type of each constant, and accept only the first.
fn plain_enums(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            let choices = fields.get("oneOf").and_then(Value::as_array);
            if let Some(values) = choices.and_then(|choices| constants(choices)) {
                fields.remove("oneOf");
                fields.insert("type".to_owned(), json!("string"));
                fields.insert("enum".to_owned(), values.into());
            }
            fields.values_mut().for_each(plain_enums);
        }
        Value::Array(items) => items.iter_mut().for_each(plain_enums),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The values of choices that are all texts.
fn constants(choices: &[Value]) -> Option<Vec<Value>> {
    let values = choices.iter().map(|choice| match (&choice["const"], &choice["enum"]) {
        (value @ Value::String(_), _) => Some(vec![value.clone()]),
        (_, Value::Array(values)) if choice["type"] == "string" => Some(values.clone()),
        _ => None,
    });
    Some(values.collect::<Option<Vec<_>>>()?.concat())
}

/// A schema of a request without default values: generators of clients take a field with one as
/// required.
fn without_defaults(mut schema: Value) -> Value {
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        for property in properties.values_mut().filter_map(Value::as_object_mut) {
            property.remove("default");
        }
    }
    schema
}

/// The tags of all operations.
fn tags(paths: &Map<String, Value>) -> Vec<Value> {
    let operations = paths.values().filter_map(Value::as_object).flat_map(Map::values);
    let tags = operations.filter_map(|operation| operation["tags"].as_array()).flatten();
    let tags: BTreeSet<&str> = tags.filter_map(Value::as_str).collect();
    tags.into_iter().map(|tag| json!({"name": tag})).collect()
}

fn operation(
    route: &Route,
    requests: &mut SchemaGenerator,
    answers: &mut SchemaGenerator,
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
        let description = match status {
            202 => "The work goes on.",
            _ => "The request succeeded.",
        };
        let response = responses
            .entry(status.to_string())
            .or_insert_with(|| json!({"description": description, "content": {}}));
        if route.has_key {
            response["headers"] = json!({
                "Location": {
                    "description": "The path of the work.",
                    "schema": {"type": "string"},
                },
                "Idempotent-Replayed": {
                    "description": "Present if an earlier request with the same key started the work.",
                    "schema": {"type": "string", "enum": ["true"]},
                },
            });
        }
        response["content"][media_type] = json!({"schema": schema});
    }
    let of_body: &[u16] = if route.request.is_some() { &BODY_PROBLEMS } else { &[] };
    for status in ROUTE_PROBLEMS.iter().chain(of_body).chain(route.problems) {
        let reference = format!("#/components/responses/problem_{status}");
        responses.insert(status.to_string(), json!({"$ref": reference}));
    }
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
        let mut content = json!({"schema": schema});
        if let Some(example) = &route.example {
            content["example"] = example.clone();
        }
        operation["requestBody"] =
            json!({"required": true, "content": {"application/json": content}});
    }
    operation
}

fn path_parameters(path: &str) -> Vec<Value> {
    let names = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let parameter = |name: &str| {
        let format = if name.ends_with("id") {
            json!({"type": "string", "format": "uuid"})
        } else if name == "tool" {
            json!({"type": "string", "minLength": 1})
        } else {
            json!({"type": "string", "pattern": "^[a-z][a-z0-9_]*$"})
        };
        json!({"name": name, "in": "path", "required": true, "schema": format})
    };
    names.map(parameter).collect()
}

fn query_parameters(schema: &Value) -> Vec<Value> {
    let properties = schema["properties"].as_object().cloned().unwrap_or_default();
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let parameter = |(name, mut schema): (String, Value)| {
        let is_required = required.iter().any(|one| *one == name);
        let description = schema.as_object_mut().and_then(|schema| schema.remove("description"));
        // A parameter that is left out has no value; none is null.
        if let Some(kinds) = schema["type"].as_array().cloned() {
            schema["type"] = kinds.into_iter().find(|kind| kind != "null").unwrap_or_default();
        }
        json!({"name": name, "in": "query", "required": is_required,
            "description": description, "schema": schema})
    };
    properties.into_iter().map(parameter).collect()
}

#[cfg(test)]
mod tests {
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
