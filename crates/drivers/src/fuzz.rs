//! Entry points for fuzzing: parsers of data from servers and programs. Each panics if the result
//! depends on the chunks in which the bytes arrive.

use std::convert::Infallible;

use polity_definition::RedactionSettings;
use reqwest::Url;

use crate::cli::RpcResponseScanner;
use crate::masking::SecretMask;
use crate::mcp::parse_message;
use crate::remote::AgentCard;
use crate::sse::SseParser;

/// The known secret that an input of the masking target may contain.
const SECRET: &str = "s3cret-Value/42";

/// Takes the chunk size from the first byte.
fn split(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (first, rest) = bytes.split_first()?;
    Some((usize::from(*first).max(1), rest))
}

/// Parses server-sent events, whole and in chunks.
pub fn server_sent_events(bytes: &[u8]) {
    let Some((chunk_bytes, stream)) = split(bytes) else { return };
    let events = |size: usize| {
        let (mut parser, mut events) = (SseParser::default(), Vec::new());
        for chunk in stream.chunks(size) {
            let Ok(()) = parser.push(chunk, |event| {
                events.push((event.name.to_vec(), event.data.to_vec()));
                Ok::<(), Infallible>(())
            });
        }
        events
    };
    assert_eq!(events(chunk_bytes), events(stream.len().max(1)));
}

/// Masks a stream, whole and in chunks. A known secret never passes.
pub fn masking(bytes: &[u8]) {
    let Some((chunk_bytes, text)) = split(bytes) else { return };
    let Ok(mask) = SecretMask::new([SECRET], &RedactionSettings::default()) else { return };
    let masked = |size: usize| {
        let (mut stream, mut out) = (mask.stream(), Vec::new());
        text.chunks(size).for_each(|chunk| stream.push(chunk, &mut out));
        stream.finish(&mut out);
        out
    };
    let whole = masked(text.len().max(1));
    assert_eq!(masked(chunk_bytes), whole);
    assert!(memchr::memmem::find(&whole, SECRET.as_bytes()).is_none(), "a known secret passed");
}

/// Parses a message of an MCP server.
pub fn mcp_message(bytes: &[u8]) {
    drop(parse_message(bytes));
}

/// Parses the answer of a program that speaks JSON-RPC, whole and in chunks.
pub fn program_json_rpc(bytes: &[u8]) {
    let Some((chunk_bytes, stream)) = split(bytes) else { return };
    let response = |size: usize| {
        let mut scanner = RpcResponseScanner::default();
        stream.chunks(size).for_each(|chunk| scanner.push(chunk));
        scanner.finish()
    };
    assert_eq!(response(chunk_bytes), response(stream.len().max(1)));
}

/// Parses an agent card and selects an interface from it. A token stays at the card's origin.
pub fn agent_card(bytes: &[u8]) {
    let Ok(card) = serde_json::from_slice::<AgentCard>(bytes) else { return };
    let Ok(url) = Url::parse("https://agents.test/card.json") else { return };
    // A card without a usable interface is a valid outcome.
    drop(card.select_interface(&url, None));
    if let Ok(interface) = card.select_interface(&url, Some("TOKEN")) {
        assert_eq!(interface.url.origin(), url.origin(), "the token would leave its origin");
    }
}
