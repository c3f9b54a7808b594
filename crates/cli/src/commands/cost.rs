//! `polity cost`: model usage by agent and day.

use polity_host::views::{CostKey, CostSum};
use serde_json::Value;

use crate::app::AppContext;
use crate::args::{CostArgs, CostBy};
use crate::error::CliResult;
use crate::view::columns;

pub(crate) async fn cost(app: &AppContext, args: &CostArgs) -> CliResult {
    let keys: Vec<CostKey> = args
        .by
        .iter()
        .map(|by| match by {
            CostBy::Agent => CostKey::Agent,
            CostBy::Day => CostKey::Day,
        })
        .collect();
    let rows = app.queries()?.spending().await?;
    let sums = CostSum::by_keys(&rows, &keys);
    let documents: Vec<Value> = sums.iter().map(|sum| sum.to_json(&keys)).collect();
    let cells = |mut key: Vec<String>, sum: &CostSum| {
        let report = sum.usage.report();
        key.push(sum.calls.to_string());
        for tokens in [report.input_tokens, report.output_tokens] {
            key.push(match tokens {
                None => "unknown".to_owned(),
                Some(count) if report.tokens_incomplete => format!("at least {count}"),
                Some(count) => count.to_string(),
            });
        }
        key.push(report.cost_text());
        key
    };
    let mut heading: Vec<String> = keys.iter().map(|key| key.as_str().to_uppercase()).collect();
    heading.extend(["CALLS", "INPUT", "OUTPUT", "COST"].map(str::to_owned));
    let heading: Vec<&str> = heading.iter().map(String::as_str).collect();
    let mut in_all = vec!["total".to_owned()];
    in_all.resize(keys.len(), String::new());
    let total = CostSum::by_keys(&rows, &[]).pop().unwrap_or_default();
    let table = sums.iter().map(|sum| cells(sum.key.clone(), sum)).chain([cells(in_all, &total)]);
    app.print_list(&documents, "no model has been called yet", || columns(&heading, table))
}
