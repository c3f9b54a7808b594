//! The same work in LangGraph, if Python and its packages are installed.

use std::process::{Command, Stdio};
use std::time::Duration;

use polity_testkit::bench::figure;
use serde_json::Value;

use crate::rounds::ROUNDS;
use crate::servers::{ModelProcess, model_name};

/// The variable with the path of Python; `cargo xtask bench` installs the packages.
const PYTHON: &str = "POLITY_BENCH_PYTHON";

const SCRIPT: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/peers/python-bench/tool_rounds.py");

pub(crate) fn compare(quick: bool, ours: Duration) {
    let Some(python) = std::env::var_os(PYTHON) else { return };
    let model = ModelProcess::start();
    let folder = crate::harness::folder();
    let [acting, answering] = [ROUNDS, 0].map(|rounds| model_name(rounds, Duration::ZERO));
    let output = Command::new(python)
        .arg(SCRIPT)
        .args(["--url", &format!("{}/v1", model.url), "--acting", &acting])
        .args(["--answering", &answering, "--rounds", &ROUNDS.to_string()])
        .args(["--tasks", if quick { "2" } else { "10" }, "--database"])
        .arg(folder.path().join("checkpoints.db"))
        .env("LANGSMITH_TRACING", "false")
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let time = |name: &str| report[name].as_f64();
    let (Some(cpu_ms), Some(clock_ms)) = (time("cpu_ms"), time("clock_ms")) else {
        eprintln!("── LangGraph could not be measured ({})", output.status);
        return;
    };
    let ours_ms = ours.as_secs_f64() * 1e3;
    figure(
        "the same tool round in LangGraph, tool in process, SqliteSaver",
        &format!(
            "{cpu_ms:.2} ms of its CPU, {:.1} times ours of {ours_ms:.2} ms ({clock_ms:.2} ms by \
             the clock)",
            cpu_ms / ours_ms
        ),
        "more than ours",
        cpu_ms > ours_ms,
    );
}
