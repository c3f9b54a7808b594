//! Tool names on the wire. Providers allow letters, digits, `_` and `-`, and 64 characters.
//!
//! `files/read_file` becomes `files__read_file`. A hash of the full name is appended if that is not
//! allowed or could collide with another tool.

use polity_engine::driver::{ToolSpec, Toolbox};

/// The longest name that every provider accepts.
const NAME_BYTES_MAX: usize = 64;

/// The separator between server and tool.
const SEPARATOR: &str = "__";

/// The wire name of a recorded call without a tool name.
const NAMELESS: &str = "unknown";

/// The offered tools with their wire names.
pub(crate) struct WireToolNames<'a> {
    named: Vec<(String, &'a ToolSpec)>,
}

impl<'a> WireToolNames<'a> {
    pub(crate) fn new(toolbox: &'a Toolbox) -> Self {
        let mut named: Vec<(String, &'a ToolSpec)> = Vec::with_capacity(toolbox.offered().len());
        for tool in toolbox.offered() {
            let name = wire_name(tool.name.server(), tool.name.tool());
            // Only a crafted name can collide.
            if named.iter().any(|(taken, _)| *taken == name) {
                tracing::warn!(tool = %tool.name, "not offered: another tool has its name");
            } else {
                named.push((name, tool));
            }
        }
        Self { named }
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &'a ToolSpec)> {
        self.named.iter().map(|(name, tool)| (&**name, *tool))
    }

    /// Resolves a wire name to server and tool. A name that was not offered is split at the first
    /// separator; without one, the server is empty.
    pub(crate) fn resolve(&self, name: &str) -> (String, String) {
        if let Some((_, tool)) = self.named.iter().find(|(known, _)| known == name) {
            return (tool.name.server().to_owned(), tool.name.tool().to_owned());
        }
        let (server, tool) = [SEPARATOR, "/", "."]
            .iter()
            .find_map(|separator| name.split_once(separator))
            .unwrap_or(("", name));
        (server.to_owned(), tool.to_owned())
    }
}

/// The wire name of a tool. It depends only on the tool, so a conversation stays valid when other
/// tools are added.
pub(crate) fn wire_name(server: &str, tool: &str) -> String {
    let mut name = String::with_capacity(NAME_BYTES_MAX);
    name.push_str(server);
    if !server.is_empty() {
        name.push_str(SEPARATOR);
    }
    name.push_str(tool);
    // The first separator is then the inserted one.
    let is_plain = !server.contains(SEPARATOR) && !server.ends_with('_');
    if is_plain && (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_allowed) {
        return name;
    }
    if name.is_empty() {
        return NAMELESS.into();
    }
    let mut allowed: String =
        name.chars().map(|c| if u8::try_from(c).is_ok_and(is_allowed) { c } else { '_' }).collect();
    let hash = format!("_{:016x}", hash(server, tool));
    allowed.truncate(NAME_BYTES_MAX - hash.len());
    allowed + &hash
}

fn is_allowed(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

/// FNV-1a: stable across processes and versions, as names in a conversation must be.
fn hash(server: &str, tool: &str) -> u64 {
    let bytes = server.bytes().chain([b'/']).chain(tool.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use serde_json::Map;

    use super::*;

    fn toolbox(names: &[&str]) -> Toolbox {
        let tool = |name: &&str| {
            let (name, second) = (name.parse().unwrap(), Duration::from_secs(1));
            let (text, schema) = (String::new(), Map::new());
            Arc::new(ToolSpec::new(name, text, schema, None, false, second, Vec::new()))
        };
        Toolbox::new(names.iter().map(tool).collect(), Vec::new())
    }

    #[test]
    fn wire_names_are_valid_unique_and_reversible() {
        let long = format!("files/{}", "x".repeat(128));
        let longer_end = format!("files/{}y", "x".repeat(127));
        let names = [
            "files/read_file",
            "files/read-file",
            "files/read.file",
            "files/read_.file",
            "files/read/file",
            "files/read/",
            "a/b__c",
            "a__b/c",
            "a_/b",
            "a/_b",
            &long,
            &longer_end,
        ];
        let toolbox = toolbox(&names);
        let known = WireToolNames::new(&toolbox);
        assert_eq!(known.iter().len(), names.len());
        for ((wire, _), name) in known.iter().zip(names) {
            assert!((1..=64).contains(&wire.len()) && wire.bytes().all(is_allowed), "{wire}");
            let (server, tool) = known.resolve(wire);
            assert_eq!(format!("{server}/{tool}"), name);
        }
        let (first, _) = known.iter().next().unwrap();
        assert_eq!(first, "files__read_file");
        assert_eq!(wire_name("files", "read.file"), "files__read_file_5252ade322b00ebf");
    }

    #[test]
    fn splits_names_that_were_not_offered() {
        let toolbox = Toolbox::default();
        let known = WireToolNames::new(&toolbox);
        for (name, server, tool) in [
            ("files__read", "files", "read"),
            ("files/read", "files", "read"),
            ("files.read", "files", "read"),
            ("read", "", "read"),
            ("", "", ""),
        ] {
            assert_eq!(known.resolve(name), (server.to_owned(), tool.to_owned()), "{name}");
        }
    }

    #[test]
    fn invented_names_become_valid_wire_names() {
        assert_eq!(wire_name("", "read"), "read");
        assert_eq!(wire_name("", ""), "unknown");
        let odd = wire_name("", "öl & gas/oil");
        assert!(odd.bytes().all(is_allowed), "{odd}");
    }
}
