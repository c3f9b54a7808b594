//! `polity schedule add` and `remove`: the file of a schedule.

use polity_engine::clock::SystemClock;
use polity_engine::runtime::remove_schedule;
use polity_engine::schedule::ScheduleCommand;
use polity_host::{add_schedule, delete_schedule, find_schedule};
use polity_model::name::Name;
use serde_json::{Map, Value, json};

use super::control::commit;
use super::is_served;
use crate::app::AppContext;
use crate::args::schedule::{ScheduleAddArgs, ScheduleArgs};
use crate::commands::run::parameters;
use crate::error::{CliError, CliResult};

/// The definition that the flags describe, in file order.
fn fields(args: &ScheduleAddArgs, name: &Name) -> Result<Vec<(String, Value)>, CliError> {
    let mut input = Map::new();
    input.extend(args.input.as_ref().map(|text| ("input".to_owned(), Value::from(text.as_str()))));
    for (name, value) in parameters(&args.params)? {
        if input.insert(name, value).is_some() {
            return Err(CliError::usage("the parameter \"input\" is given twice")
                .hint("--input is the parameter \"input\""));
        }
    }
    let mut dst = Map::new();
    for (name, value) in [("missing", &args.dst_missing), ("repeated", &args.dst_repeated)] {
        dst.extend(value.as_ref().map(|value| (name.to_owned(), Value::from(value.as_str()))));
    }
    let text = |value: &Option<String>| value.as_deref().map(Value::from);
    let fields = [
        ("name", Some(Value::from(name.as_str()))),
        ("agent", text(&args.agent)),
        ("workflow", text(&args.workflow)),
        ("cron_expression", Some(Value::from(args.cron.as_str()))),
        ("time_zone", text(&args.time_zone)),
        ("enabled", args.disabled.then_some(Value::Bool(false))),
        ("input_parameters", (!input.is_empty()).then_some(Value::Object(input))),
        ("overlap", text(&args.overlap)),
        ("catch_up", text(&args.catch_up)),
        ("catch_up_window_seconds", args.catch_up_window_seconds.map(|n| Value::from(n.get()))),
        ("jitter_seconds", args.jitter_seconds.map(Value::from)),
        ("pause_after_failures", args.pause_after_failures.map(|n| Value::from(n.get()))),
        ("dst", (!dst.is_empty()).then_some(Value::Object(dst))),
    ];
    let present = |(name, value): (&str, Option<Value>)| Some((name.to_owned(), value?));
    Ok(fields.into_iter().filter_map(present).collect())
}

pub(super) async fn add(app: &AppContext, args: &ScheduleAddArgs) -> CliResult {
    let name: Name = args.name.parse().map_err(|error| CliError::usage(&error))?;
    let path = add_schedule(&app.context, &name, &fields(args, &name)?)?;
    let is_served = is_served(app);
    if is_served {
        // The server reads the files again when it sees the record.
        let home = app.definitions()?;
        let definition = find_schedule(&home, name.as_str())?;
        commit(app, &home, &definition, &ScheduleCommand::Register).await?;
    }
    app.print(&json!({"name": name, "file": path}), || {
        if is_served {
            format!("wrote {path}; the server starts it at its times")
        } else {
            format!("wrote {path}; it starts at its times while `polity serve` runs")
        }
    })
}

pub(super) async fn remove(app: &AppContext, args: &ScheduleArgs) -> CliResult {
    let home = app.definitions()?;
    let name = match args.name.parse::<Name>() {
        Ok(name) => name,
        Err(_) => find_schedule(&home, &args.name)?.name.clone(),
    };
    delete_schedule(&app.context, &home, &name)?;
    if app.folder().database().exists() {
        let store = app.context.open_writer(&home)?;
        remove_schedule(&store, &SystemClock, &name).await?;
    }
    app.print(&json!({"name": name, "removed": true}), || {
        format!("removed the schedule {name}; its history and its tasks stay")
    })
}
