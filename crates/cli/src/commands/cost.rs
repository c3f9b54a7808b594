//! `polity cost`: model usage by agent and day.

use std::collections::BTreeMap;

use polity_model::usage::Usage;
use serde_json::{Value, json};

use crate::app::AppContext;
use crate::args::{CostArgs, CostBy};
use crate::error::CliResult;
use crate::view::columns;

pub(crate) async fn cost(app: &AppContext, args: &CostArgs) -> CliResult {
    let mut sums: BTreeMap<Vec<String>, (u64, Usage)> = BTreeMap::new();
    let mut total = (0, Usage::default());
    for row in app.queries()?.spending().await? {
        let key = args.by.iter().map(|by| match by {
            CostBy::Agent => row.agent.to_string(),
            CostBy::Day => row.day.to_string(),
        });
        for sum in [sums.entry(key.collect()).or_default(), &mut total] {
            sum.0 += row.calls;
            sum.1 += row.usage;
        }
    }
    let name = |by: &CostBy| match by {
        CostBy::Agent => "agent",
        CostBy::Day => "day",
    };
    let document = |(key, (calls, usage)): (&Vec<String>, &(u64, Usage))| {
        let report = usage.report();
        let mut row = json!({
            "model_calls": calls,
            "input_tokens": report.input_tokens,
            "output_tokens": report.output_tokens,
            "cost_usd": report.cost_usd,
        });
        if report.tokens_incomplete {
            row["tokens_incomplete"] = json!(true);
        }
        if report.cost_incomplete {
            row["cost_incomplete"] = json!(true);
        }
        for (by, value) in args.by.iter().zip(key) {
            row[name(by)] = json!(value);
        }
        row
    };
    let documents: Vec<Value> = sums.iter().map(document).collect();
    let cells = |mut key: Vec<String>, (calls, usage): &(u64, Usage)| {
        let report = usage.report();
        key.push(calls.to_string());
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
    let mut heading: Vec<String> = args.by.iter().map(|by| name(by).to_uppercase()).collect();
    heading.extend(["CALLS", "INPUT", "OUTPUT", "COST"].map(str::to_owned));
    let heading: Vec<&str> = heading.iter().map(String::as_str).collect();
    let mut in_all = vec!["total".to_owned()];
    in_all.resize(args.by.len(), String::new());
    let rows = sums.into_iter().map(|(key, sum)| cells(key, &sum)).chain([cells(in_all, &total)]);
    app.print_list(&documents, "no model has been called yet", || columns(&heading, rows))
}
