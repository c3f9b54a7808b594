//! Fuzz targets: one function for each parser of data that others wrote.
//!
//! A target panics when the code under test breaks a promise: it panics itself, gives another result
//! for the same bytes in other chunks, exceeds a limit, does not read back what it wrote, or shows a
//! secret. `cargo xtask fuzz` mutates the inputs in `corpus/` under coverage guidance; the tests of
//! this crate run every stored input once.

mod definitions;
mod evaluation;
mod records;

/// A fuzz target.
#[derive(Debug, Clone, Copy)]
pub struct FuzzTarget {
    /// The name, which is also the folder of its corpus.
    pub name: &'static str,
    /// Runs one input. Panics if it breaks a promise.
    pub run: fn(&[u8]),
}

/// All targets, by name.
pub const TARGETS: [FuzzTarget; 17] = [
    target("a2a_card", polity_drivers::fuzz::agent_card),
    target("archive", polity_host::fuzz::archive_journals),
    target("cassette", records::cassette),
    target("cel", evaluation::condition),
    target("chart", evaluation::chart),
    target("checkpoint", polity_simulator::fuzz::checkpoint),
    target("checkpoint_compact", polity_simulator::fuzz::compact_checkpoint),
    target("definition", definitions::home_file),
    target("event", records::event),
    target("expression", evaluation::expression),
    target("json_schema", definitions::json_schema),
    target("masking", polity_drivers::fuzz::masking),
    target("mcp_message", polity_drivers::fuzz::mcp_message),
    target("program_json_rpc", polity_drivers::fuzz::program_json_rpc),
    target("sse", polity_drivers::fuzz::server_sent_events),
    target("template", evaluation::template),
    target("terminal", polity::fuzz::terminal_text),
];

const fn target(name: &'static str, run: fn(&[u8])) -> FuzzTarget {
    FuzzTarget { name, run }
}

/// Returns the target of this name.
pub fn find_target(name: &str) -> Option<&'static FuzzTarget> {
    TARGETS.iter().find(|target| target.name == name)
}
