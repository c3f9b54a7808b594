//! Renders the result of a tool call as text for a model.

use polity_engine::driver::ToolReply;
use rmcp::model::{CallToolResult, ContentBlock, Resource, ResourceContents};
use serde_json::Value;

/// The ratio of bytes to Base64 characters.
const BASE64_BYTES: (usize, usize) = (3, 4);

/// Converts a result, truncated to `bytes_max`.
pub(super) fn to_reply(result: CallToolResult, bytes_max: usize) -> ToolReply {
    let structured = result.structured_content;
    let blocks: Vec<_> = result.content.into_iter().map(text_of).collect();
    let json = structured.as_ref().map(Value::to_string);
    let text = match &json {
        // Servers should also send a structured result as text; not all do.
        Some(json) if blocks.is_empty() => json.clone(),
        Some(_) | None => blocks.join("\n"),
    };
    let too_long = |text: &String| text.len() > bytes_max;
    let structured_is_cut = json.as_ref().is_some_and(too_long);
    ToolReply {
        is_cut: structured_is_cut || too_long(&text),
        content: truncated(text, bytes_max),
        // Truncated JSON is useless; its beginning is in the text.
        structured: structured.filter(|_| !structured_is_cut),
        is_error: result.is_error.unwrap_or(false),
        code: None,
    }
}

/// Truncates a text and appends a notice.
fn truncated(mut text: String, bytes_max: usize) -> String {
    let bytes = text.len();
    if bytes > bytes_max {
        text.truncate(text.floor_char_boundary(bytes_max));
        let mark =
            format!("[truncated: {bytes} bytes, of which one tool result may have {bytes_max}]");
        text.push('\n');
        text.push_str(&mark);
    }
    text
}

fn text_of(block: ContentBlock) -> String {
    match block {
        ContentBlock::Text(text) => text.text,
        ContentBlock::Image(image) => data("image", &image.mime_type, &image.data),
        ContentBlock::Audio(audio) => data("audio", &audio.mime_type, &audio.data),
        ContentBlock::Resource(resource) => match resource.resource {
            ResourceContents::TextResourceContents { uri, text, .. } => {
                format!("[resource {uri}]\n{text}")
            }
            ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
                let kind = mime_type.unwrap_or_else(|| "unknown type".to_owned());
                data(&format!("resource {uri}"), &kind, &blob)
            }
            _ => "[resource of an unknown form]".to_owned(),
        },
        ContentBlock::ResourceLink(link) => link_to(&link),
        _ => "[content of an unknown form]".to_owned(),
    }
}

fn data(what: &str, kind: &str, base64: &str) -> String {
    let digits = base64.trim_end_matches('=').len();
    format!("[{what}: {kind}, {} bytes]", digits * BASE64_BYTES.0 / BASE64_BYTES.1)
}

fn link_to(link: &Resource) -> String {
    let kind = link.mime_type.as_deref().map(|kind| format!(", {kind}")).unwrap_or_default();
    let about = link.description.as_deref().map(|about| format!(": {about}")).unwrap_or_default();
    format!("[link to {}: {}{kind}{about}]", link.name, link.uri)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn reply_to(result: Value, bytes_max: usize) -> ToolReply {
        to_reply(serde_json::from_value(result).unwrap(), bytes_max)
    }

    #[test]
    fn renders_every_content_kind_as_text() {
        let content = json!([
            {"type": "text", "text": "one"},
            {"type": "text", "text": "two"},
            {"type": "image", "mimeType": "image/png", "data": "aGVsbG8="},
            {"type": "audio", "mimeType": "audio/wav", "data": "aGVsbG8h"},
            {"type": "resource", "resource": {"uri": "file:///a", "text": "within"}},
            {"type": "resource", "resource": {"uri": "file:///b", "blob": "aGk="}},
            {"type": "resource_link", "uri": "file:///c", "name": "c", "mimeType": "text/plain"},
        ]);
        let expected = "one\ntwo\n[image: image/png, 5 bytes]\n[audio: audio/wav, 6 bytes]\n\
                        [resource file:///a]\nwithin\n\
                        [resource file:///b: unknown type, 2 bytes]\n\
                        [link to c: file:///c, text/plain]";
        let reply = reply_to(json!({"content": content}), 1000);
        let expected = ToolReply { content: expected.into(), ..ToolReply::default() };
        assert_eq!(reply, expected);
    }

    #[test]
    fn keeps_structured_result_and_uses_it_for_missing_text() {
        let only = reply_to(json!({"content": [], "structuredContent": {"sum": 3}}), 1000);
        assert_eq!(only.content, r#"{"sum":3}"#);
        assert_eq!(only.structured, Some(json!({"sum": 3})));
        let content = json!([{"type": "text", "text": "three"}]);
        let both = json!({"content": content, "structuredContent": {"sum": 3}, "isError": true});
        let both = reply_to(both, 1000);
        assert_eq!((both.content.as_str(), both.is_error), ("three", true));
    }

    #[test]
    fn truncates_at_character_boundary_with_notice() {
        let content = json!([{"type": "text", "text": "äöü"}]);
        let cut = reply_to(json!({"content": content}), 3);
        let mark = "[truncated: 6 bytes, of which one tool result may have 3]";
        assert_eq!(cut.content, format!("ä\n{mark}"));
        let cut = reply_to(json!({"content": [], "structuredContent": {"sum": 3}}), 3);
        assert_eq!((cut.content.starts_with("{\"s\n[trunc"), cut.structured), (true, None));
        assert!(cut.is_cut);
    }
}
