//! The page of all HTTP routes, from the OpenAPI document.

use std::fmt::Write;

use serde_json::Value;

use super::GENERATED;

/// Writes the page.
pub(super) fn page(document: &Value) -> String {
    let mut text = format!("# HTTP API\n\n{GENERATED}\n");
    text.push_str(
        "The guide [run a server](../guides/server.md) explains tokens, waiting, idempotency keys, \
         events and errors. [openapi.json](openapi.json) has the schemas of all requests and \
         answers.\n\n| route | scope | effect | query |\n|---|---|---|---|\n",
    );
    let paths = document["paths"].as_object().into_iter().flatten();
    for (path, methods) in paths {
        for (method, operation) in methods.as_object().into_iter().flatten() {
            let described = operation["description"].as_str().unwrap_or_default();
            let scope = described.split('`').nth(1).unwrap_or("none");
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            let of_query = parameters.filter(|parameter| parameter["in"] == "query");
            let names: Vec<_> = of_query
                .filter_map(|parameter| parameter["name"].as_str())
                .map(|name| format!("`{name}`"))
                .collect();
            let summary = operation["summary"].as_str().unwrap_or_default();
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "| `{} {path}` | {scope} | {summary} | {} |",
                method.to_uppercase(),
                names.join(", ")
            );
        }
    }
    text
}
