//! Third-party programs to test against. `cargo xtask peers` installs them.

use std::path::{Path, PathBuf};

/// The entry point of an MCP server from npm, for Node.
pub fn npm_server(name: &str) -> PathBuf {
    installed(&format!("npm/node_modules/@modelcontextprotocol/{name}/dist/index.js"))
}

/// A program from PyPI.
pub fn python_program(name: &str) -> PathBuf {
    installed(&format!("python/bin/{name}"))
}

/// A CLI agent from npm, by its command.
pub fn npm_agent(name: &str) -> PathBuf {
    installed(&format!("npm-agents/node_modules/.bin/{name}"))
}

/// A CLI agent from npm that only the long test run installs.
pub fn npm_agent_of_the_long_run(name: &str) -> PathBuf {
    installed(&format!("npm-agents-long/node_modules/.bin/{name}"))
}

/// A CLI agent shipped as a binary per platform, in a package named after the platform.
pub fn native_agent(packages: &str, prefix: &str, program: &str) -> PathBuf {
    let folder = installed(&format!("npm-agents-long/node_modules/{packages}"));
    let packages = folder.read_dir().expect("a folder").filter_map(Result::ok);
    packages
        .filter(|package| package.file_name().to_string_lossy().starts_with(prefix))
        .map(|package| package.path().join(program))
        .find(|program| program.exists())
        .unwrap_or_else(|| panic!("{prefix}* is not in {}", folder.display()))
}

/// A CLI agent from `PyPI` that only the long test run installs.
pub fn python_agent(name: &str) -> PathBuf {
    installed(&format!("python-{name}/bin/{name}"))
}

/// The Python interpreter with the A2A SDK.
pub fn a2a_python() -> PathBuf {
    installed("python-a2a/bin/python")
}

/// The Python interpreter with the A2A SDK before 1.0.
pub fn a2a_python_03() -> PathBuf {
    installed("python-a2a-03/bin/python")
}

/// The folder of the A2A JavaScript SDK.
pub fn a2a_javascript() -> PathBuf {
    installed("npm-a2a")
}

/// The folder of the third-party chart readers.
pub fn charts() -> PathBuf {
    installed("npm-charts")
}

/// The folder of `tsx`, which runs TypeScript files with any Node.js.
pub fn typescript() -> PathBuf {
    installed("npm-typescript/node_modules/.bin")
}

/// A program from `PyPI` that reads OpenAPI documents: `schemathesis`, `openapi-python-client`, or the
/// `python` with them.
pub fn api_tester(name: &str) -> PathBuf {
    installed(&format!("python-http/bin/{name}"))
}

/// The folder of the generator of TypeScript clients.
pub fn http_javascript() -> PathBuf {
    installed("npm-http")
}

/// A script next to the peers' manifests.
pub fn script(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/peers").join(path)
}

/// Rotel, an OpenTelemetry collector.
pub fn collector() -> PathBuf {
    // The folder of packages depends on the Python version.
    let libraries = installed("python/lib").read_dir().expect("a folder");
    libraries
        .filter_map(|library| Some(library.ok()?.path().join("site-packages/rotel/rotel-agent")))
        .find(|agent| agent.exists())
        .unwrap_or_else(|| installed("python/lib/site-packages/rotel/rotel-agent"))
}

fn installed(path: &str) -> PathBuf {
    let path = target().join("peers").join(path);
    assert!(
        path.exists(),
        "{} is missing: run `cargo xtask test` (or `cargo xtask peers`) first, with `--long` for the \
         long run",
        path.display()
    );
    path
}

/// Cargo's target folder.
#[expect(clippy::disallowed_methods, reason = "only Cargo knows where it builds")]
fn target() -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    match std::env::var("CARGO_TARGET_DIR") {
        Ok(folder) => workspace.join(folder),
        Err(_) => workspace.join("target"),
    }
}
