//! `polity cost`: model usage by agent and day.

use polity_host::views::{CostKey, CostSum};
use polity_model::usage::UsageReport;
use serde_json::Value;

use crate::app::AppContext;
use crate::args::{CostArgs, CostBy, GlobalOptions};
use crate::error::CliResult;
use crate::view::columns;

pub(crate) async fn cost(app: &AppContext, args: &CostArgs) -> CliResult {
    let keys = keys(args);
    let sums = CostSum::by_keys(&app.queries()?.spending().await?, &keys);
    let documents: Vec<Value> = sums.iter().map(|sum| sum.to_json(&keys)).collect();
    print(&app.options, &keys, &documents)
}

/// The keys of the sums.
pub(crate) fn keys(args: &CostArgs) -> Vec<CostKey> {
    let key = |by: &CostBy| match by {
        CostBy::Agent => CostKey::Agent,
        CostBy::Day => CostKey::Day,
    };
    args.by.iter().map(key).collect()
}

/// Prints sums of costs, and their total.
pub(crate) fn print(options: &GlobalOptions, keys: &[CostKey], sums: &[Value]) -> CliResult {
    let mut heading: Vec<String> = keys.iter().map(|key| key.as_str().to_uppercase()).collect();
    heading.extend(["CALLS", "INPUT", "OUTPUT", "COST"].map(str::to_owned));
    let heading: Vec<&str> = heading.iter().map(String::as_str).collect();
    let calls = |sum: &Value| sum["model_calls"].as_u64().unwrap_or(0);
    let mut in_all = vec!["total".to_owned()];
    in_all.resize(keys.len(), String::new());
    let rows = sums.iter().map(|sum| {
        let key = keys.iter().map(|key| sum[key.as_str()].as_str().unwrap_or_default().to_owned());
        cells(key.collect(), calls(sum), &report(sum))
    });
    let total = cells(in_all, sums.iter().map(calls).sum(), &total(sums));
    options
        .print_list(sums, "no model has been called yet", || columns(&heading, rows.chain([total])))
}

/// The usage of one sum.
fn report(sum: &Value) -> UsageReport {
    let flag = |field: &str| sum[field] == true;
    UsageReport {
        input_tokens: sum["input_tokens"].as_u64(),
        output_tokens: sum["output_tokens"].as_u64(),
        cost_usd: sum["cost_usd"].as_f64(),
        tokens_incomplete: flag("tokens_incomplete"),
        cost_incomplete: flag("cost_incomplete"),
        estimated_tokens: None,
    }
}

/// The usage of all sums together. What is unknown in one is unknown in the total.
fn total(sums: &[Value]) -> UsageReport {
    let reports: Vec<UsageReport> = sums.iter().map(report).collect();
    let tokens_incomplete = reports.iter().any(|report| report.tokens_incomplete);
    let cost_incomplete = reports.iter().any(|report| report.cost_incomplete);
    let tokens = |of: fn(&UsageReport) -> Option<u64>| {
        let sum: u64 = reports.iter().filter_map(of).sum();
        Some(sum).filter(|sum| *sum > 0 || !tokens_incomplete)
    };
    let cost: f64 = reports.iter().filter_map(|report| report.cost_usd).sum();
    UsageReport {
        input_tokens: tokens(|report| report.input_tokens),
        output_tokens: tokens(|report| report.output_tokens),
        cost_usd: Some(cost).filter(|cost| *cost > 0.0 || !cost_incomplete),
        tokens_incomplete,
        cost_incomplete,
        estimated_tokens: None,
    }
}

fn cells(mut key: Vec<String>, calls: u64, report: &UsageReport) -> Vec<String> {
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
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn total_is_a_lower_bound_if_a_part_is_unknown() {
        let known =
            json!({"model_calls": 2, "input_tokens": 7, "output_tokens": 1, "cost_usd": 0.5});
        let unknown = json!({
            "model_calls": 1, "input_tokens": null, "output_tokens": null, "cost_usd": null,
            "tokens_incomplete": true, "cost_incomplete": true,
        });
        let all = total(&[known.clone(), unknown.clone()]);
        assert_eq!((all.input_tokens, all.tokens_incomplete), (Some(7), true));
        assert_eq!(all.cost_text(), "at least $0.5000");
        assert_eq!(total(&[known]).cost_text(), "$0.5000");
        assert_eq!(total(&[unknown]).input_tokens, None);
        assert_eq!(total(&[]).input_tokens, Some(0));
    }
}
