//! Events of the journal and cassettes.
#![expect(clippy::expect_used, reason = "a target reports a broken promise by a panic")]

use polity_drivers::cassette::Cassette;
use polity_model::event::Event;

/// Reads an event. An event that is read is written and read back unchanged.
pub(crate) fn event(bytes: &[u8]) {
    let Ok(event) = serde_json::from_slice::<Event>(bytes) else { return };
    let text = serde_json::to_vec(&event).expect("an event that was read can be written");
    let again: Event = serde_json::from_slice(&text).expect("a written event can be read");
    assert_eq!(event, again);
}

/// Reads a cassette. A cassette that is read is written and read back unchanged.
pub(crate) fn cassette(bytes: &[u8]) {
    let Ok(cassette) = Cassette::parse(&String::from_utf8_lossy(bytes)) else { return };
    let text = cassette.to_text().expect("a cassette that was read can be written");
    let again = Cassette::parse(&text).expect("a written cassette can be read");
    assert_eq!(text, again.to_text().expect("a cassette that was read can be written"));
}
