//! `cargo xtask fuzz`: runs the fuzz targets under libFuzzer, with coverage of this workspace only.
//!
//! The instrumentation is a set of compiler flags that the stable toolchain accepts. xtask itself
//! is the compiler wrapper that adds them, so that dependencies are shared with the tests.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use polity_fuzz::{FuzzTarget, TARGETS, find_target};

use crate::run::{cargo, root, step, target_folder};

/// Marks a process as the compiler wrapper.
const WRAPPER: &str = "XTASK_COVERAGE_WRAPPER";

/// The duration per target in the short run of the tests, and in the long one.
pub(crate) const SHORT_RUN: Duration = Duration::from_secs(10);
pub(crate) const LONG_RUN: Duration = Duration::from_mins(2);

/// The seconds after which one input counts as a hang, and the memory limit in megabytes.
const INPUT_SECONDS_MAX: u32 = 60;
const MEMORY_MB_MAX: u32 = 2048;

/// The largest generated input, in bytes.
const INPUT_BYTES_MAX: u32 = 16_384;

/// Compiler flags for coverage counters, as libFuzzer reads them.
const COVERAGE_FLAGS: [&str; 6] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Ccodegen-units=1",
];

/// Acts as the compiler if this process is the wrapper.
pub(crate) fn compile_if_wrapper() -> Option<ExitCode> {
    std::env::var_os(WRAPPER)?;
    let mut arguments = std::env::args_os().skip(1);
    let mut rustc = Command::new(arguments.next()?);
    let arguments: Vec<OsString> = arguments.collect();
    // A build script is no part of the fuzzer, and could not be linked without its runtime.
    let is_build_script = arguments.iter().any(|argument| argument == "build_script_build");
    rustc.args(&arguments);
    if !is_build_script && arguments.iter().any(|argument| argument == "--crate-name") {
        rustc.args(COVERAGE_FLAGS);
    }
    let succeeded = rustc.status().is_ok_and(|status| status.success());
    Some(if succeeded { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs one target, or all, for this long each.
pub(crate) fn fuzz(name: Option<&str>, duration: Duration) -> Result<()> {
    let targets: Vec<&FuzzTarget> = match name {
        None => TARGETS.iter().collect(),
        Some(name) => vec![find_target(name).with_context(|| {
            let names: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
            format!("there is no fuzz target \"{name}\"; the targets are {}", names.join(", "))
        })?],
    };
    let fuzzer = build()?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    for batch in targets.chunks(cores) {
        let running: Vec<_> =
            batch.iter().map(|target| start(&fuzzer, target, duration)).collect::<Result<_>>()?;
        for mut run in running {
            run.finish()?;
        }
    }
    Ok(())
}

fn build() -> Result<PathBuf> {
    let mut command = cargo(&[
        "build",
        "--package",
        "polity-fuzz",
        "--bin",
        "polity-fuzz",
        "--features",
        "libfuzzer",
    ]);
    command.env("RUSTC_WORKSPACE_WRAPPER", std::env::current_exe()?).env(WRAPPER, "1");
    step("the fuzzer", command)?;
    Ok(target_folder().join("debug/polity-fuzz"))
}

/// A target under the fuzzer.
struct FuzzRun {
    name: &'static str,
    child: std::process::Child,
    log: PathBuf,
    findings: PathBuf,
}

fn start(fuzzer: &Path, target: &FuzzTarget, duration: Duration) -> Result<FuzzRun> {
    let folder = target_folder().join("fuzz").join(target.name);
    let (found, findings, log) =
        (folder.join("corpus"), folder.join("findings"), folder.join("log"));
    for folder in [&found, &findings] {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    let stored = root().join("fuzz/corpus").join(target.name);
    ensure!(stored.is_dir(), "{} is missing: add a first input", stored.display());
    let output = fs::File::create(&log).with_context(|| log.display().to_string())?;
    let mut command = Command::new(fuzzer);
    command.env("POLITY_FUZZ_TARGET", target.name);
    command.arg(&found).arg(stored);
    command.arg(format!("-artifact_prefix={}/", findings.display()));
    command.arg(format!("-max_total_time={}", duration.as_secs()));
    command.arg(format!("-timeout={INPUT_SECONDS_MAX}"));
    command.arg(format!("-rss_limit_mb={MEMORY_MB_MAX}"));
    command.arg(format!("-max_len={INPUT_BYTES_MAX}"));
    command.args(["-print_final_stats=1", "-verbosity=0"]);
    command.stdout(output.try_clone()?).stderr(output);
    let child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
    Ok(FuzzRun { name: target.name, child, log, findings })
}

impl FuzzRun {
    fn finish(&mut self) -> Result<()> {
        let status = self.child.wait()?;
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        if !status.success() {
            let tail: Vec<_> = log.lines().rev().take(40).collect();
            let tail: Vec<_> = tail.into_iter().rev().collect();
            bail!(
                "fuzzing {} failed ({status}); the input is in {}. Add it to fuzz/corpus/{} with \
                 the fix.\n{}",
                self.name,
                self.findings.display(),
                self.name,
                tail.join("\n")
            );
        }
        let stat = |name: &str| {
            let line = log.lines().find(|line| line.contains(name)).unwrap_or_default();
            line.rsplit(' ').next().unwrap_or_default().to_owned()
        };
        let (runs, new) = (stat("number_of_executed_units"), stat("new_units_added"));
        eprintln!("   {}: {runs} inputs, {new} of them new", self.name);
        Ok(())
    }
}
