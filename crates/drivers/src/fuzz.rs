//! Entry points for fuzzing: parsers of data from servers and programs. Each panics if the result
//! depends on the chunks in which the bytes arrive.

use std::convert::Infallible;
use std::sync::LazyLock;

use polity_masking::{RedactionSettings, SecretMask};
use reqwest::Url;

use crate::cli::RpcResponseScanner;
use crate::mcp::parse_message;
use crate::remote::AgentCard;
use crate::sse::{SseParser, StreamPosition};

/// The known secret that an input of the masking target may contain.
const SECRET: &str = "s3cret-Value/42";

/// Takes the chunk size from the first byte.
fn split(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (first, rest) = bytes.split_first()?;
    Some((usize::from(*first).max(1), rest))
}

/// Parses server-sent events, whole and in chunks. Events have no more bytes than the stream.
pub fn server_sent_events(bytes: &[u8]) {
    let Some((chunk_bytes, stream)) = split(bytes) else { return };
    let events = |size: usize| {
        let (mut parser, mut events) = (SseParser::default(), Vec::new());
        let mut last = StreamPosition::default();
        for chunk in stream.chunks(size) {
            let Ok(()) = parser.push(chunk, |event| {
                events.push((event.name.to_vec(), event.data.to_vec()));
                Ok::<(), Infallible>(())
            });
            if let Some(StreamPosition { id, retry_ms }) = parser.take_position() {
                last = StreamPosition { id: id.or(last.id), retry_ms: retry_ms.or(last.retry_ms) };
            }
        }
        (events, last)
    };
    let whole = events(stream.len().max(1));
    assert_eq!(events(chunk_bytes), whole);
    assert!(whole.0.iter().map(|(_, data)| data.len()).sum::<usize>() <= stream.len());
}

/// Masks a stream, whole and in chunks, with and without pauses. Neither a known secret, nor a token
/// on a line of its own, passes, whatever is around it.
pub fn masking(bytes: &[u8]) {
    let Some((chunk_bytes, text)) = split(bytes) else { return };
    let Some(mask) = &*MASK else { return };
    // Composed, so that no scanner takes it for a real one.
    let token = ["ghp", "_", "0a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R"].concat();
    let at = text.iter().position(|byte| *byte == b'\n').map_or(text.len(), |at| at + 1);
    let planted = [&text[..at], b"\n", token.as_bytes(), b"\n", &text[at..]].concat();
    let masked = |size: usize, rests: bool| {
        let (mut stream, mut out) = (mask.stream(), Vec::new());
        for chunk in planted.chunks(size) {
            stream.push(chunk, &mut out);
            if rests {
                stream.idle(&mut out);
            }
        }
        stream.finish(&mut out);
        out
    };
    let whole = masked(planted.len().max(1), false);
    assert_eq!(masked(chunk_bytes, false), whole);
    assert_eq!(masked(chunk_bytes, true), whole);
    for secret in [SECRET, &token] {
        assert!(memchr::memmem::find(&whole, secret.as_bytes()).is_none(), "a secret passed");
    }
}

static MASK: LazyLock<Option<SecretMask>> =
    LazyLock::new(|| SecretMask::new([SECRET], &RedactionSettings::default()).ok());

/// Parses a message of an MCP server. A message that is read can be written and read again.
pub fn mcp_message(bytes: &[u8]) {
    let Ok(Some(message)) = parse_message(bytes) else { return };
    let Ok(text) = serde_json::to_vec(&message) else { return };
    // Equality is no promise: of a repeated field, the parser keeps either value.
    assert!(matches!(parse_message(&text), Ok(Some(_))), "a written message cannot be read");
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
