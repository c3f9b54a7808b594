//! `cargo xtask test`: all checks.

use anyhow::Result;

use crate::run::{cargo, step};
use crate::{fuzz, generate, house, peers, soak};

/// The number of random histories per fault test in the long run. In the short run each test has
/// its own, smaller number.
const LONG_CASES: &str = "5000";

pub(crate) fn test(long: bool) -> Result<()> {
    step("formatting", cargo(&["fmt", "--all", "--check"]))?;
    house::check()?;
    step("lints", cargo(&["clippy", "--workspace", "--all-targets", "--", "--deny", "warnings"]))?;
    let bare =
        ["clippy", "--package", "polity", "--no-default-features", "--", "--deny", "warnings"];
    step("lints without telemetry", cargo(&bare))?;
    peers::install(long)?;
    let mut tests = cargo(&["test", "--workspace"]);
    if long {
        tests.env("PROPTEST_CASES", LONG_CASES).env("POLITY_TEST_LONG", "1");
    }
    step("tests", tests)?;
    soak::soak(if long { soak::LONG_RUN } else { soak::SHORT_RUN }, None)?;
    fuzz::fuzz(None, if long { fuzz::LONG_RUN } else { fuzz::SHORT_RUN })?;
    let mut docs = cargo(&["doc", "--workspace", "--no-deps", "--document-private-items"]);
    docs.env("RUSTDOCFLAGS", "--deny warnings");
    step("documentation", docs)?;
    generate::generate(true)?;
    eprintln!("all checks passed");
    Ok(())
}
