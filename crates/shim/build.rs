//! Builds the embedded stub. It has no standard library, so Cargo cannot build it like the others.
#![allow(clippy::expect_used, reason = "a build that cannot go on must say why")]
#![allow(clippy::disallowed_methods, reason = "a build script starts the compiler")]

use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

fn main() {
    println!("cargo:rerun-if-changed=src");
    println!("cargo:rustc-check-cfg=cfg(embedded)");
    let var = |name: &str| env::var(name).expect("Cargo sets it");
    let embedded = PathBuf::from(var("OUT_DIR")).join("stub");
    let is_known =
        var("CARGO_CFG_TARGET_OS") == "linux" && var("CARGO_CFG_TARGET_ARCH") == "x86_64";
    if !is_known {
        return;
    }
    println!("cargo:rustc-cfg=embedded");
    let mut rustc = Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    rustc
        .args(["--edition", "2024", "--crate-name", "polity_shim", "--crate-type", "bin"])
        .args(["--target", &var("TARGET")])
        .args(["-C", "opt-level=s", "-C", "panic=abort", "-C", "strip=symbols"])
        // A fixed address needs no relocation at start.
        .args(["-C", "relocation-model=static"]);
    for flag in ["-nostartfiles", "-nostdlib", "-static", "-Wl,--build-id=none"] {
        rustc.arg("-C").arg(format!("link-arg={flag}"));
    }
    if let Some(linker) = env::var_os("RUSTC_LINKER") {
        rustc.arg("-C").arg(format!("linker={}", linker.display()));
    }
    rustc.arg("-o").arg(&embedded).arg("src/stub.rs");
    let status = rustc.status().expect("the compiler can be started");
    assert!(status.success(), "the shim cannot be built");
    assert!(fs::metadata(&embedded).is_ok_and(|built| built.len() > 0), "the shim is empty");
}
