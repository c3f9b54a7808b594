//! The fuzzer's executable: runs the target that `POLITY_FUZZ_TARGET` names.
#![no_main]
#![allow(clippy::disallowed_methods, reason = "the target is chosen by an environment variable")]

use std::sync::LazyLock;

use polity_fuzz::FuzzTarget;

static TARGET: LazyLock<&FuzzTarget> = LazyLock::new(|| {
    let name = std::env::var("POLITY_FUZZ_TARGET").unwrap_or_default();
    polity_fuzz::find_target(&name).unwrap_or_else(|| {
        eprintln!("POLITY_FUZZ_TARGET names no target: {name:?}");
        std::process::exit(2);
    })
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (TARGET.run)(bytes));
