//! The same work done by LangGraph, where Python and its packages are at hand.

use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::measure::figure;
use crate::rounds::ROUNDS;
use crate::servers::{ModelProcess, model_name};

/// The variable that names the Python with the packages; `cargo xtask bench` installs them.
const PYTHON: &str = "POLITY_BENCH_PYTHON";

const SCRIPT: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/peers/python-bench/tool_rounds.py");

pub(crate) fn compare(quick: bool, ours: Duration) {
    let Some(python) = std::env::var_os(PYTHON) else { return };
    let model = ModelProcess::start();
    let folder = crate::workshop::folder();
    let output = Command::new(python)
        .arg(SCRIPT)
        .args([&format!("{}/v1", model.url), &model_name(ROUNDS, Duration::ZERO), &ROUNDS.to_string()])
        .arg(if quick { "2" } else { "10" })
        .arg(folder.path().join("checkpoints.db"))
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    let told: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let Some(cpu_ms) = told["cpu_ms"].as_f64() else {
        eprintln!("── LangGraph could not be measured ({})", output.status);
        return;
    };
    let ours_ms = ours.as_secs_f64() * 1e3;
    figure(
        "the same tool round in LangGraph, tool in process, SqliteSaver",
        &format!("{cpu_ms:.2} ms of its CPU, {:.1} times ours ({ours_ms:.2} ms)", cpu_ms / ours_ms),
        "more than ours",
        cpu_ms > ours_ms,
    );
}
