//! The same work done by LangGraph, if Python and its packages are installed.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::steps::NODES;

/// The variable that names the Python with the packages; `cargo xtask bench` installs them.
const PYTHON: &str = "POLITY_BENCH_PYTHON";

const SCRIPT: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/peers/python-bench/noop_steps.py");

/// A LangGraph process that waits for requests.
pub(crate) struct LangGraphPeer {
    child: Child,
    ask: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl LangGraphPeer {
    /// Starts it, if Python is configured.
    pub(crate) fn start(folder: &Path) -> Option<Self> {
        let python = std::env::var_os(PYTHON)?;
        let mut child = Command::new(python)
            .arg(SCRIPT)
            .args(["--nodes", &NODES.to_string(), "--database"])
            .arg(folder.join("langgraph.db"))
            .env("LANGSMITH_TRACING", "false")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let ask = child.stdin.take().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Some(Self { child, ask, answers })
    }

    /// Measures its steps per second.
    pub(crate) fn rate(&mut self) -> f64 {
        self.ask.write_all(b"go\n").unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line.trim().parse().unwrap()
    }
}

impl Drop for LangGraphPeer {
    fn drop(&mut self) {
        // It ends when its input closes; this only avoids the wait.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
